r"""Java properties files, such as broker.conf, read as the class that brokers load them with does.

    name=value      name: value      name value      blanks around the separator do not count
    na\=me=value    \u0032           \t \n \r \f      any other character behind \ is itself
    # or !          a comment, where a line begins with it
    ends in \       goes on with the next line, without the blanks that it begins with

Blanks behind a value belong to it. Of a name that is there twice the last counts. Bytes are
ISO-8859-1.

Reference: java.util.Properties#load(InputStream); BrokerStartup.
"""

import re
from typing import Final

_PROPERTY_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_PROPERTY_BLANKS: Final = " \t\f"
_PROPERTY_NAME: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_PROPERTY_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_UNICODE_ESCAPE: Final = re.compile(r"u[0-9A-Fa-f]{4}")
_ESCAPED_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAVA_INT: Final = re.compile(
    r"[+-]?\d{1,20}"
)  # Integer#parseInt takes all decimal digits of Unicode.


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the values by name. Raises ValueError for an escape u without four hex digits."""
    found = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _PROPERTY_NAME.match(line)
        end = match.end() if match else 0
        key = match[1] if match else ""
        found[_unescaped(key)] = _unescaped(line[end:])
    return found


def parse_int(text: str) -> int | None:
    """Return the number that Integer#parseInt makes of a text; None where it throws."""
    if _JAVA_INT.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**31) <= number < 2**31 else None


def _logical_lines(text: str) -> list[str]:
    """Return the lines that are no comments, those that go on joined."""
    found: list[str] = []
    begun: str | None = None
    for natural in _PROPERTY_LINE_END.split(text):
        line = natural.lstrip(_PROPERTY_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            begun = None
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        whole = (begun or "") + (line[:-1] if goes_on else line)
        begun = whole if goes_on else None
        if not goes_on and whole:
            found.append(whole)
    return [*found, begun] if begun else found


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return _ESCAPED_CHARACTERS.get(escape, escape)
        if _UNICODE_ESCAPE.fullmatch(escape) is None:
            raise ValueError(f"\\{escape} is no \\u with four hexadecimal digits")
        return chr(int(escape[1:], 16))

    return _PROPERTY_ESCAPE.sub(meant, text)

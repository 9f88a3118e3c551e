r"""The user's format of one line for each message: ``-f '{topic} {keys}\t{body}'``.

A column's name in braces is replaced by its value; ``\n`` ``\t`` ``\\`` ``\{`` mean the same as in
a shell's printf. Null becomes an empty string. In a pipe a message's text stands as it is; on a
terminal its control characters and line ends are escaped: a message is one line and no command.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mqlog_jobs.output.amounts import instant
from mqlog_jobs.output.typed_values import json_text, nested
from mqstore.codec.schema import BY_NAME, check_columns, resolve_columns
from mqstore.errors import InvalidOptionError, printable

ONE_CHANGE: Final = (
    r"{storeTimestamp}  {topic}/{queueId}@{queueOffset}  {op} {database}.{table}"
    r"\t{row}\t{before}\t{_bodyError}"
)
"""The format of changes that are printed as their messages are stored."""
ONE_LINE: Final = r"{storeTimestamp}  {topic}/{queueId}@{queueOffset}  {tags}\t{keys}\t{body}"
"""The format of messages that are printed as they are stored."""
STANDARD: Final = resolve_columns("standard")
_PLACEHOLDER: Final = re.compile(r"\\(.)|\{(\w+)\}")
_OPENED: Final = re.compile(r"(?<!\\)\{(\w+)(?![\w}])")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A parsed format: ``pieces`` are text and, at odd indexes, names of columns."""

    pieces: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names, each once."""
        return tuple(dict.fromkeys(self.pieces[1::2]))

    def fill(self, row: Mapping[str, object], *, escaped: bool = False) -> str:
        """Return the line of one message, with its line end; ``escaped`` for a terminal."""
        filled = list(self.pieces)
        for index in range(1, len(filled), 2):
            text = _text(row[filled[index]])
            filled[index] = printable(text) if escaped else text
        return "".join(filled) + "\n"


def parse(text: str, changes: Collection[str] = ()) -> LineFormat:
    """Return the format; ``changes`` are columns of changes, where those are read.

    Raises InvalidSchemaError for a column that a read does not have, InvalidOptionError for a brace
    that is not closed behind a column, and for a text without any column: each message would print
    the same line.
    """
    opened = next((t for t in _OPENED.finditer(text) if t[1] in {*BY_NAME, *changes}), None)
    if opened is not None:
        expected = f"has no closing brace behind {opened[0]}: write {opened[0]}}}"
        raise InvalidOptionError("--format", text, expected)
    pieces = [""]
    end = 0
    for token in _PLACEHOLDER.finditer(text):
        pieces[-1] += text[end : token.start()]
        end = token.end()
        if token[2] is None:
            pieces[-1] += _ESCAPES.get(token[1], token[1])
        else:
            known = [token[2]] if token[2] in changes else check_columns([token[2]])
            pieces += [*known, ""]
    pieces[-1] += text[end:]
    if len(pieces) == 1:
        expected = "names no column: write columns in braces, such as '{keys} {body}'"
        raise InvalidOptionError("--format", text, expected)
    return LineFormat(tuple(pieces))


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="replace")
        case datetime():
            return instant(value, "milliseconds")
        case list() if all(isinstance(item, tuple) for item in value):
            return " ".join(f"{name}={item}" for name, item in value)
        case dict() | list():
            return json_text(nested(value))
    return str(value)

"""Parses the bodies that RocketMQ sends: JSON, and fastjson's text that is no JSON.

Fastjson leaves integer keys unquoted (``{0:"127.0.0.1:10911"}``) and writes objects as keys
(``{{"queueId":0,"topic":"T"}:{"maxOffset":4}}``). Such a key comes as a tuple of its sorted
items. The text may be hostile: depth, numbers and the count of values are bounded.

Reference: com.alibaba.fastjson.serializer.MapSerializer (non-string keys), MessageQueue as a key
of TopicStatsTable and ConsumeStats; KVTable.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 2_000_000  # of 100,000 queues, with all that is said about them
_MOST_DIGITS: Final = 20  # of a 64-bit integer, with its sign

# A string that does not end is one token too, or each quote in it would be tried as a start.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_WORDS: Final = {"true": True, "false": False, "null": None}


class InvalidBodyError(ValueError):
    """A text that is neither JSON nor fastjson's, or is beyond a limit."""


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Return the value of a text in UTF-8. Raises InvalidBodyError.

    The text must not be nested deeper than MAX_DEPTH, nor have more than MAX_VALUES values, nor
    an integer of more digits than 64 bits need.
    """
    text = bytes(data).decode("utf-8", errors="replace")
    _check(text)
    try:
        value = _DECODER.decode(text)
    except InvalidBodyError:
        raise
    except (ValueError, RecursionError):
        value = _Text(text).parse()
    return _paired(value) if _SURROGATE.search(text) else value


def _paired(value: Any) -> Any:
    """Return the value with U+FFFD for halves of surrogate pairs, which no encoding takes."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_paired(key): _paired(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(map(_paired, value))
        case _:
            return value


def _check(text: str) -> None:
    if text.count(",") + text.count("{") + text.count("[") > MAX_VALUES:
        raise InvalidBodyError(f"more than {MAX_VALUES} values")
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in "[{") - (token in "]}")
        if depth > MAX_DEPTH:
            raise InvalidBodyError(f"nested deeper than {MAX_DEPTH}")


def _bounded_int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise InvalidBodyError(f"an integer of {len(digits)} digits")
    return int(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_bounded_int)


_FIELD: Final = r'"[^"\\\x00-\x1f]*":(?:"[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]*)|true|false|null)'
_FLAT: Final = re.compile(rf"\{{{_FIELD}(?:,{_FIELD})*\}}")
"""An object of texts and integers that is JSON, as fastjson writes it: the decoder takes it."""


class _Text:
    """A recursive descent over one text; ``_check`` bounded how deep it may go."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise InvalidBodyError(f"more behind the value, at character {self._at}")
        return value

    def _value(self, depth: int) -> Any:
        self._skip()
        if depth > MAX_DEPTH:
            raise InvalidBodyError(f"nested deeper than {MAX_DEPTH}")
        match self._text[self._at : self._at + 1]:
            case '"':
                return self._string()
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case _:
                return self._scalar()

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, False)
        except ValueError as error:
            raise InvalidBodyError(f"a broken string at character {self._at}") from error
        return str(value)

    def _object(self, depth: int) -> dict[Any, Any]:
        flat = _FLAT.match(self._text, self._at)
        if flat is not None:  # Most are: the names of queues, and the fields of each.
            self._at = flat.end()
            return dict(_DECODER.decode(flat[0]))
        found: dict[Any, Any] = {}
        while not self._closes("}", first=not found):
            key = self._key(depth + 1)
            self._skip()
            self._expect(":")
            found[key] = self._value(depth + 1)
        return found

    def _key(self, depth: int) -> Any:
        key = self._value(depth)
        if isinstance(key, dict):
            key = tuple(sorted(key.items(), key=str))
        try:
            hash(key)
        except TypeError as error:
            raise InvalidBodyError(f"a list in a key, at character {self._at}") from error
        return key

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._closes("]", first=not found):
            found.append(self._value(depth + 1))
        return found

    def _closes(self, bracket: str, *, first: bool) -> bool:
        """Step over the opening bracket or a comma; tell whether the container ends here."""
        if first:
            self._at += 1
        self._skip()
        if self._text[self._at : self._at + 1] == bracket:
            self._at += 1
            return True
        if not first:
            self._expect(",")
        return False

    def _scalar(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            if number[1] is None and number[2] is None:
                return _bounded_int(number[0])
            return float(number[0])
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        raise InvalidBodyError(f"no value at character {self._at}")

    def _expect(self, mark: str) -> None:
        if self._text[self._at : self._at + 1] != mark:
            raise InvalidBodyError(f"no {mark} at character {self._at}")
        self._at += 1

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

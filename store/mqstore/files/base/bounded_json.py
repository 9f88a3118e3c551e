"""JSON that anybody may have written: parsed only if it cannot take much memory, time or stack.

A parser recurses, and makes of two bytes an object of two hundred: 64 MiB of brackets take more
than 2 GiB. So a text is looked through before it is parsed.
"""

import json
import re
from typing import Any, Final

from mqstore.format.config import MAX_CONFIG_DEPTH

_DIGITS: Final = 20  # of a 64-bit integer, with its sign
_MOST_CONFIG_VALUES: Final = 1_000_000  # of 100,000 topics
_VALUES_A_BRACKET: Final = 4
_QUOTES_A_VALUE: Final = 4  # a name and a text
STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A string, with its end or without one: each quote in the latter would be searched from else."""
_BRACKET: Final = re.compile(rf'(?:[^"\[\]{{}}]++|{STRING})*+([\[\]{{}}]|\Z)', re.DOTALL)
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1, "": 0}


class LimitError(ValueError):
    """The text is beyond a limit at ``position`` (in characters); ``reason`` tells which."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def loads(text: str, most_values: int = _MOST_CONFIG_VALUES) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    check(text, most_values)
    return parse(text)


def check(text: str, most_values: int = _MOST_CONFIG_VALUES) -> None:
    """Raise LimitError for a text of too many values, quotes, brackets, or nested too deep."""
    if text.count(",") > most_values:
        raise LimitError(f"more than {most_values} values")
    if "\0" in text:
        raise LimitError("a zero byte", text.index("\0"))
    if text.count('"') > _QUOTES_A_VALUE * most_values:
        raise LimitError(f"more than {_QUOTES_A_VALUE * most_values} quotes")
    most_brackets = most_values // _VALUES_A_BRACKET
    if text.count("{") + text.count("[") > most_brackets:
        raise LimitError(f"more than {most_brackets} brackets")
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += _STEPS[match[1]]
        if depth > MAX_CONFIG_DEPTH:
            raise LimitError(f"nested deeper than {MAX_CONFIG_DEPTH}", match.start(1))


def parse(text: str) -> Any:
    """Return the value of a JSON text that was checked. Raises ValueError."""
    value = json.loads(text, parse_int=_bounded_int)
    return _encodable(value) if "\\u" in text else value


def _encodable(value: Any) -> Any:
    """Return the same with ``?`` for half a surrogate pair, as Java writes it in UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list) else value


def _bounded_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise LimitError(f"an integer of {len(digits)} digits")
    return int(digits)

"""JSON that anybody may have written: parsed only if it cannot take much memory, time or stack.

A parser recurses, and makes of two bytes an object of two hundred: 64 MiB of brackets take more
than 2 GiB. So a text is looked through before it is parsed.
"""

import json
import re
from typing import Any, Final

from mqstore.format.config import MAX_CONFIG_DEPTH

_DIGITS: Final = 20  # of a 64-bit integer, with its sign
_MOST_VALUES: Final = 1_000_000  # of 100,000 topics
_VALUES_A_BRACKET: Final = 4
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]')


class LimitError(ValueError):
    """The text is beyond a limit at ``position`` (in characters); ``reason`` tells which."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def loads(text: str, most_values: int = _MOST_VALUES) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    check(text, most_values)
    return parse(text)


def check(text: str, most_values: int = _MOST_VALUES) -> None:
    """Raise LimitError for a text of too many values or brackets, or nested too deep."""
    if text.count(",") > most_values:
        raise LimitError(f"more than {most_values} values")
    most_brackets = most_values // _VALUES_A_BRACKET
    if text.count("{") + text.count("[") > most_brackets:
        raise LimitError(f"more than {most_brackets} brackets")
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in "[{") - (token in "]}")
        if depth > MAX_CONFIG_DEPTH:
            raise LimitError(f"nested deeper than {MAX_CONFIG_DEPTH}", match.start())


def parse(text: str) -> Any:
    """Return the value of a JSON text that was checked. Raises ValueError."""
    return json.loads(text, parse_int=_bounded_int)


def _bounded_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise LimitError(f"an integer of {len(digits)} digits")
    return int(digits)

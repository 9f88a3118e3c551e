"""JSON as brokers write it: fastjson's dialect, with integer keys that have no quotes."""

import json
import re
from typing import Any

from mqstore.errors import CorruptConfigError
from mqstore.files.base import bounded_json

# Strings are matched first so that what looks like a key inside one is left alone.
_INTEGER_KEY = re.compile(r"([{,]\s*+)(-?\d{1,19})(\s*+:)")
_STRING_OR_KEY = re.compile(f"{bounded_json.STRING}|{_INTEGER_KEY.pattern}", re.DOTALL)


def parse_object(text: str, path: str) -> dict[str, Any]:
    """Return the JSON object of a text, whose keys may be integers without quotes.

    Raises CorruptConfigError, with ``path`` and the byte where the text is wrong.
    """
    try:
        bounded_json.check(text)
        plain = _STRING_OR_KEY.sub(_quote_key, text) if _INTEGER_KEY.search(text) else text
        value = bounded_json.parse(plain)
    except bounded_json.LimitError as error:
        raise CorruptConfigError(path, _byte(text, error.position), error.reason) from error
    except json.JSONDecodeError as error:
        position = _before_quoting(text, error.pos)
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        what = error.msg.rstrip(": ").removesuffix(" at")
        reason = f"not JSON: {what} at line {line} column {column}"
        raise CorruptConfigError(path, _byte(text, position), reason) from error
    if not isinstance(value, dict):
        raise CorruptConfigError(path, 0, "not a JSON object")
    return value


def _before_quoting(text: str, position: int) -> int:
    """Return which character of ``text`` lies at ``position`` once its keys are quoted."""
    for match in _STRING_OR_KEY.finditer(text):
        if match.start() >= position:
            break
        if match[2] is not None:
            position -= position > match.start(2)
            position -= position > match.end(2)
    return position


def _byte(text: str, position: int) -> int:
    """Return how many bytes of UTF-8 lie before that character."""
    return len(text[:position].encode(errors="replace"))


def _quote_key(match: re.Match[str]) -> str:
    before, key, after = match.groups()
    return match.group() if key is None else f'{before}"{key}"{after}'

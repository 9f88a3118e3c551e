"""Small JSON files of ours below .mqlog: each replaced in one step, and checked when read.

    {"crc":1234567890,"body":{…}}      crc: CRC-32 of the body as ``json.dumps`` wrote it

They are only written whole and durable, so a file that does not fit its checksum was not left by
a crash: it is an error, never a guess.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from mqstore.errors import CorruptConfigError
from mqstore.files.base import bounded_json
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config.config_write import replace_for_good
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.format.crc import crc32

Body: TypeAlias = dict[str, Any]
T = TypeVar("T")

BAD: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What parsing a body that mqlog did not write may raise."""
_MOST_VALUES: Final = 5_000_000  # an intent has four for each of a million queues
_LEAST, _BEYOND = -1, 1 << 63  # of an integer


def load(place: StoreDir, path: str) -> Body | None:
    """Return what the file ``path`` holds, or None if it is not there.

    Raises CorruptConfigError.
    """
    data = place.folder.read_small(path)
    if data is None:
        return None
    try:
        found = bounded_json.loads(data.decode(), _MOST_VALUES)
        body = found["body"]
        if not isinstance(body, dict) or found["crc"] != crc32(_text(body)):
            raise ValueError("its checksum differs")
    except BAD as error:
        raise corrupt(place, path, error) from error
    return body


def build(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the dataclass ``kind`` with these values of its fields, lists as tuples.

    Fields are str, int, bool, dataclasses, tuples of them, or None where declared. Raises
    ValueError or KeyError for a value that is missing, of another type, or out of bounds.
    """
    return kind(**{name: _checked(name, hint, values[name]) for name, hint in _hints(kind)})  # type: ignore[arg-type]


@cache
def _hints(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _checked(name: str, hint: Any, value: Any) -> Any:
    if isinstance(hint, UnionType):
        if value is None:
            return None
        hint = get_args(hint)[0]
    if is_dataclass(hint):
        return build(hint, value)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return _tuple(name, get_args(hint), value)
    bounded = type(value) is not int or _LEAST <= value < _BEYOND
    if type(value) is not hint or not bounded:
        raise ValueError(f"{name}: {value!r}")
    return value


def _tuple(name: str, hints: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise ValueError(f"{name}: {value!r}")
    if hints[-1] is Ellipsis:
        return tuple(_checked(name, hints[0], one) for one in value)
    return tuple(_checked(name, *pair) for pair in zip(hints, value, strict=True))


def is_readable(body: Body) -> bool:
    """Tell whether a file that holds ``body`` can be read again, even if it grows to twice that."""
    text = _text(body).decode()
    try:
        bounded_json.check(text, _MOST_VALUES // 2)
    except bounded_json.LimitError:
        return False
    return len(text) <= MAX_CONFIG_BYTES // 2


def corrupt(place: StoreDir, path: str, error: Exception) -> CorruptConfigError:
    """Return the error that says why the file cannot be used."""
    return CorruptConfigError(f"{place.root}/{path}", 0, f"not what mqlog writes there ({error})")


def replace(writer: StoreWriter, path: str, body: Body) -> None:
    """Make the file ``path`` hold ``body``, durably and for good. Its folder must exist."""
    replace_for_good(writer, path, document(body))


def document(body: Body) -> bytes:
    """Return the bytes of a file that holds ``body``."""
    text = _text(body)
    return b'{"crc":%d,"body":%b}' % (crc32(text), text)


def _text(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()

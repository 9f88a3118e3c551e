"""Small JSON files of ours below .mqlog: each replaced in one step, and checked when read.

    {"crc":1234567890,"body":{…}}      crc: CRC-32 of the body as ``json.dumps`` wrote it

They are only written whole and durable, so one that does not fit its checksum was not left by a
crash: it is an error, never a guess.
"""

import json
from typing import Any, Final, TypeAlias

from mqstore.errors import CorruptConfigError
from mqstore.files.config import bounded_json
from mqstore.files.config.config_write import read_small, replace_file
from mqstore.files.undo import Undo
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.format.crc import crc32

Body: TypeAlias = dict[str, Any]

_MOST_VALUES: Final = 5_000_000  # an intent tells four of each of a million queues
_BAD: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def load(root: str, path: str) -> Body | None:
    """Return what ``root/path`` holds, or None if it is not there. Raises CorruptConfigError."""
    data = read_small(root, path)
    if data is None:
        return None
    try:
        found = bounded_json.loads(data.decode(), _MOST_VALUES)
        body = found["body"]
        if not isinstance(body, dict) or found["crc"] != crc32(_text(body)):
            raise ValueError("its checksum differs")
    except _BAD as error:
        raise corrupt(root, path, error) from error
    return body


def is_readable(body: Body) -> bool:
    """Tell whether a file that holds ``body`` is read again, though it may yet grow to twice."""
    text = _text(body).decode()
    try:
        bounded_json.check(text, _MOST_VALUES // 2)
    except bounded_json.LimitError:
        return False
    return len(text) <= MAX_CONFIG_BYTES // 2


def corrupt(root: str, path: str, error: Exception) -> CorruptConfigError:
    """Return the error that says why the file cannot be used."""
    return CorruptConfigError(f"{root}/{path}", 0, f"not what mqlog writes there ({error})")


def replace(root: str, path: str, body: Body, temp_dir: str) -> None:
    """Make ``root/path`` hold ``body``, durably. Its folder is there; ``aside`` lies beside it."""
    replace_file(root, path, document(body), temp_dir, Undo())


def document(body: Body) -> bytes:
    """Return the file that holds ``body``."""
    text = _text(body)
    return b'{"crc":%d,"body":%b}' % (crc32(text), text)


def _text(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()

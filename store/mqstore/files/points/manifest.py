"""The manifest of a point: which bytes of which objects make up the files of the store.

    mqlog-point 1 0f3a…            the SHA-256 of all that follows, in 64 hexadecimal digits
    {"number": 3, …}               the head: a line of JSON
    zlib                           the files: JSON, compressed

A file is a list of parts; what no part covers reads as zeros. A part names its object, where it
lies there and in the file, and the first half of the SHA-256 of its bytes. A manifest may come from
anybody: what it names is checked before it is believed.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from mqstore.errors import CorruptStoreError

MOST_FILE_BYTES: Final = 1 << 42
MOST_MANIFEST_BYTES: Final = 256 << 20
MOST_FILES: Final = 4_000_000
DIGEST_CHARS: Final = 32
MOST_PATH_CHARS: Final = 1024
MOST_PATH_NAMES: Final = 16
"""A store has five at most; each name of a path is a folder in memory, with all before it."""

_MAGIC: Final = b"mqlog-point 1 "
_FIRST_LINE: Final = re.compile(rb"mqlog-point ([0-9]{1,9}) ([0-9a-f]{64})\n")
_OBJECT: Final = re.compile(r"[0-9]{8}/(?:pack|[0-9]{1,8})")
_DIGEST_FORM: Final = re.compile(rf"[0-9a-f]{{{DIGEST_CHARS}}}")
_LEAST_LIST_BYTES: Final = 6
"""A file has three lists in 18 characters at least; an empty list has two, and takes 64 bytes."""
_NO_NAMES: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class PointPart:
    """Bytes [position, position + length) of a file: those at ``start`` of the object ``name``."""

    name: str
    start: int
    position: int
    length: int
    digest: str

    @property
    def end(self) -> int:
        """The position behind the part in the file."""
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class PointFile:
    """One file of a point.

    ``seen`` is what the file system said of the source (device, inode, mtime in ns), empty where
    the file may still change. ``grown`` are the bytes of a file that only grows which the point
    has, and ``seal`` is the digest of the last of them: the next point takes what is behind.
    """

    path: str
    size: int
    parts: tuple[PointPart, ...]
    seen: tuple[int, ...] = ()
    grown: int = 0
    seal: str = ""


@dataclass(frozen=True, slots=True)
class PointHead:
    """What is known of a point without its files. Times are epoch ms, sizes bytes."""

    number: int
    began_ms: int
    ended_ms: int
    broker_name: str
    source: str
    queues: int
    messages: int
    low: int
    high: int
    bytes: int
    """Bytes of all its parts."""
    linked_bytes: int
    """Bytes of files that this point was the first to take by a hard link."""
    written_bytes: int
    """Bytes that were written for this point, without the manifest."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PointManifest:
    """A point: its head, its folders and its files by path."""

    head: PointHead
    folders: tuple[str, ...]
    files: dict[str, PointFile]

    def objects(self) -> set[str]:
        """Return the names of the objects that the point needs."""
        return {part.name for file in self.files.values() for part in file.parts}


def digest_of(*pieces: bytes | memoryview) -> str:
    """Return the digest of bytes, as parts have it."""
    made = hashlib.sha256()
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()[:DIGEST_CHARS]


def encode(manifest: PointManifest) -> bytes:
    """Return the bytes of a manifest."""
    listed = [
        [
            file.path,
            file.size,
            [[p.name, p.start, p.position, p.length, p.digest] for p in file.parts],
            list(file.seen),
            file.grown,
            file.seal,
        ]
        for file in manifest.files.values()
    ]
    head = json.dumps(asdict(manifest.head)).encode()
    body = zlib.compress(json.dumps([list(manifest.folders), listed]).encode(), 6)
    rest = head + b"\n" + body
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def decode_head(where: str, data: bytes) -> PointHead:
    """Return the head of a whole manifest. Raises CorruptStoreError, which names ``where``."""
    head, _ = _parts(where, data)
    return head


def decode(where: str, data: bytes) -> PointManifest:
    """Return a manifest, all of which is checked. Raises CorruptStoreError, naming ``where``."""
    head, body = _parts(where, data)
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(body, MOST_MANIFEST_BYTES)
        if unpack.unconsumed_tail or not unpack.eof:
            raise _harmful(where, f"its list of files has more than {MOST_MANIFEST_BYTES} bytes")
        if _LEAST_LIST_BYTES * (text.count(b"[") + text.count(b"{")) > len(text) + 64:
            raise _harmful(where, "its list of files is made of empty lists")
        folders, listed = json.loads(text)
        files = {file.path: file for file in map(_file, listed)}
        named = tuple(map(_path, folders))
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise _harmful(where, str(error)) from None
    if len(files) != len(listed) or len(files) > MOST_FILES:
        raise _harmful(where, "it names a file twice, or too many")
    _check_tree(where, files, named)
    return PointManifest(head, named, files)


def _parts(where: str, data: bytes) -> tuple[PointHead, bytes]:
    found = _FIRST_LINE.match(data)
    if found is None or found[1] != b"1":
        raise CorruptStoreError(where, 0, "no manifest of a point, or one of a newer mqlog")
    rest = memoryview(data)[found.end() :]
    if hashlib.sha256(rest).hexdigest().encode() != found[2]:
        raise CorruptStoreError(where, found.end(), "the manifest does not match its checksum")
    line, _, body = bytes(rest).partition(b"\n")
    try:
        return _head(json.loads(line)), body
    except (ValueError, TypeError, RecursionError) as error:
        raise _harmful(where, str(error)) from None


def _head(found: Any) -> PointHead:
    if not isinstance(found, dict):
        raise TypeError("its head is no JSON object")
    values: dict[str, Any] = {}
    for field in fields(PointHead):
        value = found.get(field.name)
        if field.name == "left_out":
            values[field.name] = tuple(map(_text, value or ()))
        elif field.name in {"broker_name", "source"}:
            values[field.name] = _text(value)
        else:
            values[field.name] = _number(value, 2**63 - 1)
    return PointHead(**values)


def _file(row: Any) -> PointFile:
    path, size, parts, seen, grown, seal = row
    named = _path(path)
    made = tuple(_part(part) for part in parts)
    room = _number(size, MOST_FILE_BYTES)
    end = 0
    for part in made:
        if part.position < end or part.end > room:
            raise ValueError(
                f"{named!r} has a part outside of its {room} bytes, or two in one place"
            )
        end = part.end
    kept = tuple(_number(n, 2**64) for n in seen)
    return PointFile(named, room, made, kept, _number(grown, room), _text(seal))


def _part(row: Any) -> PointPart:
    name, start, position, length, digest = row
    if not _OBJECT.fullmatch(_text(name)) or not _DIGEST_FORM.fullmatch(_text(digest)):
        raise ValueError(f"{name!r} is no name of an object of a repository")
    first, at, count = (_number(n, MOST_FILE_BYTES) for n in (start, position, length))
    return PointPart(name, first, at, count, digest)


def _path(path: Any) -> str:
    parts = _text(path).split("/")
    if _NO_NAMES & set(parts) or "\0" in path:
        raise ValueError(f"{path!r} is no name inside a store")
    if len(path) > MOST_PATH_CHARS or len(parts) > MOST_PATH_NAMES:
        raise ValueError(f"{path[:80]!r}… is no path that a store has")
    os.fsencode(path)
    return str(path)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text should be")
    return value


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} where a number from 0 to {most} should be")
    return value


def _check_tree(where: str, files: Iterable[str], folders: Sequence[str]) -> None:
    """Raise CorruptStoreError where a file is also a folder."""
    known = set(folders)
    for path in (*files, *folders):
        parts = path.split("/")
        known.update("/".join(parts[:count]) for count in range(1, len(parts)))
    both = known.intersection(files)
    if both:
        raise _harmful(where, f"{min(both)!r} is a file and a folder")


def _harmful(where: str, reason: str) -> CorruptStoreError:
    return CorruptStoreError(where, 0, f"the manifest is not one that mqlog writes: {reason}")

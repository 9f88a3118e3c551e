"""The manifest of a point: which bytes of which objects make up the files of the store.

    mqlog-point 1 0f3a…            the SHA-256 of all that follows, in 64 hexadecimal digits
    {"number": 3, …}               the head: a line of JSON
    zlib                           the folders, then each file: lines of JSON, compressed

Lines are read one by one, so that no more is in memory than the files themselves take. A file is
a list of parts; what no part covers reads as zeros. A part names its object, where it lies there
and in the file, and the first half of the SHA-256 of its bytes. A manifest may come from anybody:
what it names is checked before it is believed.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from mqstore.errors import CorruptStoreError, UnsupportedStoreError

MOST_FILE_BYTES: Final = 1 << 42
MOST_MANIFEST_BYTES: Final = 128 << 20
MOST_LINE_BYTES: Final = 8 << 20
MOST_FILES: Final = 1 << 20
"""Also the most folders."""
DIGEST_CHARS: Final = 32
MOST_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which Python has no date."""
MOST_PATH_CHARS: Final = 1024
MOST_PATH_NAMES: Final = 16
"""A store has five at most; each name of a path is a folder in memory, with all before it."""

_MAGIC: Final = b"mqlog-point 1 "
_FIRST_LINE: Final = re.compile(rb"mqlog-point ([0-9]{1,9}) ([0-9a-f]{64})\n")
_OBJECT: Final = re.compile(r"[0-9]{8}/(?:pack|[0-9]{1,8})(?:-[0-9a-f]{8})?")
_DIGEST_FORM: Final = re.compile(rf"[0-9a-f]{{{DIGEST_CHARS}}}")
_LEAST_LIST_BYTES: Final = 6
"""A file has three lists in 18 characters at least; an empty list has two, and takes 64 bytes."""
_BYTES_AT_ONCE: Final = 1 << 20
_PACKED_AT_ONCE: Final = 1 << 16
_TOO_MANY: Final = (
    f"the list of a point's files would have more than {MOST_MANIFEST_BYTES >> 20} MiB: they have "
    "too many parts. Begin another repository"
)
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
    was_set_back: bool = False
    """The clock was behind the point before, at this point or an earlier one."""


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
    """Return the bytes of a manifest. Raises UnsupportedStoreError for one that is too large."""
    packer, packed, total = zlib.compressobj(6), [], 0
    _check_kept(manifest)
    for line in _lines(manifest):
        total += len(line)
        if total > MOST_MANIFEST_BYTES or len(line) > MOST_LINE_BYTES:
            raise UnsupportedStoreError(manifest.head.source, "TOO_LARGE", _TOO_MANY)
        packed.append(packer.compress(line))
    packed.append(packer.flush())
    head = json.dumps(asdict(manifest.head)).encode()
    rest = head + b"\n" + b"".join(packed)
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _check_kept(manifest: PointManifest) -> None:
    """Raise UnsupportedStoreError for a point that ``decode`` would refuse."""
    source, paths = manifest.head.source, [*manifest.folders, *manifest.files]
    try:
        for path in paths:
            _path(path)
    except ValueError as error:
        raise UnsupportedStoreError(source, "TOO_LARGE", str(error)) from None
    if len(paths) > MOST_FILES:
        reason = f"it has more than {MOST_FILES} files and folders"
        raise UnsupportedStoreError(source, "TOO_LARGE", reason)


def _lines(manifest: PointManifest) -> Iterator[bytes]:
    yield _line(list(manifest.folders))
    for file in manifest.files.values():
        parts = [[p.name, p.start, p.position, p.length, p.digest] for p in file.parts]
        yield _line([file.path, file.size, parts, list(file.seen), file.grown, file.seal])


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def decode_head(where: str, data: bytes) -> PointHead:
    """Return the head of a whole manifest. Raises CorruptStoreError, which names ``where``."""
    head, _ = _parts(where, data)
    return head


def decode(where: str, data: bytes) -> PointManifest:
    """Return a manifest, all of which is checked. Raises CorruptStoreError, naming ``where``."""
    head, body = _parts(where, data)
    files: dict[str, PointFile] = {}
    try:
        lines = _unpacked(where, body)
        folders = tuple(map(_path, _loaded(next(lines, b"null"))))
        known: dict[str, str] = {}
        for line in lines:
            file = _file(_loaded(line), known)
            if file.path in files:
                raise _harmful(where, f"it names the file {file.path!r} twice")
            files[file.path] = file
            if len(files) > MOST_FILES:
                raise _harmful(where, "it names too many files")
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise _harmful(where, str(error)) from None
    _check_tree(where, files, folders)
    return PointManifest(head, folders, files)


def _unpacked(where: str, body: bytes) -> Iterator[bytes]:
    """Yield the lines, of which one at a time is in memory."""
    held, total = b"", 0
    for data in _pieces(where, body):
        total += len(data)
        if total > MOST_MANIFEST_BYTES:
            raise _harmful(where, f"its list of files has more than {MOST_MANIFEST_BYTES} bytes")
        *lines, held = (held + data).split(b"\n")
        yield from lines
        if len(held) > MOST_LINE_BYTES:
            raise _harmful(where, f"it has a line of more than {MOST_LINE_BYTES} bytes")
    if held:
        raise _harmful(where, "its last line has no end")


def _pieces(where: str, body: bytes) -> Iterator[bytes]:
    """Yield the bytes that were compressed, a MiB at most at a time."""
    unpack = zlib.decompressobj()
    for start in range(0, len(body), _PACKED_AT_ONCE):
        packed = body[start : start + _PACKED_AT_ONCE]
        while packed and not unpack.eof:
            yield unpack.decompress(packed, _BYTES_AT_ONCE)
            packed = unpack.unconsumed_tail
    yield unpack.flush(_BYTES_AT_ONCE)
    if not unpack.eof:
        raise _harmful(where, "its list of files ends in the middle")


def _loaded(line: bytes) -> Any:
    """Return the value of a line, unless it would take far more memory than its text."""
    if _LEAST_LIST_BYTES * (line.count(b"[") + line.count(b"{")) > len(line) + 64:
        raise ValueError("its list of files is made of empty lists")
    return json.loads(line)


def _parts(where: str, data: bytes) -> tuple[PointHead, bytes]:
    found = _FIRST_LINE.match(data)
    if found is None or found[1] != b"1":
        raise CorruptStoreError(where, 0, "no manifest of a point, or one of a newer mqlog")
    rest = memoryview(data)[found.end() :]
    if hashlib.sha256(rest).hexdigest().encode() != found[2]:
        raise CorruptStoreError(where, found.end(), "the manifest does not match its checksum")
    line, _, body = bytes(rest).partition(b"\n")
    if len(line) > MOST_LINE_BYTES:
        raise _harmful(where, f"it has a line of more than {MOST_LINE_BYTES} bytes")
    try:
        return _head(_loaded(line)), body
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
        elif field.name == "was_set_back":
            values[field.name] = value is True
        elif field.name in {"broker_name", "source"}:
            values[field.name] = _text(value)
        elif field.name in {"began_ms", "ended_ms"}:
            values[field.name] = _number(value, MOST_TIME_MS)
        else:
            values[field.name] = _number(value, 2**63 - 1)
    return PointHead(**values)


def _file(row: Any, names: dict[str, str]) -> PointFile:
    """Return a file; parts share the names of objects in ``names``."""
    path, size, parts, seen, grown, seal = row
    named = _path(path)
    made = tuple(_part(part, names) for part in parts)
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


def _part(row: Any, names: dict[str, str]) -> PointPart:
    name, start, position, length, digest = row
    if not _OBJECT.fullmatch(_text(name)) or not _DIGEST_FORM.fullmatch(_text(digest)):
        raise ValueError(f"{name!r} is no name of an object of a repository")
    first, at, count = (_number(n, MOST_FILE_BYTES) for n in (start, position, length))
    return PointPart(names.setdefault(name, name), first, at, count, digest)


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
        if len(known) > MOST_FILES:
            raise _harmful(where, "it names too many folders")
    both = known.intersection(files)
    if both:
        raise _harmful(where, f"{min(both)!r} is a file and a folder")


def _harmful(where: str, reason: str) -> CorruptStoreError:
    return CorruptStoreError(where, 0, f"the manifest is not one that mqlog writes: {reason}")

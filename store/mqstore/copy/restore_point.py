"""A point of a repository, written out as a store that a broker opens."""

import hashlib
import os
from collections.abc import Callable
from typing import Final

from mqstore.copy.copy_store import Copied, check_apart
from mqstore.errors import CorruptStoreError, NoSpaceError
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory
from mqstore.files.base.store_dir import open_dir, rocksdb_queues
from mqstore.files.copy_target import Copy
from mqstore.files.points.backing import LocalBacking
from mqstore.files.points.folder import PartsFile, PointFolder
from mqstore.files.points.manifest import DIGEST_CHARS, PointFile, PointManifest, PointPart
from mqstore.files.points.repository import object_path
from mqstore.format.names import ABORT
from mqstore.read.directory import take
from mqstore.read.tier_bounds import warn_of_living_tier

_BYTES_AT_ONCE: Final = 1 << 20


def restore_point(
    point: PointFolder,
    target: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> Copied:
    """Write the store of ``point`` to the new directory ``target``; all bytes are checked.

    ``progress`` gets bytes written and bytes in all. Raises NotARepositoryError,
    PointNotFoundError, CorruptStoreError where the repository is damaged, InvalidOptionError for a
    target that is there, NoSpaceError, StoreUnavailableError, OSError; ``target`` is then not
    there.
    """
    point.files.check_restorable()
    manifest = point.files.manifest
    backing = point.files.backing
    if isinstance(backing, LocalBacking):
        check_apart(os.fspath(target), [backing.address])
    with Copy(os.fspath(target)) as copy:
        _check_room(copy, manifest)
        for folder in manifest.folders:
            copy.make_directory(folder)
        for file in manifest.files.values():
            source = PartsFile(backing, file, manifest.head.number)
            try:
                _write(copy, file, source, backing.address)
            finally:
                source.close()
            if progress is not None:
                progress(copy.copied_bytes, manifest.head.bytes)
        if rocksdb_queues(open_dir(copy.root, in_rocksdb=True)) is not None:
            # Units may be missing that the broker had in memory: without the file it leaves out
            # the record at place 0 when it makes them.
            copy.put(ABORT, b"")
        take(copy.root)  # Raises if the store cannot be read.
        warn_of_living_tier(Directory(copy.root), os.fspath(target))
    return Copied(take(target), 0, copy.copied_bytes, manifest.head.left_out)


def _check_room(copy: Copy, manifest: PointManifest) -> None:
    """Raise NoSpaceError where the disk has less free than the point's bytes."""
    needed = sum(part.length for file in manifest.files.values() for part in file.parts)
    disk = os.statvfs(copy.root)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise NoSpaceError(f"{copy.root}: the point has {needed} bytes, and {free} are free there")


def _write(copy: Copy, file: PointFile, source: PartsFile, repository: str) -> None:
    fd = copy.create(file.path)
    try:
        for part in file.parts:
            _write_part(copy, fd, part, source, repository)
        durable.truncate(fd, file.size)
    finally:
        durable.close(fd)


def _write_part(copy: Copy, fd: int, part: PointPart, source: PartsFile, repository: str) -> None:
    made = hashlib.sha256()
    for position in range(part.position, part.end, _BYTES_AT_ONCE):
        data = source.read(min(_BYTES_AT_ONCE, part.end - position), position)
        made.update(data)
        if data.count(0) < len(data):  # A hole stays one.
            durable.write_at(fd, data, position)
        copy.copied_bytes += len(data)
    if made.hexdigest()[:DIGEST_CHARS] != part.digest:
        where = f"{repository}/{object_path(part.name)}"
        raise CorruptStoreError(where, part.start, "the bytes do not match their checksum")

"""Whether a store goes on from the last point of a repository, and the clock as well.

The points of a repository are the history of one CommitLog. So the records at the end of the last
point must lie at the same place of the store's log. Where the store has none of that place any
more, or its broker cut the end of its log in a recovery, the store must at least lie where it lay
then. Two stores in one repository would look like one history, of which ``--keep`` removes points.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mqstore.copy.errors import ClockJumpError, OtherStoreError
from mqstore.copy.keep_rules import JUMP_MS
from mqstore.errors import CorruptStoreError
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.points.backing import Backing
from mqstore.files.points.folder import PartsFile
from mqstore.files.points.manifest import PointFile, PointManifest, digest_of
from mqstore.files.points.seal import SEAL_BYTES, seal_start
from mqstore.format import names
from mqstore.read.directory import open_store

_EXPIRED: Final = "its CommitLog has no byte in common with the last point"
_DIFFERS: Final = "its CommitLog has other records at the same place"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a user said is meant: another store than that of the points, a clock that jumped."""

    other_store: bool = False
    clock: bool = False


NOTHING_ACCEPTED: Final = Accepted()


@dataclass(frozen=True, slots=True)
class _CommonFile:
    """A file of the CommitLog that the last point and the store have."""

    kept: PointFile
    now: MappedFile

    @property
    def end(self) -> int:
        """How many bytes of it the point has."""
        return self.kept.grown or self.kept.size


def check_continues(backing: Backing, before: PointManifest, place: StoreDir) -> None:
    """Raise OtherStoreError unless the store at ``place`` goes on from the point ``before``."""
    kept = {
        path: file
        for path, file in before.files.items()
        if path.startswith(f"{names.COMMIT_LOG}/") and (file.grown or file.seen)
    }
    if not kept:  # A store without messages: any goes on from it.
        return
    with open_store(place.root, place.commit_log) as store:
        there = {f"{names.COMMIT_LOG}/{file.path}": file for file in store.log.files.files}
    common = [_CommonFile(kept[path], there[path]) for path in sorted(kept) if path in there]
    version = before.head.number
    last = max(kept)
    if common and common[-1].kept.path == last and _ends_equal(backing, common[-1], version):
        return
    is_same_place = before.head.source == place.root
    begins_equal = _begins_equal(backing, common, version) if common else None
    if is_same_place and begins_equal is not False:
        return
    head = before.head
    reason = _EXPIRED if not common else _DIFFERS
    raise OtherStoreError(
        place.root, backing.address, head.number, head.source, head.broker_name, reason
    )


def _ends_equal(backing: Backing, common: _CommonFile, version: int) -> bool:
    """Tell whether the last records of the point are in the store."""
    end = common.end
    if common.now.size < end:
        return False
    if common.kept.seal:
        start = seal_start(end)
        return digest_of(_now(common, end - start, start)) == common.kept.seal
    file = common.now.open()
    try:
        _, device, inode, mtime, _ = file.version()
    finally:
        file.close()
    if common.kept.seen == (device, inode, max(mtime, 0)):
        return True
    return _is_equal(backing, common, max(end - SEAL_BYTES, 0), version) is True


def _begins_equal(backing: Backing, common: Sequence[_CommonFile], version: int) -> bool | None:
    """Tell whether the first bytes in common are the same; None where they are not known."""
    for file in common:
        found = _is_equal(backing, file, 0, version)
        if found is not None:
            return found
    return None


def _is_equal(backing: Backing, common: _CommonFile, start: int, version: int) -> bool | None:
    """Compare bytes from ``start`` on; None where the point's cannot be read, or are no records."""
    size = min(SEAL_BYTES, common.end - start, common.now.size - start)
    source = PartsFile(backing, common.kept, version)
    try:
        then = source.read(size, start)
    except CorruptStoreError:
        return None
    finally:
        source.close()
    return then == _now(common, size, start) if any(then) else None


def _now(common: _CommonFile, size: int, start: int) -> bytes:
    file = common.now.open()
    try:
        return file.read(size, start)
    finally:
        file.close()


def check_clock(before: PointManifest, place: StoreDir, now_ms: int) -> None:
    """Raise ClockJumpError where the clock is far ahead of the last point and of the store."""
    seen_ms = max(before.head.began_ms, _changed_ms(place))
    if now_ms > seen_ms + JUMP_MS:
        raise ClockJumpError(_text(now_ms), before.head.number, _text(seen_ms))


def _changed_ms(place: StoreDir) -> int:
    """Return when the small files that a broker writes all the time changed last."""
    paths = [f"{names.CONFIG}/{name}" for name in place.folder.names(names.CONFIG)]
    found = 0
    for path in (names.CHECKPOINT, *paths):
        with suppress(OSError):
            found = max(found, os.lstat(f"{place.root}/{path}").st_mtime_ns // 1_000_000)
    return found


def _text(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))

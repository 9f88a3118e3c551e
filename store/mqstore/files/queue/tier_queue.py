"""Queues in tiered storage of the POSIX provider: segments below TIER/HASH_CLUSTER/BROKER.

A queue has a log of its own, COMMIT_LOG: records one after the other, whose PHYSICALOFFSET is their
place in it. CONSUME_QUEUE has its units. A segment is named by 8 hex digits of the MD5 of its base
offset, then the base offset in 20 digits; it ends where the next begins.

Reference: PosixFileSegment, MessageStoreUtil#toFilePath, #offset2FileName, FlatAppendFile,
FlatCommitLogFile, FlatConsumeQueueFile.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, InvalidOptionError, UnsafePathError
from mqstore.files.base.directory import Directory
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import MappedFile, MappedFileQueue, mapped_file
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.format.arrays import Span, Structs
from mqstore.format.consume_queue import UNIT

STORE_PATH_TIERED: Final = "storePathTiered"
TIER_LOG: Final = "COMMIT_LOG"
TIER_UNITS: Final = "CONSUME_QUEUE"
_HASH_DIGITS: Final = 8
_SEGMENT: Final = re.compile(r"[0-9a-f]{8}[0-9]{20}")
_CLUSTER: Final = re.compile(r"[0-9a-f]{8}_.+", re.DOTALL)
_MOST_SEGMENTS: Final = 1_000_000


def tier_folder(path: str, broker: str) -> Directory:
    """Return the folder of a broker in the tier at ``path``.

    Raises StoreNotFoundError, UnsafePathError, InvalidOptionError where no cluster, or several,
    have that broker there.
    """
    tier = Directory(path)
    tier.check_there()
    clusters = [
        name
        for name, kind, _ in tier.survey()
        if kind == "directory"
        and _CLUSTER.fullmatch(name)
        and tier.is_directory(f"{name}/{broker}")
    ]
    if len(clusters) != 1:
        which = f"several clusters have one: {', '.join(clusters[:3])}" if clusters else "none is"
        expected = f"must have a folder HASH_CLUSTER/{broker}, of the store's broker: {which} there"
        raise InvalidOptionError(STORE_PATH_TIERED, path, expected)
    return tier.at(f"{clusters[0]}/{broker}")


def segments(folder: Folder) -> MappedFileQueue:
    """Return the segments in a folder; none if it is not there.

    Names that are no segment's are left out. Raises UnsafePathError, CorruptStoreError.
    """
    try:
        entries = folder.entries()
    except (FileNotFoundError, NotADirectoryError):
        return MappedFileQueue(())
    files: list[MappedFile] = []
    for entry in entries:
        if not _SEGMENT.fullmatch(entry.name) or not _is_hashed(entry.name):
            continue
        if entry.is_directory:
            raise UnsafePathError(f"{folder}/{entry.name}", "a directory named like a segment")
        file = mapped_file(folder, entry.name[_HASH_DIGITS:], entry.size)
        if file is not None:
            files.append(replace(file, path=entry.name))
        if len(files) > _MOST_SEGMENTS:
            raise CorruptStoreError(str(folder), 0, f"more than {_MOST_SEGMENTS} segments")
    files.sort(key=lambda file: file.start)
    ends = [min(a.end, b.start) for a, b in pairwise(files)] + [file.end for file in files[-1:]]
    sized = zip(files, ends, strict=True)
    return MappedFileQueue([replace(file, size=end - file.start) for file, end in sized])


def _is_hashed(name: str) -> bool:
    """Tell whether a name begins with the hash of its base offset."""
    text = str(int(name[_HASH_DIGITS:])).encode()
    digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
    return name.startswith(digest[:_HASH_DIGITS])


@dataclass(frozen=True)
class TierQueue(ConsumeQueue):
    """The units of one queue that tiered storage has; their places are those of its own log."""

    broker: Folder = field(kw_only=True)
    """The broker's folder in the tier."""

    @property
    def folder(self) -> Folder:
        """The queue's folder in the tier."""
        return self.broker.at(f"{self.topic}/{self.queue_id}")

    @property
    def path(self) -> str:
        """The folder of units, as errors name it."""
        return f"{self.folder}/{TIER_UNITS}"

    @cached_property
    def files(self) -> MappedFileQueue:
        """The segments of units, listed once."""
        return segments(self.folder.at(TIER_UNITS))

    @cached_property
    def log_files(self) -> MappedFileQueue:
        """The segments of records, listed once, before those of units: none is behind them."""
        return segments(self.folder.at(TIER_LOG))

    @cached_property
    def span(self) -> Span:
        """The queue offsets [low, high) of what it has. Raises CorruptStoreError."""
        units = self.files  # Units first: a broker writes records before their units.
        if not units.files or not self.log_files.files:
            return 0, 0
        return self.look(self.log_files.low)[:2]

    def read(self, start: int, end: int) -> Structs:
        """Return the units of queue offsets [start, end), big-endian as on disk.

        Raises CorruptStoreError where a segment is missing or short, FileNotFoundError where it
        expired.
        """
        try:
            return super().read(start, end)
        except CorruptStoreError as error:
            reason = "a segment of tiered storage is missing here, or cut short"
            raise CorruptStoreError(error.path, error.position, reason) from error
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path}: queue offset {start} expired") from None


@dataclass(frozen=True)
class JoinedQueue(Units):
    """The units of a queue: before ``edge`` those of the tier, from there on the local ones."""

    tier: TierQueue
    local: Units
    edge: int

    @property
    def path(self) -> str:
        """The local queue, as errors name it."""
        return self.local.path

    @property
    def room_low(self) -> int:
        """The first queue offset that there is room for."""
        return self.tier.room_low

    def look(self, commit_log_low: int) -> QueueExtent:
        """Return the bounds, of both."""
        extent = self.local.look(commit_log_low)
        return QueueExtent(self.tier.span[0], extent.high, extent.end)

    def read(self, start: int, end: int) -> Structs:
        """Return the units of queue offsets [start, end). Raises as those of both."""
        parts = []
        if start < self.edge:
            parts.append(self.tier.read(start, min(end, self.edge)))
        if end > self.edge:
            parts.append(self.local.read(max(start, self.edge), end))
        return np.concatenate(parts) if parts else np.empty(0, UNIT)

    def before_hole(self, start: int, end: int) -> Structs:
        """Return the first units of [start, end), of the one that has the first."""
        if start < self.edge:
            return self.tier.before_hole(start, min(end, self.edge))
        return self.local.before_hole(start, end)

    def next_start(self, queue_offset: int) -> int | None:
        """Return where units go on behind a hole at ``queue_offset``; None if nowhere."""
        start = self.tier.next_start(queue_offset) if queue_offset < self.edge else None
        if start is not None and start < self.edge:
            return start
        return self.edge if queue_offset < self.edge else self.local.next_start(queue_offset)

    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield all units, at most ``most`` at a time, with the queue offset of the first."""
        for start, units in self.tier.chunks(most, min(end, self.edge)):
            if start < self.edge:
                yield start, units[: self.edge - start]
        for start, units in self.local.chunks(most, end):
            if start + len(units) > self.edge:
                skipped = max(0, self.edge - start)
                yield start + skipped, units[skipped:]

    def file_ranges(self) -> list[Span]:
        """Return the queue offsets [start, end) that each file has room for, of both."""
        before = [(low, min(high, self.edge)) for low, high in self.tier.file_ranges()]
        behind = [(max(low, self.edge), high) for low, high in self.local.file_ranges()]
        return [(low, high) for low, high in (*before, *behind) if low < high]

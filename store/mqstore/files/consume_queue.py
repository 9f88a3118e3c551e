"""The ConsumeQueue of one (topic, queueId), addressed by queue offset."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.consume_queue_ext import ConsumeQueueExt, is_address
from mqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.safe_open import list_directory
from mqstore.format import names
from mqstore.format.consume_queue import FILLER_SIZE, UNIT

Units: TypeAlias = NDArray[np.void]

MOST_TOPICS = 100_000
MOST_QUEUES = 1_000_000


@dataclass(frozen=True)
class ConsumeQueue:
    """Reads units of the queue; never writes. Safe beside a live broker, which only appends.

    Files are listed once, when first needed; what a broker adds later is not seen.
    """

    root: str
    topic: str
    queue_id: int

    @property
    def path(self) -> str:
        """The queue's directory below the root."""
        return f"{names.CONSUME_QUEUE}/{self.topic}/{self.queue_id}"

    @cached_property
    def files(self) -> MappedFileQueue:
        """The queue's files; none if there is no such directory."""
        try:
            return MappedFileQueue.list([(self.root, self.path)])
        except (FileNotFoundError, NotADirectoryError):
            return MappedFileQueue(())

    def bounds(self, commit_log_low: int) -> tuple[int, int]:
        """Return (low, high): the first queue offset whose record is held, and the next to come.

        Units whose records lie before ``commit_log_low`` have expired. Both edges bisect: about
        18 small reads a file, whatever its size.
        Reference: ConsumeQueue#correctMinOffset, #getMaxOffsetInQueue.
        """
        high = self._high()
        files = [file for file in self.files.files if file.start // UNIT.itemsize < high]
        for file in files:
            base = file.start // UNIT.itemsize
            count = min(file.size // UNIT.itemsize, high - base)
            live = _Edge(file, lambda u: _is_live(u, commit_log_low))
            if count and live(count - 1):
                return base + live.first(count), high
        return high, high

    def read(self, start: int, end: int) -> Units:
        """Return the units of queue offsets [start, end), big-endian as on disk.

        A tags code that is an address is given as what the extension has there, if it has.
        Raises CorruptStoreError where a file of the range is missing or short.
        """
        position, stop = start * UNIT.itemsize, end * UNIT.itemsize
        parts = []
        while position < stop:
            data = self.files.read(position, stop - position)
            data = data[: len(data) // UNIT.itemsize * UNIT.itemsize]
            if not data:
                file = self.files.find(position)
                name = file.name if file else f"{self.root}/{self.path}"
                raise CorruptStoreError(name, position, "ConsumeQueue file missing or cut short")
            parts.append(data)
            position += len(data)
        return self._extended(np.frombuffer(b"".join(parts), UNIT))

    def first(self, low: int, high: int, holds: Callable[[np.void], bool]) -> int:
        """Return the first queue offset in [low, high) whose unit ``holds``; ``high`` if none.

        Bisects: the condition is false before that place and true from there on. Raises as
        ``read`` does.
        """

        def test(queue_offset: int) -> bool:
            return holds(self.read(queue_offset, queue_offset + 1)[0])

        return low + bisect_left(range(low, high), True, key=test)

    def first_behind(self, low: int, high: int, physical_offset: int) -> int:
        """Return the first queue offset in [low, high) whose record is not before that place."""
        return self.first(low, high, lambda unit: int(unit["physical_offset"]) >= physical_offset)

    def next_file_start(self, queue_offset: int) -> int | None:
        """Return the first queue offset of the first file after ``queue_offset``, or None."""
        starts = (file.start // UNIT.itemsize for file in self.files.files)
        return next((start for start in starts if start > queue_offset), None)

    def _extended(self, units: Units) -> Units:
        rows = np.flatnonzero(is_address(units["tags_code"]))
        if not len(rows):
            return units
        units = units.copy()
        addresses = units["tags_code"][rows].astype(np.int64)
        units["tags_code"][rows] = self._extension.tags_codes(addresses)
        return units

    @cached_property
    def _extension(self) -> ConsumeQueueExt:
        return ConsumeQueueExt(self.root, self.topic, self.queue_id)

    def _high(self) -> int:
        # Sizes run filler* unit* zero*: the first zero of the last file that has a unit.
        for file in reversed(self.files.files):
            written = _Edge(file, lambda unit: int(unit["size"]) == 0)
            count = written.first(file.size // UNIT.itemsize)
            if count:
                return file.start // UNIT.itemsize + count
        return self.files.low // UNIT.itemsize


class _Edge:
    """Bisects one file for the first unit where a condition, false before it, holds."""

    def __init__(self, file: MappedFile, holds: Callable[[np.void], bool]) -> None:
        self._file = file
        self._holds = holds

    def __call__(self, index: int) -> bool:
        fd = self._file.open()
        try:
            return self._test(fd, index)
        finally:
            os.close(fd)

    def first(self, count: int) -> int:
        fd = self._file.open()
        try:
            return bisect_left(range(count), True, key=lambda index: self._test(fd, index))
        finally:
            os.close(fd)

    def _test(self, fd: int, index: int) -> bool:
        data = os.pread(fd, UNIT.itemsize, index * UNIT.itemsize)
        if len(data) < UNIT.itemsize:  # The file shrank since it was listed.
            data = bytes(UNIT.itemsize)
        return self._holds(np.frombuffer(data, UNIT)[0])


def _is_live(unit: np.void, commit_log_low: int) -> bool:
    return int(unit["size"]) != FILLER_SIZE and int(unit["physical_offset"]) >= commit_log_low


def list_queues(root: str) -> list[tuple[str, int]]:
    """Return every (topic, queueId) that has a directory in consumequeue/, sorted.

    Directories whose name is no topic's or no queue id's are the broker's to ignore, and ours.
    Raises UnsupportedStoreError for more than 100,000 topics or a million queues.
    """
    found = []
    for queue in each_queue(root):
        found.append(queue)
        if len(found) > MOST_QUEUES:
            raise UnsupportedStoreError(root, "TOO_LARGE", f"more than {MOST_QUEUES} queues")
    return sorted(found)


def each_queue(root: str) -> Iterator[tuple[str, int]]:
    """Yield what ``list_queues`` returns, topic by topic: for who needs only some of it."""
    topics = [name for name in _directories(root, names.CONSUME_QUEUE) if names.is_topic(name)]
    if len(topics) > MOST_TOPICS:
        raise UnsupportedStoreError(root, "TOO_LARGE", f"more than {MOST_TOPICS} topics")
    for topic in topics:
        ids = map(names.parse_queue_id, _directories(root, f"{names.CONSUME_QUEUE}/{topic}"))
        yield from ((topic, queue_id) for queue_id in ids if queue_id is not None)


def _directories(root: str, path: str) -> list[str]:
    try:
        return [entry.name for entry in list_directory(root, path) if entry.is_directory]
    except (FileNotFoundError, NotADirectoryError):
        return []

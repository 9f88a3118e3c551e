"""The ConsumeQueue of one (topic, queueId), addressed by queue offset."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base.mapped_file_queue import MappedFileQueue, mapped_file
from mqstore.files.base.store_dir import BY_LOG, StoreDir
from mqstore.files.queue.extension import ConsumeQueueExt, is_address
from mqstore.files.queue.unit_blocks import PROBED_UNITS, UnitBlocks, written_units
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.format import names
from mqstore.format.arrays import Mask, Span, Structs, TopicQueue
from mqstore.format.consume_queue import FILLER_SIZE, UNIT
from mqstore.format.message import HARD_RECORD_BYTES

_LISTED_AT_A_TIME: Final = 256
MOST_TOPICS = 100_000
MOST_QUEUES = 1_000_000
_NOT_UTF8 = (
    "the name of this topic's folder is no UTF-8, or longer than 255 bytes: set LC_ALL to the "
    f"locale of the broker that made it, or rename the folder. {BY_LOG}"
)


@dataclass(frozen=True)
class ConsumeQueue(Units):
    """The units of a queue in files of 20 bytes a unit. Safe beside a live broker: it appends only.

    Files are listed once, when first needed; what a broker adds later is not seen.
    """

    @property
    def path(self) -> str:
        """The queue's directory below the root."""
        return f"{names.CONSUME_QUEUE}/{self.topic}/{self.queue_id}"

    only_file: tuple[str, int] | None = field(default=None, init=False, compare=False, repr=False)
    """Name and bytes of its file, if a look at many queues came upon no other and listed it not."""

    @cached_property
    def files(self) -> MappedFileQueue:
        """The queue's files; none if there is no such directory."""
        if self.only_file is None:
            return mapped_files(self)
        file = mapped_file(self.place.folder.at(self.path), *self.only_file)
        return MappedFileQueue(() if file is None else (file,))

    @property
    def file_sizes(self) -> set[int]:
        """The bytes that its files have."""
        if self.only_file is not None:
            return {self.only_file[1]}
        return {file.size for file in self.files.files}

    def know(self, name: str, size: int) -> None:
        """Take the file of that name and size for what listing its files finds."""
        object.__setattr__(self, "only_file", (name, size))

    def look(self, commit_log_low: int) -> QueueExtent:
        """Bisect for both edges: of a short queue one small read tells both."""
        files = [UnitBlocks(file) for file in self.files.files]
        try:
            high = self._high(files)
            for blocks in files:
                count = min(blocks.count, high - blocks.start)
                if count > 0 and blocks.tests(count - 1, lambda u: is_live(u, commit_log_low)):
                    first = blocks.first(count, lambda u: is_live(u, commit_log_low))
                    if blocks.start + count == high:
                        return _look(blocks, first, count)
                    return QueueExtent(blocks.start + first, high, self._end(files, high))
                blocks.close()
            return QueueExtent(high, high)
        finally:
            for blocks in files:
                blocks.close()

    def read(self, start: int, end: int) -> Structs:
        """Return the units of queue offsets [start, end), big-endian as on disk.

        A tags code that is an address is given as what the extension has there, if it has.
        Raises CorruptStoreError where a file of the range is missing or short, FileNotFoundError
        where it expired: a broker deletes files from the oldest on (CleanConsumeQueueService), and
        all of a topic that is deleted.
        """
        position, stop = start * UNIT.itemsize, end * UNIT.itemsize
        parts = []
        while position < stop:
            data = self.files.read(position, stop - position)
            data = data[: len(data) // UNIT.itemsize * UNIT.itemsize]
            if not data:
                if position < self.files.low or not self.files.files:
                    path = f"{self.place.root}/{self.path}"
                    raise FileNotFoundError(f"{path}: queue offset {start} expired")
                file = self.files.find(position)
                name = file.name if file else f"{self.place.root}/{self.path}"
                reason = f"ConsumeQueue file missing or cut short. {BY_LOG}"
                raise CorruptStoreError(name, position, reason)
            parts.append(data)
            position += len(data)
        return self._extended(np.frombuffer(b"".join(parts), UNIT))

    def before_hole(self, start: int, end: int) -> Structs:
        """Return the units of [start, end) in the file of ``start``; none if it cannot be read.

        A range that reaches over a file that is not there begins in one that may be.
        """
        file = self.files.find(start * UNIT.itemsize)
        stop = min(end, file.end // UNIT.itemsize if file else start)
        try:
            return self.read(start, stop)
        except (CorruptStoreError, FileNotFoundError):
            return np.empty(0, UNIT)

    def next_start(self, queue_offset: int) -> int | None:
        """Return the first queue offset of the first file after ``queue_offset``, or None."""
        starts = (file.start // UNIT.itemsize for file in self.files.files)
        return next((start for start in starts if start > queue_offset), None)

    def file_ranges(self) -> list[Span]:
        """Return the queue offsets [start, end) that each file has room for."""
        width, files = UNIT.itemsize, self.files.files
        return [(file.start // width, file.end // width) for file in files]

    @property
    def room_low(self) -> int:
        """The first queue offset that its files have room for."""
        return self.files.low // UNIT.itemsize

    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield the units before ``end``, and behind it those that are not zero.

        At most ``most`` at a time, with the queue offset of the first. Of a file that is cut short
        the rest is left out.
        """
        for file in self.files.files:
            first, stop = file.start // UNIT.itemsize, file.end // UNIT.itemsize
            middle = max(first, min(end, stop))
            for start in range(first, middle, most):
                try:
                    units = self.read(start, min(middle, start + most))
                except CorruptStoreError:
                    break
                yield start, units
            for number, units in written_units(file, middle - first, most):
                yield first + number, units

    def _extended(self, units: Structs) -> Structs:
        rows = np.flatnonzero(is_address(units["tags_code"]))
        if not len(rows):
            return units
        units = units.copy()
        addresses = units["tags_code"][rows].astype(np.int64)
        units["tags_code"][rows] = self._extension.tags_codes(addresses)
        return units

    @cached_property
    def _extension(self) -> ConsumeQueueExt:
        return ConsumeQueueExt(self.place, self.topic, self.queue_id)

    def _high(self, files: "Sequence[UnitBlocks]") -> int:
        # Sizes run filler* unit* zero*: the first zero of the last file that has a unit.
        for blocks in reversed(files):
            count = blocks.first(blocks.count, lambda units: units["size"] == 0)
            if count:
                return blocks.start + count
        return self.files.low // UNIT.itemsize

    def _end(self, files: "Sequence[UnitBlocks]", high: int) -> int:
        blocks = next(blocks for blocks in reversed(files) if blocks.start < high)
        return _record_end(blocks.units(high - 1 - blocks.start, high - blocks.start))


def _look(blocks: UnitBlocks, first: int, end: int) -> QueueExtent:
    """Return the look at a queue that is units [first, end) of one file."""
    low, high = blocks.start + first, blocks.start + end
    if first // PROBED_UNITS != (end - 1) // PROBED_UNITS:
        return QueueExtent(low, high, _record_end(blocks.units(end - 1, end)))
    units = blocks.units(first, end)
    sizes, places = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
    last = _record_end(units[-1:])
    if sizes.min() <= 0 or sizes.max() > HARD_RECORD_BYTES or places.min() < 0:
        return QueueExtent(low, high, last)
    return QueueExtent(low, high, last, int(sizes.sum()), int(places[0]))


def _record_end(unit: Structs) -> int:
    return int(unit["physical_offset"][0]) + int(unit["size"][0])


def is_live(units: Structs, commit_log_low: int) -> Mask:
    """Tell which units in front of a queue's end are of messages that have not expired."""
    # ConsumeQueue#fillPreBlank leaves the place 0: a unit of another place is a damaged one.
    filler = (units["size"] == FILLER_SIZE) & (units["physical_offset"] == 0)
    # No unit in front of the queue's end has the size 0: it is a hole, whose messages may be held.
    live: Mask = ~filler & ((units["physical_offset"] >= commit_log_low) | (units["size"] == 0))
    return live


def mapped_files(queue: Units) -> MappedFileQueue:
    """Return the files in a queue's directory; none if there is no such directory."""
    try:
        return MappedFileQueue.list([queue.place.folder.at(queue.path)])
    except (FileNotFoundError, NotADirectoryError):
        return MappedFileQueue(())


def list_queues(place: StoreDir, folder: str = names.CONSUME_QUEUE) -> list[TopicQueue]:
    """Return every (topic, queueId) that has a directory in that folder, sorted.

    Directories whose name is no queue id's are the broker's to ignore, and ours. Raises
    UnsupportedStoreError for more than 100,000 topics or a million queues, and for a topic's
    directory whose name is no UTF-8: its queues would be missing without a word.
    """
    found = []
    for topic, queue_ids in _by_topic(place, folder, at_once=True):
        found += [(topic, queue_id) for queue_id in queue_ids]
        if len(found) > MOST_QUEUES:
            raise UnsupportedStoreError(place.root, "TOO_LARGE", f"more than {MOST_QUEUES} queues")
    return sorted(found)


def each_queue(place: StoreDir, folder: str = names.CONSUME_QUEUE) -> Iterator[TopicQueue]:
    """Yield what ``list_queues`` returns, topic by topic, for callers that stop early."""
    for topic, queue_ids in _by_topic(place, folder):
        yield from ((topic, queue_id) for queue_id in queue_ids)


def _by_topic(
    place: StoreDir, folder: str, *, at_once: bool = False
) -> Iterator[tuple[str, list[int]]]:
    """Yield each topic with its queueIds; ``at_once`` lists topics side by side if that waits."""
    topics = _directories(place, folder)
    if len(topics) > MOST_TOPICS:
        raise UnsupportedStoreError(place.root, "TOO_LARGE", f"more than {MOST_TOPICS} topics")
    # Of an object store, one listing has them all.
    most = _LISTED_AT_A_TIME if at_once and not place.folder.is_remote else 1
    for first in range(0, len(topics), most):
        some = topics[first : first + most]
        listed = place.folder.each(lambda topic: _directories(place, f"{folder}/{topic}"), some)
        for topic, found in zip(some, listed, strict=True):
            parsed = map(names.parse_queue_id, found)
            queue_ids = [queue_id for queue_id in parsed if queue_id is not None]
            if queue_ids and not names.is_topic(topic):
                path = f"{place.root}/{folder}/{topic}"
                raise UnsupportedStoreError(path, "FOLDER_NAME", _NOT_UTF8)
            yield topic, queue_ids


def _directories(place: StoreDir, path: str) -> list[str]:
    try:
        return [entry.name for entry in place.folder.entries(path) if entry.is_directory]
    except (FileNotFoundError, NotADirectoryError):
        return []

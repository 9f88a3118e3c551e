"""ConsumeQueue units that records imply, and how the units of a queue differ from them.

Reference: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#putMessagePositionInfo,
#multiDispatchLmqQueue; ScheduleMessageService#computeDeliverTimestamp.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mqstore.codec.dispatch import DispatchRecords
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, Structs, TopicQueue
from mqstore.format.consume_queue import EXT_ADDRESS_MAX, FILLER_SIZE, GAP_SIZE, UNIT


@dataclass(frozen=True, slots=True)
class ExpectedUnits:
    """Units that n records imply in one queue, or in several, in log order."""

    queue_offsets: Int64s
    units: Structs
    delayed_from_ms: Int64s
    """Store timestamp of a message that waits for its delivery; 0 for all others."""
    is_second: Mask
    """Whether the record belongs to another queue, and names this one in INNER_MULTI_DISPATCH."""

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def take(self, rows: Int64s | Mask | slice) -> "ExpectedUnits":
        """Return those units only."""
        return ExpectedUnits(
            self.queue_offsets[rows],
            self.units[rows],
            self.delayed_from_ms[rows],
            self.is_second[rows],
        )


@dataclass(frozen=True, slots=True)
class NamedOffsets:
    """n queue offsets, in log order: ``rows``, int64[n], are the records that name them."""

    rows: Int64s
    queue_offsets: Int64s
    physical_offsets: Int64s
    is_second: Mask
    """Whether the record belongs to another queue, and names this one in INNER_MULTI_DISPATCH."""

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def take(self, chosen: Int64s | Mask | slice) -> "NamedOffsets":
        """Return those queue offsets only."""
        return NamedOffsets(
            self.rows[chosen],
            self.queue_offsets[chosen],
            self.physical_offsets[chosen],
            self.is_second[chosen],
        )

    @classmethod
    def joined(cls, parts: Sequence["NamedOffsets"]) -> "NamedOffsets":
        """Return the queue offsets of one part after another; of one part at least."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.queue_offsets for part in parts]),
            np.concatenate([part.physical_offsets for part in parts]),
            np.concatenate([part.is_second for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """Units of several queues: unit i belongs to ``queues[codes[i]]``."""

    queues: list[TopicQueue]
    codes: Int64s
    expected: ExpectedUnits


@dataclass(frozen=True, slots=True)
class UnitDifferences:
    """How units of a queue differ from the expected ones; at most one of the masks is set."""

    misplaced: Mask
    """Another record, or another size."""
    tags_code: Mask
    """Another tagsCode."""
    delivery_time: Mask
    """Another tagsCode, which is a delivery time by the delay levels of some broker."""


def make_units(physical_offsets: Int64s, sizes: Int64s, tags_codes: Int64s) -> Structs:
    """Return units with these fields."""
    units = np.zeros(len(physical_offsets), UNIT)
    units["physical_offset"] = physical_offsets
    units["size"] = sizes
    units["tags_code"] = tags_codes
    return units


def named_offsets(records: DispatchRecords) -> tuple[list[TopicQueue], Int64s, "NamedOffsets"]:
    """Return the queue offsets that records name, in log order, and queues: row i's is codes[i].

    Those in their own queues, and those in light queues that they name besides. The names of the
    queues are those of the records: not all can be a directory's (`is_possible`), and queue
    offsets may be negative.
    """
    rows = np.flatnonzero(records.in_queue)
    found, codes = records.queues_of(rows)
    queues = {queue: number for number, queue in enumerate(found)}
    queue_offsets, is_second = records.queue_offsets[rows], np.zeros(len(rows), np.bool_)
    named = list(records.light_queues())
    if named:
        more = [queues.setdefault(queue, len(queues)) for _, queue, _ in named]
        rows = np.append(rows, [row for row, _, _ in named])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        codes = np.append(codes, more)[order]
        queue_offsets = np.append(queue_offsets, [number for _, _, number in named])[order]
        is_second = np.append(is_second, np.ones(len(named), np.bool_))[order]
    places = records.physical_offsets[rows]
    return list(queues), codes, NamedOffsets(rows, queue_offsets, places, is_second)


def units_of(records: DispatchRecords) -> QueueUnits:
    """Return the units that records imply, in the queues of ``named_offsets``."""
    queues, codes, named = named_offsets(records)
    tags_codes, certain = records.tags_codes
    sizes = records.headers.sizes[named.rows]
    units = make_units(named.physical_offsets, sizes, tags_codes[named.rows])
    delayed_from_ms = np.where(certain, 0, records.store_timestamps_ms)[named.rows]
    expected = ExpectedUnits(named.queue_offsets, units, delayed_from_ms, named.is_second)
    return QueueUnits(queues, codes, expected)


def by_queue(parts: Sequence[QueueUnits]) -> Iterator[tuple[TopicQueue, ExpectedUnits]]:
    """Yield each queue with its units of all the parts, in log order."""
    order, queues = group_by_queue([(part.queues, part.codes) for part in parts])
    expected = [part.expected for part in parts]
    joined = ExpectedUnits(
        np.concatenate([e.queue_offsets for e in expected]),
        join_units([e.units for e in expected]),
        np.concatenate([e.delayed_from_ms for e in expected]),
        np.concatenate([e.is_second for e in expected]),
    ).take(order)
    for queue, rows in queues:
        yield queue, joined.take(rows)


def group_by_queue(
    parts: Sequence[tuple[Sequence[TopicQueue], Int64s]],
) -> tuple[Int64s, list[tuple[TopicQueue, slice]]]:
    """Return the order that puts the rows of each queue together, and where each queue's are.

    A part's row i belongs to queue ``codes[i]`` of the part. Rows of one queue stay in order.
    """
    numbers: dict[TopicQueue, int] = {}
    codes = []
    for queues, local in parts:
        of_part = [numbers.setdefault(queue, len(numbers)) for queue in queues]
        codes.append(np.array(of_part, np.int64)[local])
    joined = np.concatenate(codes)
    ends = np.cumsum(np.bincount(joined, minlength=len(numbers))).tolist()
    slices = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    places = zip(numbers, slices, strict=True)
    return np.argsort(joined, kind="stable"), [(q, s) for q, s in places if s.stop > s.start]


def join_units(parts: Sequence[Structs]) -> Structs:
    """Concatenate units; numpy would give structures the machine's byte order."""
    return np.concatenate([part.view(np.uint8) for part in parts]).view(UNIT)


def compare(found: Structs, expected: ExpectedUnits, *, is_extended: bool) -> UnitDifferences:
    """Compare a queue's units with the expected ones at the same queue offsets.

    With ``is_extended`` a tagsCode may be an address in the queue's extension.
    """
    tags_codes = found["tags_code"].astype(np.int64)
    misplaced = found["physical_offset"] != expected.units["physical_offset"]
    misplaced |= found["size"] != expected.units["size"]
    differs = ~misplaced & (tags_codes != expected.units["tags_code"])
    if is_extended:
        differs &= tags_codes > EXT_ADDRESS_MAX
    # Each broker has its own delay levels, of whole seconds.
    waits_ms = tags_codes - expected.delayed_from_ms
    is_time = (expected.delayed_from_ms > 0) & (waits_ms > 0) & (waits_ms % 1000 == 0)
    return UnitDifferences(misplaced, differs & ~is_time, differs & is_time)


def is_filler(units: Structs) -> Mask:
    """Tell which units stand for queue offsets before a queue's first message."""
    filler: Mask = (units["size"] == FILLER_SIZE) & (units["physical_offset"] == 0)
    return filler


def is_gap(units: Structs) -> Mask:
    """Tell which units stand for queue offsets whose records were lost."""
    gap: Mask = units["size"] == GAP_SIZE
    return gap


def is_possible(queue: TopicQueue) -> bool:
    """Tell whether a queue that a record names can have a directory."""
    topic, queue_id = queue
    return names.is_topic(topic) and 0 <= queue_id <= names.MAX_QUEUE_ID

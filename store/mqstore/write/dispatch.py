"""Turn committed messages into ConsumeQueue units and index keys.

A second pass over the staged tables, without the records: where each record lies is worked out
again, exactly as when it was appended. Units wait in memory until there are many, so that a
queue's file is opened for many units at once.

Reference: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex;
ScheduleMessageService#computeDeliverTimestamp (tagsCode of delayed messages).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.dispatch import deliver_timestamps_ms
from mqstore.codec.patch import patch
from mqstore.derive.queue_units import join_units, make_units
from mqstore.files.index.index_append import IndexKeys
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.txn.segment import SegmentFrame
from mqstore.format.arrays import Bytes, Int64s, Structs, TopicQueue
from mqstore.write.plan import Placed, Placement, sizes_of, starts_of

_HELD_UNITS: Final = 1 << 18  # 5 MiB of units


@dataclass(frozen=True, slots=True)
class AssignedFrame:
    """One frame's messages with all that the commit decides about them."""

    frame: SegmentFrame
    placed: Placed
    queue_offsets: Int64s
    store_timestamps_ms: Int64s
    first_offsets: Int64s
    """Of each queue of the frame: the queue offset of its first message here."""

    def units(self) -> Iterator[tuple[TopicQueue, int, Structs]]:
        """Yield each queue of the frame, its first queue offset here, and its units from there."""
        codes = self.frame.messages["queue"]
        counts = np.bincount(codes, minlength=len(self.frame.queues))
        ends = np.cumsum(counts)
        units = self._all_units()[np.argsort(codes, kind="stable")]
        places = zip(self.first_offsets.tolist(), counts.tolist(), ends.tolist(), strict=True)
        for queue, (first, count, end) in zip(self.frame.queues, places, strict=True):
            if count:
                yield queue, first, units[end - count : end]

    def _all_units(self) -> Structs:
        """Return the ConsumeQueue unit of each message."""
        table = self.frame.messages
        levels = table["delay_level"]
        due = deliver_timestamps_ms(self.store_timestamps_ms, levels)
        tags_codes = np.where(levels > 0, due, table["tags_code"])
        return make_units(self.placed.physical_offsets, table["size"], tags_codes)

    def stored_records(self, host_variant: int) -> Bytes:
        """Return the records as they stand in the log, end to end; the frame's own are changed."""
        sizes = self.frame.messages["size"].astype(np.int64)
        records = self.frame.records
        patch(
            records,
            np.cumsum(sizes) - sizes,
            queue_offsets=self.queue_offsets,
            physical_offsets=self.placed.physical_offsets,
            store_timestamps_ms=self.store_timestamps_ms,
            host_variant=host_variant,
        )
        return records

    def index_keys(self) -> IndexKeys:
        """Return the frame's keys with the place and time of their messages."""
        counts = self.frame.messages["key_count"].astype(np.int64)
        return IndexKeys(
            self.frame.keys,
            np.repeat(self.placed.physical_offsets, counts),
            np.repeat(self.store_timestamps_ms, counts),
        )


class OffsetAssigner:
    """Gives places, queue offsets and store timestamps to frames, in the order of the commit."""

    def __init__(
        self,
        placement: Placement,
        queue_offsets: Mapping[TopicQueue, int],
        store_timestamp_ms: int,
        least_ms: int = 0,
    ) -> None:
        self._least_ms = least_ms
        self._placement = placement
        self._next = dict(queue_offsets)
        self._store_timestamp_ms = store_timestamp_ms

    def assign(self, frame: SegmentFrame) -> AssignedFrame:
        """Return the frame with its places; frames must come in the same order each time."""
        table = frame.messages
        firsts = np.array([self._next.get(queue, 0) for queue in frame.queues], np.int64)
        ends = firsts.copy()
        start = self._placement.place_together(int(table["size"].sum(dtype=np.int64)))
        placed = self._place(frame, start)
        one = AssignedFrame(frame, placed, _number(table, ends), self._moments(table), firsts)
        self._next.update(zip(frame.queues, ends.tolist(), strict=True))
        return one

    def _place(self, frame: SegmentFrame, start: int | None) -> Placed:
        sizes = sizes_of(frame)
        if start is None:
            return self._placement.place(sizes, starts_of(frame))
        return Placed(np.cumsum(sizes) - sizes + start, ())

    def _moments(self, table: Structs) -> Int64s:
        moments = table["store_timestamp_ms"].astype(np.int64)
        moments = np.where(moments > 0, moments, self._store_timestamp_ms)
        return np.maximum(moments, self._least_ms)


def _number(table: Structs, next_offsets: Int64s) -> Int64s:
    """Return each message's queue offset: the queue's next, counted up in log order."""
    codes = table["queue"]
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(next_offsets))
    first = np.cumsum(counts) - counts
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(first - next_offsets, counts)
    next_offsets += counts
    return numbers


def write_units(
    frames: Iterator[AssignedFrame], queues: Mapping[TopicQueue, QueueAppender]
) -> None:
    """Write the units of all messages into their queues."""
    held: dict[TopicQueue, list[tuple[int, Structs]]] = {}
    count = 0
    for one in frames:
        for queue, first, units in one.units():
            held.setdefault(queue, []).append((first, units))
        count += len(one.queue_offsets)
        if count >= _HELD_UNITS:
            _flush(held, queues)
            count = 0
    _flush(held, queues)


def _flush(
    held: dict[TopicQueue, list[tuple[int, Structs]]], queues: Mapping[TopicQueue, QueueAppender]
) -> None:
    for queue, parts in held.items():
        # A queue's units are consecutive and without gaps.
        queues[queue].write(parts[0][0], join_units([units for _, units in parts]))
    held.clear()

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

from mqstore.arrays import Bytes, Int64s, Structs
from mqstore.codec.dispatch import Queue, deliver_timestamps_ms
from mqstore.codec.patch import patch
from mqstore.derive.queue_units import group_by_queue, join_units, make_units
from mqstore.files.index.index_append import IndexKeys
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.txn.segment import SegmentFrame
from mqstore.write.plan import Placed, Placement, sizes_of, starts_of

_HELD_UNITS: Final = 1 << 18  # 5 MiB of units


@dataclass(frozen=True, slots=True)
class AssignedFrame:
    """One frame's messages with all that the commit decides about them."""

    frame: SegmentFrame
    placed: Placed
    queue_offsets: Int64s
    store_timestamps_ms: Int64s

    def units(self) -> Structs:
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
        queue_offsets: Mapping[Queue, int],
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
        placed = self._placement.place(sizes_of(frame), starts_of(frame))
        moments = table["store_timestamp_ms"].astype(np.int64)
        moments = np.where(moments > 0, moments, self._store_timestamp_ms)
        moments = np.maximum(moments, self._least_ms)
        return AssignedFrame(frame, placed, self._number(frame), moments)

    def _number(self, frame: SegmentFrame) -> Int64s:
        """Return each message's queue offset: the queue's next, counted up in log order."""
        codes = frame.messages["queue"]
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(frame.queues))
        first = np.cumsum(counts) - counts
        bases = np.array([self._next.get(queue, 0) for queue in frame.queues], np.int64)
        numbers = np.empty(len(codes), np.int64)
        numbers[order] = np.arange(len(codes)) - np.repeat(first - bases, counts)
        for queue, count in zip(frame.queues, counts.tolist(), strict=True):
            self._next[queue] = self._next.get(queue, 0) + count
        return numbers


def write_units(frames: Iterator[AssignedFrame], queues: Mapping[Queue, QueueAppender]) -> None:
    """Write the units of all messages into their queues."""
    held: list[AssignedFrame] = []
    count = 0
    for one in frames:
        held.append(one)
        count += len(one.queue_offsets)
        if count >= _HELD_UNITS:
            _flush(held, queues)
            held, count = [], 0
    if held:
        _flush(held, queues)


def _flush(held: list[AssignedFrame], queues: Mapping[Queue, QueueAppender]) -> None:
    order, places = group_by_queue([(f.frame.queues, f.frame.messages["queue"]) for f in held])
    units = join_units([one.units() for one in held])[order]
    queue_offsets = np.concatenate([one.queue_offsets for one in held])[order]
    for queue, rows in places:
        # A queue's units are consecutive and without gaps.
        queues[queue].write(int(queue_offsets[rows.start]), units[rows])

"""What a commit will do, counted from the staged files before anything is changed.

Every staged byte is read and checked once here. In memory stays one count for each queue, however
large the job is.

A batch goes where the log ends, unless the room left in that file could not hold it and a blank
record's head after it: then a blank record takes that room and the batch starts the next file.

Reference: CommitLog.DefaultAppendMessageCallback#doAppend (END_FILE_MIN_BLANK_LENGTH): a record
of exactly ``room - 8`` bytes is still written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final

import numpy as np

from mqstore.derive.log_end import LogEnd, next_queue_offset
from mqstore.derive.whole_queues import QueueLook, not_whole
from mqstore.errors import InvalidMessageError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.store import Store
from mqstore.files.txn.errors import CorruptStagingError
from mqstore.files.txn.segment import Segment, SegmentFrame
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.message import MIN_BLANK_BYTES
from mqstore.format.staged import SUFFIX
from mqstore.write.stage.job import Manifest
from mqstore.write.staged_messages import StagedMessages

_MOST_AHEAD_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the CommitLog will end, and what every queue and the index will get.

    ``first`` and ``last`` are where the first and the last record start; −1 if there is none.
    """

    log_start: int
    tail: int
    end: int
    first: int
    last: int
    messages: int
    queue_counts: dict[TopicQueue, int]
    key_count: int
    store_timestamp_ms: int
    """Of messages whose own is not preserved."""
    last_store_timestamp_ms: int
    """Of the last message."""

    def intent_fields(self, place: StoreDir) -> dict[str, Any]:
        """Return the fields of an intent that say where its messages go.

        Raises CorruptStoreError if a queue does not end with a record of its own, or is not whole.
        """
        with Store(place) as store:
            _check_whole(store, [queue for queue, count in self.queue_counts.items() if count])
            queues = tuple(
                (*queue, next_queue_offset(store, *queue, self.tail), count)
                for queue, count in self.queue_counts.items()
                if count
            )
        names_of = (field.name for field in fields(self) if field.name != "queue_counts")
        return {**{name: getattr(self, name) for name in names_of}, "queues": queues}


@dataclass(frozen=True, slots=True)
class Placed:
    """Physical offset of each record, and of the blank records among them."""

    physical_offsets: Int64s
    blanks: tuple[int, ...]


class Placement:
    """Gives places to records in log order, from ``tail`` on. The same records, the same places."""

    def __init__(self, tail: int, file_size: int, log_start: int) -> None:
        """``log_start`` is where any file of the log starts: its name."""
        self.tail = tail
        self._file_size = file_size
        self._log_start = log_start

    def place_together(self, total: int) -> int | None:
        """Return where records of ``total`` bytes start that fit into the file the log ends in.

        They follow each other. None: they do not fit, and have no place yet.
        """
        if total > self._room() - MIN_BLANK_BYTES:
            return None
        self.tail += total
        return self.tail - total

    def place(self, sizes: Int64s, starts_batch: Mask) -> Placed:
        """Return the places of records of those sizes; the first one starts a batch."""
        within = np.cumsum(sizes) - sizes
        here = self.place_together(int(sizes.sum()))
        if here is not None:
            return Placed(within + here, ())
        firsts = np.flatnonzero(starts_batch)
        assert firsts[0] == 0
        batch_sizes = np.add.reduceat(sizes, firsts)
        assert batch_sizes.max() <= self._file_size - MIN_BLANK_BYTES, "a batch fits one file"
        ends = np.cumsum(batch_sizes)
        batches = ends - batch_sizes
        blanks = []
        done = 0
        moved = np.empty(len(firsts), np.int64)
        while done < len(firsts):  # A loop over files, not over batches.
            room = self._room()
            before = int(batches[done])
            fits = int(np.searchsorted(ends, before + room - MIN_BLANK_BYTES, "right"))
            if fits > done:
                moved[done:fits] = batches[done:fits] + (self.tail - before)
                self.tail += int(ends[fits - 1]) - before
                done = fits
            if done < len(firsts):
                blanks.append(self.tail)
                self.tail += self._room()
        shift = np.repeat(moved - batches, np.diff(np.append(firsts, len(sizes))))
        return Placed(within + shift, tuple(blanks))

    def _room(self) -> int:
        return self._file_size - (self.tail - self._log_start) % self._file_size


def plan(
    source: StagedMessages, file_size: int, found: LogEnd, now_ms: int, least_ms: int = 0
) -> Plan:
    """Verify the staged files, and return what to do with them.

    A store timestamp to be preserved becomes ``least_ms`` if it is earlier.

    Raises CorruptStagingError; InvalidMessageError if preserved store timestamps go back, or lie
    more than an hour ahead: a broker's recovery could not trust the checkpoint until then.
    """
    placement = Placement(found.tail, file_size, found.log_start)
    queue_counts: dict[TopicQueue, int] = {}
    messages = key_count = last_kept = 0
    first = last = -1
    newest_ms = found.last_store_timestamp_ms
    for segment, frame in source.verified():
        _check_frame(frame, segment)
        newest_ms = _check_moments(frame, newest_ms, now_ms, least_ms)
        begin, last = _edges(placement, frame)
        first = begin if first < 0 else first
        last_kept = int(frame.messages["store_timestamp_ms"][-1])
        counts = np.bincount(frame.messages["queue"], minlength=len(frame.queues))
        for queue, count in zip(frame.queues, counts.tolist(), strict=True):
            queue_counts[queue] = queue_counts.get(queue, 0) + count
        messages += len(frame.messages)
        key_count += len(frame.keys)
    # A CommitLog's clock never goes back, whatever this machine's does.
    moment = max(now_ms, newest_ms)
    return Plan(
        log_start=found.log_start,
        tail=found.tail,
        end=placement.tail,
        first=first,
        last=last,
        messages=messages,
        queue_counts=queue_counts,
        key_count=key_count,
        store_timestamp_ms=moment,
        last_store_timestamp_ms=max(last_kept, least_ms) if last_kept > 0 else moment,
    )


def _check_whole(store: Store, queues_of: Sequence[TopicQueue]) -> None:
    """Raise CorruptStoreError where a queue lost units: its queue offsets would come twice."""
    queues = [store.queue(*name) for name in queues_of]
    looked = [QueueLook(queue, queue.look(store.log.low)) for queue in queues]
    for error in not_whole(store, looked, beside=0):
        raise error


def segments_of(manifests: Sequence[Manifest]) -> list[Segment]:
    """Return the staged segments, in the order of their partitions.

    Raises CorruptStagingError for a name that mqlog does not give, or a partition that comes twice.
    """
    staged = sorted((m.segment for m in manifests if m.segment), key=lambda s: s.partition)
    for before, after in pairwise(staged):
        if before.partition == after.partition:
            raise CorruptStagingError(f"partition {after.partition} was staged twice")
    for segment in staged:
        if "/" in segment.name or not segment.name.endswith(SUFFIX):
            raise CorruptStagingError(f"{segment.name!r} is not the name of a staged file")
    return staged


def _edges(placement: Placement, frame: SegmentFrame) -> tuple[int, int]:
    """Place the records of a frame; return where the first and the last of them start."""
    total = len(frame.records)
    begin = placement.place_together(total)
    if begin is not None:
        return begin, begin + total - int(frame.messages["size"][-1])
    places = placement.place(sizes_of(frame), starts_of(frame)).physical_offsets
    return int(places[0]), int(places[-1])


def sizes_of(frame: SegmentFrame) -> Int64s:
    """Return the bytes of each record."""
    return frame.messages["size"].astype(np.int64)


def starts_of(frame: SegmentFrame) -> Mask:
    """Tell which messages start a batch."""
    starts: Mask = frame.messages["starts_batch"] != 0
    return starts


def _check_frame(frame: SegmentFrame, segment: Segment) -> None:
    table = frame.messages
    sound = (
        len(table) > 0
        and int(sizes_of(frame).sum()) == len(frame.records)
        and int(table["key_count"].astype(np.int64).sum()) == len(frame.keys)
        and int(table["queue"].min()) >= 0
        and int(table["queue"].max()) < len(frame.queues)
        and int(table["starts_batch"][0]) == 1
        and len(set(frame.queues)) == len(frame.queues)
        and all(names.is_topic(t) and 0 <= q <= names.MAX_QUEUE_ID for t, q in frame.queues)
    )
    if not sound:
        raise CorruptStagingError(f"{segment.name}: the tables of a frame contradict each other")


def _check_moments(frame: SegmentFrame, newest_ms: int, now_ms: int, least_ms: int) -> int:
    """Return the newest store timestamp so far, if those to be preserved never go back."""
    moments = frame.messages["store_timestamp_ms"]
    kept = np.maximum(moments[moments > 0], least_ms)
    if not len(kept):
        return newest_ms
    if int(kept.max()) > max(now_ms, least_ms) + _MOST_AHEAD_MS:
        raise InvalidMessageError(
            f"storeTimestamp {int(kept.max())} ms is more than an hour ahead of this machine's "
            "clock; a broker would not recover the store rightly until then"
        )
    steps = np.diff(np.append(newest_ms, kept))
    if (steps < 0).any():
        late = int(kept[int(np.argmax(steps < 0))])
        raise InvalidMessageError(
            f"storeTimestamp {late} ms is before {newest_ms} ms, the last of the CommitLog: it may "
            "not go back. Write only messages newer than the store's last, or leave timestamps=now"
        )
    return int(kept[-1])

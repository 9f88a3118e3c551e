"""What a commit will do, counted from the staged files before anything is changed.

Every staged byte is read and checked once here. What is kept of a job, however large it is, is
one count for each queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.arrays import Int64s, Mask
from mqstore.derive.log_end import LogEnd
from mqstore.errors import CorruptStagingError, InvalidMessageError
from mqstore.format import names
from mqstore.format.staged import SUFFIX
from mqstore.stage.job import Manifest
from mqstore.txn.segment import Frame, Segment
from mqstore.write.place import Placement
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
    queue_counts: dict[tuple[str, int], int]
    key_count: int
    store_timestamp_ms: int
    """Of messages whose own is not preserved."""
    last_store_timestamp_ms: int
    """Of the last message."""


def plan(
    source: StagedMessages, file_size: int, found: LogEnd, now_ms: int, least_ms: int = 0
) -> Plan:
    """Verify the staged files, and return what to do with them.

    A store timestamp to be preserved becomes ``least_ms`` if it is earlier.

    Raises CorruptStagingError; InvalidMessageError if preserved store timestamps go back, or lie
    more than an hour ahead: a broker's recovery could not trust the checkpoint until then.
    """
    placement = Placement(found.tail, file_size, found.log_start)
    queue_counts: dict[tuple[str, int], int] = {}
    messages = key_count = last_kept = 0
    first = last = -1
    newest_ms = found.last_store_timestamp_ms
    for segment, frame in source.verified():
        _check_frame(frame, segment)
        newest_ms = _check_moments(frame, newest_ms, now_ms, least_ms)
        places = placement.place(sizes_of(frame), starts_of(frame)).physical_offsets
        first = int(places[0]) if first < 0 else first
        last, last_kept = int(places[-1]), int(frame.messages["store_timestamp_ms"][-1])
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


def segments_of(manifests: Sequence[Manifest]) -> list[Segment]:
    """Return the staged segments, in the order of their partitions.

    Raises CorruptStagingError for a name that is none of ours, or a partition that comes twice.
    """
    staged = sorted((m.segment for m in manifests if m.segment), key=lambda s: s.partition)
    for before, after in pairwise(staged):
        if before.partition == after.partition:
            raise CorruptStagingError(f"partition {after.partition} was staged twice")
    for segment in staged:
        if "/" in segment.name or not segment.name.endswith(SUFFIX):
            raise CorruptStagingError(f"{segment.name!r} is not the name of a staged file")
    return staged


def sizes_of(frame: Frame) -> Int64s:
    """Return the bytes of each record."""
    return frame.messages["size"].astype(np.int64)


def starts_of(frame: Frame) -> Mask:
    """Tell which messages start a batch."""
    starts: Mask = frame.messages["starts_batch"] != 0
    return starts


def _check_frame(frame: Frame, segment: Segment) -> None:
    table = frame.messages
    sound = (
        len(table) > 0
        and int(sizes_of(frame).sum()) == len(frame.records)
        and int(table["key_count"].astype(np.int64).sum()) == len(frame.keys)
        and int(table["queue"].min()) >= 0
        and int(table["queue"].max()) < len(frame.queues)
        and int(table["starts_batch"][0]) == 1
        and all(names.is_topic(t) and 0 <= q <= names.MAX_QUEUE_ID for t, q in frame.queues)
    )
    if not sound:
        raise CorruptStagingError(f"{segment.name}: the tables of a frame contradict each other")


def _check_moments(frame: Frame, newest_ms: int, now_ms: int, least_ms: int) -> int:
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

"""The start and end of a read: as an option, and as queue offsets of one queue.

Reference: Spark's KafkaOffsetRangeLimit (intent as a value, resolved later), KafkaOffsetReader.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mqstore.errors import DataLossError, InvalidOptionError
from mqstore.format.arrays import Span
from mqstore.read.capabilities import went_back
from mqstore.read.queues import QueueBounds
from mqstore.read.source import BoundsSource, Snapshot

_LOG = logging.getLogger(__name__)
_SHOWN_QUEUES: Final = 5


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message held."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last message."""


@dataclass(frozen=True, slots=True)
class Last:
    """``count`` messages before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class At:
    """A queue offset, given as a number."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first message whose storeTimestamp is at or after ``ms`` (epoch).

    Where there is none: the end of the queue, or an error if ``must_exist``, which names the
    ``option`` that asked for it.
    """

    ms: int
    must_exist: bool = False
    option: str = "startingOffsetsByTimestamp"


Position: TypeAlias = Earliest | Latest | Last | At | AtTimestamp


def resolve(
    source: BoundsSource,
    snapshot: Snapshot,
    ask: Callable[[QueueBounds], tuple[Position, Position]],
    *,
    fail_on_data_loss: bool = True,
) -> list[tuple[QueueBounds, int, int]]:
    """Return (queue, start, end) for every queue of the snapshot: the offsets to read, half-open.

    ``ask`` gives the start and the end wanted of a queue; ``source`` is open at the snapshot's
    origin. Raises DataLossError for a queue offset that is not held (or warns and takes what is
    left), InvalidOptionError where a start lies behind its end or a timestamp that must be found
    is not.
    """
    asked = [(queue, ask(queue)) for queue in snapshot.queues]
    timed = [(q, p.ms) for q, wanted in asked for p in wanted if isinstance(p, AtTimestamp)]
    _warn_of_clock(source, snapshot, list(dict.fromkeys(queue for queue, _ in timed)))
    found = iter(source.first_at([q for q, _ in timed], [ms for _, ms in timed]))
    resolved = []
    for queue, (wanted_start, wanted_end) in asked:
        start = _place(queue, wanted_start, found)
        end = _place(queue, wanted_end, found)
        _check_order(queue, wanted_start, wanted_end, start=start, end=end)
        start, end = _held(queue, start, end, fail_on_data_loss=fail_on_data_loss)
        resolved.append((queue, start, end))
    return resolved


def _warn_of_clock(source: BoundsSource, snapshot: Snapshot, queues: Sequence[QueueBounds]) -> None:
    """Log a warning that names the queues in which a time is no place."""
    known = zip(queues, went_back(source, queues), strict=True)
    named = [f"{queue.topic}/{queue.queue_id}" for queue, is_back in known if is_back]
    if named:
        _LOG.warning(
            "%s: storeTimestamp goes back within %s (%d queues in all): the broker's clock was set "
            "back. Messages on the other side of a start or an end by time are left out; a filter "
            "on storeTimestamp finds them",
            snapshot.origin.name,
            ", ".join(named[:_SHOWN_QUEUES]),
            len(named),
        )


def _place(queue: QueueBounds, position: Position, found: Iterator[int]) -> int:
    """Return the queue offset; ``found`` has those of the timestamps, in the order asked."""
    match position:
        case Earliest():
            return queue.low
        case Latest():
            return queue.high
        case Last(count):
            return max(queue.low, queue.high - count)
        case At(queue_offset):
            return queue_offset
        case AtTimestamp(ms, must_exist, option):
            first = next(found)
            if must_exist and first == queue.high:
                advice = (
                    f"queue {queue.topic}/{queue.queue_id} has no message at or after it; set "
                    "startingOffsetsByTimestampStrategy=latest to start at its end"
                )
                raise InvalidOptionError(option, ms, advice)
            return first


def _check_order(
    queue: QueueBounds, first: Position, last: Position, *, start: int, end: int
) -> None:
    if start > end and isinstance(first, At) and isinstance(last, At):
        advice = (
            f"queue {queue.topic}/{queue.queue_id} would start at {start} and end before it, "
            f"at {end}"
        )
        raise InvalidOptionError("startingOffsets", start, advice)


class _InTierError(DataLossError):
    """The messages are in tiered storage, which was not named."""

    text = (
        "{queue}: queue offsets [{start}, {end}) were requested, the local log holds "
        "[{low}, {high}). The broker serves what lies before it from its tiered storage: name that "
        "in storePathTiered, or set failOnDataLoss=false to read the messages that the local log "
        "holds"
    )


def _held(queue: QueueBounds, start: int, end: int, *, fail_on_data_loss: bool) -> Span:
    held_start = min(max(start, queue.low), queue.high)
    held_end = min(max(end, queue.low), queue.high)
    if (held_start, held_end) != (start, end):
        name = f"{queue.topic}/{queue.queue_id}"
        is_tiered = queue.tier_low is not None and queue.tier_low < queue.low and start < queue.low
        kind = _InTierError if is_tiered else DataLossError
        error = kind(name, start=start, end=end, low=queue.low, high=queue.high)
        if fail_on_data_loss:
            raise error
        _LOG.warning("%s", error)
    return held_start, max(held_start, held_end)

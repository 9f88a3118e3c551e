"""Shares the limits of a micro-batch over queues. Pure.

Every queue with something waiting gets a message first, where the limit allows, so that a
small queue never starves beside a large one; the rest goes by what each has. Where the limit
is smaller than the number of queues, ``turn`` says which come first.

Reference: org.apache.spark.sql.kafka010.KafkaMicroBatchStream#rateLimit, #delayBatch. Differs:
there each queue's share is rounded up, so that a batch may pass its limit; here it may not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mqstore.options import grammar
from mqstore.options.option import option

Fitting: TypeAlias = Callable[[int, int, int, int], tuple[int, int]]
"""``fitting(queue, skip, most, room)``: of the messages waiting in that queue, behind the first
``skip``, how many of the next ``most`` have at most ``room`` bytes together, and their bytes."""

_ANY_ROOM: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits of one micro-batch; None is no limit. ``max_delay_ms`` bounds ``min_offsets``."""

    max_offsets: int | None = option("maxOffsetsPerTrigger", grammar.count)
    max_bytes: int | None = option("maxBytesPerTrigger", grammar.size)
    min_offsets: int | None = option("minOffsetsPerTrigger", grammar.count)
    max_delay_ms: int = option("maxTriggerDelay", grammar.duration, 15 * 60_000)

    def is_held_back(self, waiting: int, waited_ms: float) -> bool:
        """Tell whether ``waiting`` messages are too few for a batch, ``waited_ms`` after the last.

        Without anything waiting there is nothing to hold back.
        """
        if self.min_offsets is None:
            return False
        return waiting < self.min_offsets and waited_ms < self.max_delay_ms


def share_count(waiting: Sequence[int], limit: int, turn: int = 0) -> list[int]:
    """Return how many messages to take of each queue: min(limit, all) in total.

    The rest after one each goes in proportion to what each has; what rounding leaves goes to
    the largest remainders.
    """
    if sum(waiting) <= limit:
        return list(waiting)
    taken = [0] * len(waiting)
    for queue in _from_turn(waiting, turn)[:limit]:
        taken[queue] = 1
    left = limit - sum(taken)
    rest = [count - one for count, one in zip(waiting, taken, strict=True)]
    total = sum(rest)
    shares = [left * count // total for count in rest]
    remainders = [left * count % total for count in rest]
    over = left - sum(shares)
    largest = sorted(range(len(rest)), key=lambda queue: (-remainders[queue], queue))
    for queue in largest[:over]:
        shares[queue] += 1
    return [one + share for one, share in zip(taken, shares, strict=True)]


def share_bytes(
    waiting: Sequence[int], limit: int, fitting: Fitting, turn: int = 0
) -> tuple[list[int], int]:
    """Return how many messages to take of each queue, and their bytes: at most ``limit`` in all.

    Only if the first message there is alone is larger, it is taken, alone. No queue has a next
    message that would still fit. ``fitting`` looks at little more than what is taken.
    """
    taken, used = [0] * len(waiting), 0
    order = _from_turn(waiting, turn)
    for queue in order:  # One each, as long as they fit.
        _, size = fitting(queue, 0, 1, _ANY_ROOM)
        if used + size <= limit or used == 0:
            taken[queue], used = 1, used + size
        if used >= limit:
            return taken, used
    left, total = limit - used, sum(waiting)
    for rooms in ([left * waiting[queue] // total for queue in order], [left] * len(order)):
        for queue, room in zip(order, rooms, strict=True):
            room_left = min(room, limit - used)
            if room_left > 0:
                most = waiting[queue] - taken[queue]
                count, size = fitting(queue, taken[queue], most, room_left)
                taken[queue], used = taken[queue] + count, used + size
    return taken, used


def _from_turn(waiting: Sequence[int], turn: int) -> list[int]:
    """Return the queues that have something, beginning with another one each turn."""
    filled = [queue for queue, count in enumerate(waiting) if count]
    start = turn % len(filled) if filled else 0
    return filled[start:] + filled[:start]

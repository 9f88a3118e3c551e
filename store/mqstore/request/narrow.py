"""A planned read of messages that becomes a smaller one: what a query's filter can leave of it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from mqstore.read.capabilities import went_back
from mqstore.read.queues import QueueBounds
from mqstore.read.source import QueueSlice
from mqstore.read.tags import SEPARATOR, SUB_ALL, parse_tags
from mqstore.request.plan import ReadPlan

CLOCK_BACK_MS: Final = 300_000
"""How far the clock of a broker may have gone back within a queue without a message being missed.

Store timestamps do not go back within a queue, says RocketMQ; they are the wall clock's. Where
they go back by up to this, a bisection for a time that lies further away finds a place with none
of the messages that are wanted on its other side.
"""


@dataclass(frozen=True, slots=True)
class Left:
    """What can pass a filter: all else of a read cannot.

    ``first_ms`` and ``last_ms`` bound storeTimestamp, epoch ms, both inclusive; None: no bound.
    ``tags`` are the tags; None: any, or none at all.
    """

    slices: tuple[QueueSlice, ...]
    first_ms: int | None = None
    last_ms: int | None = None
    tags: frozenset[str] | None = None


def narrowed(plan: ReadPlan, left: Left) -> ReadPlan:
    """Return a read of no other messages than those that ``left`` tells of, and some around them.

    For a time it opens the places and bisects, otherwise it opens nothing. Tags are taken where
    the read has none of its own. Raises what opening and bisecting raise.
    """
    slices = left.slices
    if left.first_ms is not None or left.last_ms is not None:
        slices = tuple(_stored_in(left))
    options = plan.options
    if left.tags and options.tags in ("", SUB_ALL):
        expression = SEPARATOR.join(sorted(left.tags))
        # Tags that have || in them, or spaces around them, cannot be said.
        if all(tag.strip() == tag and tag not in ("", SUB_ALL) for tag in left.tags):
            found = parse_tags(expression)
            if found is not None and found.tags == left.tags:
                options = replace(options, tags=expression)
    return replace(plan, slices=slices, options=options)


def _stored_in(left: Left) -> Iterator[QueueSlice]:
    """Yield what slices have between the times, and what lies a few minutes around it."""
    for origin, group in groupby(left.slices, key=lambda piece: piece.origin):
        pieces = list(group)
        queues = [QueueBounds(p.topic, p.queue_id, p.start, p.end) for p in pieces]
        starts, ends = [p.start for p in pieces], [p.end for p in pieces]
        with closing(origin.bounds(pieces[0].broker_name)) as source:
            if left.first_ms is not None:
                starts = source.first_at(queues, [left.first_ms - CLOCK_BACK_MS] * len(queues))
            if left.last_ms is not None:
                ends = source.first_at(queues, [left.last_ms + CLOCK_BACK_MS + 1] * len(queues))
            whole = went_back(source, queues)  # Then a time is no place: the filter sees all.
        for piece, start, end, is_whole in zip(pieces, starts, ends, whole, strict=True):
            if is_whole:
                yield piece
            elif start < end:
                yield replace(piece, start=start, end=end, weight=None)

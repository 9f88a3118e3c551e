"""The messages of a topic as they are stored: what ``mqlog cat --follow`` prints."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Final

from mqlog_jobs.output.amounts import several
from mqlog_jobs.output.render import Row
from mqlog_jobs.work.queries import merged, settings_of
from mqstore.errors import shown
from mqstore.format.arrays import TopicQueue
from mqstore.read.capabilities import Tail
from mqstore.read.message_query import MessageQuery, chosen, snapshots_of
from mqstore.read.offsets import Latest, resolve
from mqstore.read.queues import Bounds
from mqstore.read.selection import OpenStores
from mqstore.read.source import QueueSlice

_LOG: Final = logging.getLogger(__name__)


def follow(
    stores: OpenStores,
    query: MessageQuery,
    columns: Sequence[str],
    now_ms: int,
    wait: Callable[[], object],
) -> Iterator[Row]:
    """Yield the messages of a query that are stored from now on, or from its start; for ever.

    Each look's messages come in the order they were stored. ``wait`` is called when a look found
    nothing new. Messages that expired before they were read are named in a warning. Raises as
    ``queries.select``, and StoreReplacedError if a store is not the one it was.
    """
    settings = settings_of(query, columns)
    start = query.ends(now_ms)[0] if query.has_start else Latest()
    # A queue that does not hold the offset of the start is followed from its end.
    ends = [
        {(queue.topic, queue.queue_id): queue.high for queue in snapshot.queues}
        for snapshot in snapshots_of(stores, query.topic)
    ]
    starts = [
        {(queue.topic, queue.queue_id): first for queue, first, _ in found}
        for found in (
            resolve(source, snapshot, lambda _: (start, Latest()))
            for source, snapshot in zip(stores.sources, chosen(stores, query, start), strict=True)
        )
    ]
    places = [_Places(query, end | first) for end, first in zip(ends, starts, strict=True)]
    with ExitStack() as stack:
        tails = [stack.enter_context(closing(tail)) for tail in stores.tails()]
        while True:
            found = [place.new(tail) for place, tail in zip(places, tails, strict=True)]
            if any(found):
                yield from merged(found, settings)
            else:
                wait()


class _Places:
    """How far the queues of one broker are printed: the next queue offset of each."""

    def __init__(self, query: MessageQuery, next_offsets: dict[TopicQueue, int]) -> None:
        self._queue_id = query.queue_id
        self._next = next_offsets

    def new(self, tail: Tail) -> list[QueueSlice]:
        """Return what the broker stored since the last call."""
        bounds: Bounds = tail.look(at_once=True)
        origin, broker_name = tail.snapshot.origin, tail.snapshot.broker_name
        slices = []
        for (topic, queue_id), (low, high) in sorted(bounds.items()):
            if self._queue_id not in (None, queue_id):
                continue
            start = self._next.get((topic, queue_id), low)
            if start < low:
                lost = several(low - start, "message")
                _LOG.warning("%s/%d: %s expired meanwhile", shown(topic), queue_id, lost)
            start = max(start, low)
            if start < high:
                slices.append(QueueSlice(origin, broker_name, topic, queue_id, start, high))
                self._next[topic, queue_id] = high
        return slices

"""The messages of a topic as they are stored: what ``mqlog cat --follow`` prints."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from mqlog_jobs.output.render import Row
from mqlog_jobs.work.queries import merged, settings_of
from mqstore.changes.settings import PLAIN_MESSAGES, ChangeOptions
from mqstore.read.admission import Admission
from mqstore.read.follow import Follower
from mqstore.read.message_query import MessageQuery, chosen, snapshots_of
from mqstore.read.offsets import Latest, resolve
from mqstore.read.progress import Progress
from mqstore.read.selection import OpenStores
from mqstore.read.source import QueueSlice


def follow(
    stores: OpenStores,
    query: MessageQuery,
    columns: Sequence[str],
    now_ms: int,
    wait: Callable[[], object],
    bodies: ChangeOptions = PLAIN_MESSAGES,
) -> Iterator[Row]:
    """Yield the messages of a query that are stored from now on, or from its start; for ever.

    By the Follower of streams, so that queues, topics and brokers that come later are followed from
    their first message. Each look's messages come in the order they were stored. ``wait`` is called
    when a look found nothing new. Messages that expired before they were read are named in a
    warning. Raises as ``queries.select``, and StoreReplacedError if a store is not the one it was.
    """
    settings = settings_of(query, columns, bodies)
    at = _start(stores, query, now_ms)
    tails = stores.tails()
    follower = Follower(tails, Admission(), fail_on_data_loss=False, find=stores.tails_beside)
    with closing(follower):
        while True:
            end = follower.next(at)
            if end == at:
                wait()
                continue
            slices = follower.slices(at, end)
            yield from merged(_by_broker(slices, query.queue_id), settings)
            at = end


def _start(stores: OpenStores, query: MessageQuery, now_ms: int) -> Progress:
    """Return where each queue that is there now is followed from."""
    start = query.ends(now_ms)[0] if query.has_start else Latest()
    # A queue that does not hold the offset of the start is followed from its end.
    ends = {
        (queue.topic, snapshot.broker_name, queue.queue_id): queue.high
        for snapshot in snapshots_of(stores, query.topic)
        for queue in snapshot.queues
    }
    starts = {
        (queue.topic, snapshot.broker_name, queue.queue_id): first
        for source, snapshot in zip(stores.sources, chosen(stores, query, start), strict=True)
        for queue, first, _ in resolve(source, snapshot, lambda _: (start, Latest()))
    }
    return ends | starts


def _by_broker(slices: Sequence[QueueSlice], queue_id: int | None) -> list[list[QueueSlice]]:
    """Return the slices of the wanted queue, None for all, each broker's apart."""
    brokers: dict[str, list[QueueSlice]] = {}
    for piece in slices:
        if queue_id in (None, piece.queue_id):
            brokers.setdefault(piece.broker_name, []).append(piece)
    return list(brokers.values())

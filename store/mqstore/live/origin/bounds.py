"""Asks brokers for the bounds of queues, the first offset at a time, the bytes of a range.

Bounds come from GET_TOPIC_STATS_INFO, one request for all queues of a topic on a broker; the
request for one queue's offset answers 0 for what does not exist. A proxy serves the latter only:
there the queues of the route are what exists. A time is found by bisection:
a 4.9 broker's search by timestamp is wrong among equal timestamps and behind the end.

Reference: AdminBrokerProcessor#getTopicStatsInfo, #queryConsumeQueue;
DefaultMessageStore#getOffsetInQueueByTime; ConsumeQueue#getOffsetInQueueByTime.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mqstore.live.origin.pull import LiveSlice
from mqstore.live.origin.records import headers_of
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import (
    NOT_READABLE,
    denies,
    first_line,
    header_number,
    number,
    refusal,
    rows,
    table,
    text,
    value,
)
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokenAnswerError, RequestRefusedError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import GET_TOPIC_STATS_INFO, QUERY_CONSUME_QUEUE, pull
from mqstore.live.remoting.routes import Route
from mqstore.read.broker_state import LeftOut

_THERE_OR_NOT: Final = frozenset({requests.SUCCESS, requests.TOPIC_NOT_EXIST})
_SAMPLE: Final = 16
"""Entries of the ConsumeQueue at each end of a range whose sizes stand for all."""
_BISECTED_AT_A_TIME: Final = 64
_PROVEN_S: Final = 60.0  # So long it is not asked again whether a queue has any message.
_APART: Final = 4
"""A queue is weighed through a proxy by its first message and the last of so many parts."""
EDGE_REQUESTS: Final = (requests.GET_MIN_OFFSET, requests.GET_MAX_OFFSET)


@dataclass(frozen=True, slots=True)
class LiveBounds:
    """One queue of a broker: it holds queue offsets [low, high).

    ``last_update_ms`` is when its last message was stored, epoch ms; 0 if there is none.
    """

    broker: str
    topic: str
    queue_id: int
    low: int
    high: int
    last_update_ms: int = 0

    @property
    def messages(self) -> int:
        """How many queue offsets it holds."""
        return self.high - self.low


def bounds(
    cluster: Cluster, routes: Iterable[Route], left_out: LeftOut | None = None
) -> list[LiveBounds]:
    """Return the bounds of all readable queues of those routes: a pipeline to each broker.

    In the order of topic, broker, queue. A master that does not have the topic has no queue of it:
    that is noted (Cluster#note_absent). Topics that this user may not see are ``left_out``. Raises
    as Cluster#ask_all, and BrokenAnswerError where a broker reports nothing of a queue that is in
    the route.
    """
    routes = list(routes)
    if cluster.is_proxy:
        return _by_edges(cluster, routes, left_out)
    asked = [(broker, route) for route in routes for broker in sorted(route.queues)]
    is_deniable = left_out is not None
    pairs = [
        (broker, stats_request(route.topic, is_deniable=is_deniable)) for broker, route in asked
    ]
    found: list[LiveBounds] = []
    answers = cluster.ask_all(pairs)
    for (broker, route), (_, request), (answer, address) in zip(asked, pairs, answers, strict=True):
        if left_out is not None and denies(answer):
            left_out(route.topic, refusal(address, request, answer))
            continue
        if answer.code == requests.TOPIC_NOT_EXIST:
            if not cluster.has_master(broker):  # A slave gets topics late.
                raise refusal(address, request, answer)
            cluster.note_absent(broker, route.topic)
            continue
        held = _stats(address, value(address, request, answer))
        for queue_id in range(route.queues[broker]):
            edges = held.get((broker, route.topic, queue_id))
            if edges is None:
                reason = f"reports nothing of queue {queue_id} of {route.topic} of {broker}"
                raise BrokenAnswerError(address, reason)
            found.append(LiveBounds(broker, route.topic, queue_id, *edges))
    found = without_expired(cluster, found)
    return sorted(found, key=lambda queue: (queue.topic, queue.broker, queue.queue_id))


def without_expired(cluster: Cluster, queues: list[LiveBounds]) -> list[LiveBounds]:
    """Return the queues; those empty whose messages have all expired.

    A broker of 4.9 goes on to name them: ConsumeQueue#correctMinOffset leaves the lower bound if no
    entry's record is held. The time of the last one, which is -1 then, shows it, and a pull proves
    it. Reference: AdminBrokerProcessor#getTopicStatsInfo, CommitLog#pickupStoreTimestamp.
    """
    suspects = [n for n, queue in enumerate(queues) if queue.last_update_ms < 0 < queue.messages]
    for first in range(0, len(suspects), _BISECTED_AT_A_TIME):
        some = suspects[first : first + _BISECTED_AT_A_TIME]
        asked = [
            (queues[n].broker, _pull_one(cluster, queues[n], queues[n].high - 1)) for n in some
        ]
        for place, (answer, _) in zip(some, cluster.ask_all(asked), strict=True):
            if answer.code != requests.SUCCESS:
                queue = queues[place]
                queues[place] = replace(queue, low=queue.high)
    return queues


def _by_edges(
    cluster: Cluster, routes: Sequence[Route], left_out: LeftOut | None
) -> list[LiveBounds]:
    """Return the bounds of all queues of those routes by two requests for each."""
    queues = [(route.topic, *queue) for route in routes for queue in route.each()]
    asked = [
        (broker, _edge_request(kind, topic, queue_id, left_out))
        for topic, broker, queue_id in queues
        for kind in EDGE_REQUESTS
    ]
    answers = iter(zip(asked, cluster.ask_all(asked), strict=True))
    found: list[LiveBounds] = []
    refused: set[str] = set()
    for topic, broker, queue_id in queues:
        edges = []
        for (_, request), (answer, address) in (next(answers), next(answers)):
            if left_out is not None and denies(answer):
                if topic not in refused:
                    left_out(topic, refusal(address, request, answer))
                refused.add(topic)
            else:
                edges.append(header_number(address, answer, "offset"))
        if topic not in refused:
            low, high = edges
            if low < 0:
                raise BrokenAnswerError(address, f"a queue that holds [{low}, {high})")
            found.append(LiveBounds(broker, topic, queue_id, low, max(low, high)))
    found = _without_unproven(cluster, [q for q in found if q.topic not in refused])
    return sorted(found, key=lambda queue: (queue.topic, queue.broker, queue.queue_id))


def _without_unproven(cluster: Cluster, queues: list[LiveBounds]) -> list[LiveBounds]:
    """As ``without_expired``: through a proxy, pulls of the last and the first message tell it."""
    now, proven = time.monotonic(), cluster.proven
    open_ = [
        place
        for place, q in enumerate(queues)
        if q.messages and proven.get((q.broker, q.topic, q.queue_id), -math.inf) + _PROVEN_S < now
    ]
    gone = _lacking(cluster, queues, {place: queues[place].high - 1 for place in open_})
    gone = _lacking(cluster, queues, {place: queues[place].low for place in gone})
    found = (queues[place] for place in set(open_) - set(gone))
    proven |= {(queue.broker, queue.topic, queue.queue_id): now for queue in found}
    for place in gone:
        queues[place] = replace(queues[place], low=queues[place].high)
    return queues


def _lacking(
    cluster: Cluster, queues: Sequence[LiveBounds], wanted: Mapping[int, int]
) -> list[int]:
    """Return the places of queues whose broker gives nothing there, and names the same bounds."""
    found, places = [], list(wanted)
    for first in range(0, len(places), _BISECTED_AT_A_TIME):
        some = places[first : first + _BISECTED_AT_A_TIME]
        pulls = [_pull_one(cluster, queues[place], wanted[place]) for place in some]
        asked = [
            (queues[place].broker, replace(one, accepts=one.accepts | {requests.NO_PERMISSION}))
            for place, one in zip(some, pulls, strict=True)
        ]
        for place, (answer, _) in zip(some, cluster.ask_all(asked), strict=True):
            told = answer.fields.get("minOffset"), answer.fields.get("maxOffset")
            is_same = told == (str(queues[place].low), str(queues[place].high))
            if answer.code != requests.SUCCESS and is_same and not denies(answer):
                found.append(place)
    return found


def _edge_request(
    kind: requests.Kind, topic: str, queue_id: int, left_out: LeftOut | None
) -> requests.Request:
    request = kind(topic=topic, queueId=queue_id)
    denial = {requests.NO_PERMISSION} if left_out is not None else set()
    return replace(request, accepts=request.accepts | denial)


def held(
    cluster: Cluster, broker: str, topics: Iterable[str], left_out: LeftOut | None = None
) -> list[LiveBounds]:
    """Return the bounds of all queues of those topics of one broker, readable or not.

    In the order of topic and queue; nothing of a topic that the broker does not have. Topics that
    this user may not see are ``left_out``. Raises as Cluster#ask_all.
    """
    if cluster.is_proxy:
        return _by_edges(cluster, _whole_routes(cluster, broker, topics), left_out)
    asked = [stats_request(topic, is_deniable=left_out is not None) for topic in sorted(topics)]
    found: list[LiveBounds] = []
    answers = cluster.ask_all([(broker, request) for request in asked])
    for request, (answer, address) in zip(asked, answers, strict=True):
        if left_out is not None and denies(answer):
            left_out(request.fields["topic"], refusal(address, request, answer))
        else:
            found += held_of(broker, request, answer, address)
    return without_expired(cluster, found)


def held_of(
    broker: str, request: requests.Request, answer: Frame, address: str
) -> list[LiveBounds]:
    """Return the queues of an answer to ``stats_request``; none of a topic that is not there.

    Raises BrokenAnswerError.
    """
    if answer.code != requests.SUCCESS:
        return []
    of_it = (broker, request.fields["topic"])
    queues = _stats(address, value(address, request, answer)).items()
    found = [LiveBounds(*key, *edges) for key, edges in queues if key[:2] == of_it]
    return sorted(found, key=lambda queue: queue.queue_id)


def _whole_routes(cluster: Cluster, broker: str, topics: Iterable[str]) -> list[Route]:
    """Return routes with all queues that a broker has of those topics, as if all were readable."""
    found = []
    for topic in sorted(topics):
        route = cluster.route(topic)
        if route is not None and broker in route.brokers:
            count = max(route.queues.get(broker, 0), route.write_queues.get(broker, 0))
            found.append(replace(route, queues={broker: count}))
    return found


def first_at(cluster: Cluster, queues: Sequence[LiveBounds], times_ms: Sequence[int]) -> list[int]:
    """Return for each queue its first offset with storeTimestamp >= the time, else its ``high``.

    Bisects queues side by side, with a pull of one message to each a round; times are epoch ms.
    Store timestamps do not go back within a queue. At most 64 messages are held at a time, which
    may be large.
    """
    found: list[int] = []
    for first in range(0, len(queues), _BISECTED_AT_A_TIME):
        some = slice(first, first + _BISECTED_AT_A_TIME)
        found += _bisected(cluster, queues[some], times_ms[some])
    return found


def _bisected(cluster: Cluster, queues: Sequence[LiveBounds], times_ms: Sequence[int]) -> list[int]:
    edges = [[queue.low, queue.high] for queue in queues]
    while open_ := [place for place, (low, high) in enumerate(edges) if low < high]:
        middles = [sum(edges[place]) // 2 for place in open_]
        asked = [
            (queues[place].broker, _pull_one(cluster, queues[place], middle))
            for place, middle in zip(open_, middles, strict=True)
        ]
        answers = cluster.ask_all(asked)
        for place, middle, (answer, address) in zip(open_, middles, answers, strict=True):
            if answer.code != requests.SUCCESS:
                # Retention deleted it meanwhile; or the end went back.
                low = header_number(address, answer, "minOffset")
                edges[place] = _narrowed(edges[place], middle, low)
            elif _stored_ms(address, answer) >= times_ms[place]:
                edges[place][1] = middle
            else:
                edges[place][0] = middle + 1
    return [low for low, _ in edges]


def weigh(cluster: Cluster, slices: Sequence[LiveSlice]) -> list[int]:
    """Return about how many bytes the records of each slice have.

    By the sizes that the ConsumeQueue tells for the first and the last of them; through a proxy,
    by messages that lie evenly between these.
    """
    if cluster.is_proxy:
        return _weighed_by_pulls(cluster, slices)
    asked, owners = [], []
    for place, piece in enumerate(slices):
        first = min(_SAMPLE, max(piece.end - piece.start, 0))
        for index in {piece.start, max(piece.start, piece.end - _SAMPLE)} if first else ():
            owners.append(place)
            request = QUERY_CONSUME_QUEUE(
                topic=piece.topic, queueId=piece.queue_id, index=index, count=first
            )
            asked.append((piece.broker, request))
    totals: dict[int, tuple[int, int]] = {}
    answers = cluster.ask_all(asked)
    for place, (_, request), (answer, address) in zip(owners, asked, answers, strict=True):
        sizes = _sizes(address, value(address, request, answer)) if answer.body else []
        total, count = totals.get(place, (0, 0))
        totals[place] = total + sum(sizes), count + len(sizes)
    return [_scaled(piece, *totals.get(place, (0, 0))) for place, piece in enumerate(slices)]


def _weighed_by_pulls(cluster: Cluster, slices: Sequence[LiveSlice]) -> list[int]:
    group = cluster.settings.consumer_group
    asked, owners = [], []
    for place, piece in enumerate(slices):
        last = piece.end - 1
        for at in {piece.start + (last - piece.start) * n // _APART for n in range(_APART + 1)}:
            if piece.start > last:
                continue
            asked.append((piece.broker, pull(group, (piece.topic, piece.queue_id), at, 1)))
            owners.append(place)
    totals: dict[int, tuple[int, int]] = {}
    for first in range(0, len(asked), _BISECTED_AT_A_TIME):
        some = slice(first, first + _BISECTED_AT_A_TIME)
        for place, (answer, _) in zip(owners[some], cluster.ask_all(asked[some]), strict=True):
            if answer.code == requests.SUCCESS:
                total, count = totals.get(place, (0, 0))
                totals[place] = total + len(answer.body), count + 1
    return [_scaled(piece, *totals.get(place, (0, 0))) for place, piece in enumerate(slices)]


def _scaled(piece: LiveSlice, total: int, count: int) -> int:
    return (piece.end - piece.start) * total // count if count else 0


def _sizes(address: str, found: Any) -> list[int]:
    sizes = [number(address, entry, "physicSize") for entry in rows(address, found, "queueData")]
    return [size for size in sizes if 0 < size < 2**31 - 1]  # No filler in front of a queue.


def denied_pulls(cluster: Cluster, queues: Iterable[LiveBounds]) -> dict[str, RequestRefusedError]:
    """Return the topics of queues whose messages this user may not pull, and the refusals.

    By a pull at the end of one queue of each topic, which gives no message. A topic whose perm has
    no R is none of them: nobody may pull it. Raises as Cluster#ask_all.
    """
    of_topic = {queue.topic: queue for queue in queues}
    asked = []
    for queue in of_topic.values():
        request = _pull_one(cluster, queue, queue.high)
        accepts = request.accepts | {requests.NO_PERMISSION}
        asked.append((queue.broker, replace(request, accepts=accepts)))
    answers = cluster.ask_all(asked)
    return {
        topic: refusal(address, request, answer)
        for topic, (_, request), (answer, address) in zip(of_topic, asked, answers, strict=True)
        if denies(answer) and NOT_READABLE not in first_line(answer)
    }


def stats_request(topic: str, *, is_deniable: bool) -> requests.Request:
    """Return the request for a topic's bounds; ``is_deniable``: a denial is an answer to it."""
    accepts = _THERE_OR_NOT | ({requests.NO_PERMISSION} if is_deniable else set())
    return replace(GET_TOPIC_STATS_INFO(topic=topic), accepts=accepts)


def _stats(address: str, found: Any) -> Mapping[tuple[str, str, int], tuple[int, int, int]]:
    held = {}
    for key, entry in table(address, found, "offsetTable").items():
        queue = dict(key) if isinstance(key, tuple) else {}
        low, high = number(address, entry, "minOffset"), number(address, entry, "maxOffset")
        last = number(address, entry, "lastUpdateTimestamp")
        if low < 0:
            raise BrokenAnswerError(address, f"a queue that holds [{low}, {high})")
        # An empty queue whose messages are gone has its minOffset behind what it ever held.
        names = text(address, queue, "brokerName"), text(address, queue, "topic")
        held[(*names, number(address, queue, "queueId"))] = low, max(low, high), last
    return held


def _pull_one(cluster: Cluster, queue: LiveBounds, queue_offset: int) -> requests.Request:
    group = cluster.settings.consumer_group
    return pull(group, (queue.topic, queue.queue_id), queue_offset, 1)


def _narrowed(edges: list[int], middle: int, low: int) -> list[int]:
    start, end = edges
    if low > middle:
        return [min(low, end), end]
    return [start, middle]


def _stored_ms(address: str, answer: Frame) -> int:
    headers = headers_of(address, answer.body)
    if len(headers) == 0:
        raise BrokenAnswerError(address, "a message was found, but none is in the answer")
    return int(headers.field("store_timestamp_ms")[0])

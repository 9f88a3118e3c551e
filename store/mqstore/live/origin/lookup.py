"""Messages by key and by id, through the IndexFiles and the CommitLogs of brokers.

A broker finds by the hash of a key: what it gives is compared again. One message may have
several of the keys; it comes once.

Reference: org.apache.rocketmq.client.impl.MQAdminImpl#queryMessage, #viewMessage;
QueryMessageProcessor (viewMessageById, queryMessage); MessageDecoder#decodeMessageId.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from mqstore.codec.decode import topics_on_disk
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.properties import PropertyBlocks
from mqstore.format.properties import KEY_SEPARATOR, KEYS, UNIQ_KEY
from mqstore.live.origin.by_place import records_at
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.origin.records import headers_of
from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import RequestRefusedError
from mqstore.live.remoting.routes import Route
from mqstore.read.lookup import offset_of

_FOREVER_MS: Final = 2**63 - 1
_MOST_MESSAGES: Final = 1_000  # of one key on one broker
_BROKERS_MOST: Final = 64  # maxMsgsNumBatch: a broker gives as many, whatever it is asked
# ip, port and physical offset of an IPv4 or IPv6 store host, in hex.


def by_key(cluster: Cluster, routes: Sequence[Route], keys: Sequence[str]) -> list[LiveSlice]:
    """Return a slice for each message of those topics that has one of the keys or unique keys.

    Only the newest of a key come where there are many: see ``search``. Messages that no index
    covers are not found. Raises as Cluster#ask_all.
    """
    return search(cluster, routes, keys)[0]


def search(
    cluster: Cluster, routes: Sequence[Route], keys: Sequence[str]
) -> tuple[list[LiveSlice], set[tuple[str, str]]]:
    """Return as ``by_key``, and each (broker, topic) whose answer lacks some messages of a key.

    A broker gives 64 messages of a key (maxMsgsNumBatch), the newest.
    """
    asked = [
        (
            broker,
            requests.QUERY_MESSAGE(
                topic=route.topic,
                key=key,
                maxNum=_MOST_MESSAGES,
                beginTimestamp=0,
                endTimestamp=_FOREVER_MS,
            ),
        )
        for route in routes
        for broker in sorted(route.queues)
        for key in keys
    ]
    found: set[LiveSlice] = set()
    more: set[tuple[str, str]] = set()
    for (broker, request), (answer, address) in zip(asked, cluster.ask_all(asked), strict=True):
        if answer.code == requests.SUCCESS:
            topic = request.fields["topic"]
            wanted = topic, frozenset((request.fields["key"],))
            headers = headers_of(address, answer.body)
            found |= _slices(broker, headers, wanted)
            if len(headers) >= _BROKERS_MOST:
                more.add((broker, topic))
    return _in_order(found), more


def by_id(cluster: Cluster, routes: Sequence[Route], msg_ids: Sequence[str]) -> list[LiveSlice]:
    """Return a slice for each message of those topics with one of the ids.

    An id is a msgId, which is a unique key, or an offsetMsgId, whose message is asked of every
    broker by its place in the CommitLog. Raises as Cluster#ask_all.
    """
    ids = sorted({text.upper() for text in msg_ids} | set(msg_ids))
    found = set(by_key(cluster, routes, ids))
    brokers: dict[str, set[str]] = {}
    for route in routes:
        for broker in route.queues:
            brokers.setdefault(broker, set()).add(route.topic)
    placed = [place for place in map(offset_of, msg_ids) if place is not None and place < 2**63]
    wanted = {(broker, place): sorted(brokers[broker]) for place in placed for broker in brokers}
    for (broker, _), record in records_at(cluster, wanted, _raise):
        topic = topics_on_disk(record)[0].as_py()
        if topic in brokers[broker]:
            found |= _slices(broker, record, (topic, None))
    return _in_order(found)


def _raise(error: RequestRefusedError) -> None:
    raise error


def _slices(
    broker: str, headers: RecordHeaders, wanted: tuple[str, frozenset[str] | None]
) -> set[LiveSlice]:
    """Return where the records lie that are of the topic and have one of the keys, if any."""
    topic, keys = wanted
    rows = topics_on_disk(headers).to_pylist()
    kept = np.flatnonzero(np.array([name == topic for name in rows], np.bool_))
    headers = headers.take(kept)
    blocks = PropertyBlocks.of(headers)
    columns = zip(
        headers.field("queue_id").tolist(),
        headers.field("queue_offset").tolist(),
        blocks.column(KEYS).to_pylist(),
        blocks.column(UNIQ_KEY).to_pylist(),
        strict=True,
    )
    return {
        LiveSlice(broker, topic, queue_id, queue_offset, queue_offset + 1)
        for queue_id, queue_offset, of_keys, unique in columns
        if keys is None or keys & {*(of_keys or "").split(KEY_SEPARATOR), unique}
    }


def _in_order(found: set[LiveSlice]) -> list[LiveSlice]:
    return sorted(found, key=lambda piece: (piece.topic, piece.broker, piece.queue_id, piece.start))

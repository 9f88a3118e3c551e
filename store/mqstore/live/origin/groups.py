"""Consumer groups as brokers know them: what they committed, and what online ones subscribe to.

GET_ALL_CONSUMER_OFFSET is the request to use: those for one group answer 0 where nothing was
ever committed, if a 4.9 broker gives the answer. A proxy serves the latter only.

Reference: ConsumerOffsetManager (offsetTable), AdminBrokerProcessor
#getAllConsumerOffset, #getConsumerConnectionList; ConsumerConnection, SubscriptionData;
ConsumerProgressSubCommand.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mqstore.format.arrays import TopicQueue
from mqstore.format.config import split_topic_group
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import (
    denies,
    header_number,
    number,
    refusal,
    rows,
    table,
    text,
    value,
)
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.live.remoting.frame import Frame
from mqstore.read.broker_state import LeftOut

_MOST_QUEUES: Final = 1_000_000
_REMOTING_ID: Final = re.compile(r"@\d+#\d+")
_POPS: Final = "CONSUME_POP"
_UNTOLD: Final = ("", "")
"""The key of a table that is not there."""

Committed = Mapping[tuple[str, str], Mapping[int, int]]
"""Next queue offsets of a broker: by (topic, group), by queueId."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What an online group subscribes to in one topic; ``expression_type`` is TAG or SQL92."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class OnlineGroup:
    """A group with consumers connected to a broker; ``model`` is CLUSTERING or BROADCASTING.

    ``is_pulling``: all of them are clients by remoting, by their ids (ClientConfig
    #changeInstanceNameToPID), and none told that it pops. Those by gRPC pop.
    """

    group: str
    clients: int
    model: str
    subscriptions: tuple[Subscription, ...]
    is_pulling: bool = False
    client_ids: frozenset[str] = frozenset()

    def merged(self, other: "OnlineGroup | None") -> "OnlineGroup":
        """Return the group with the consumers that another server has of it: each counts once."""
        if other is None:
            return self
        known = {one.topic for one in self.subscriptions}
        more = tuple(one for one in other.subscriptions if one.topic not in known)
        return OnlineGroup(
            self.group,
            self.clients + other.clients - len(self.client_ids & other.client_ids),
            self.model or other.model,
            tuple(sorted((*self.subscriptions, *more), key=lambda entry: entry.topic)),
            self.is_pulling and other.is_pulling,
            self.client_ids | other.client_ids,
        )


def committed(cluster: Cluster, brokers: Sequence[str]) -> dict[str, Committed]:
    """Return what all groups committed, by broker. Raises as Cluster#ask_all."""
    return _offsets(cluster, brokers, "offsetTable")


def pulled(cluster: Cluster, brokers: Sequence[str]) -> dict[str, Committed | None]:
    """As ``committed``, what groups pulled; None of a broker that does not tell.

    Those of 5.1 to 5.5.0 do, but for 5.3.
    """
    tables = _offsets(cluster, brokers, "pullOffsetTable", is_optional=True)
    return {broker: None if _UNTOLD in by_pair else by_pair for broker, by_pair in tables.items()}


def pulled_by(
    cluster: Cluster, broker: str, pairs: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], dict[int, int]]:
    """Return the next queue offset that each group pulled of a topic, by queueId.

    As consumerProgress has it: at least the committed one. What a broker does not tell, as one of
    4.9, is left out. Raises as Cluster#ask_all.
    """
    pairs = list(pairs)
    asked = [
        (broker, requests.GET_CONSUME_STATS(consumerGroup=group, topic=topic))
        for topic, group in pairs
    ]
    found: dict[tuple[str, str], dict[int, int]] = {}
    for pair, (_, request), (answer, address) in zip(
        pairs, asked, cluster.ask_all(asked), strict=True
    ):
        if answer.code != requests.SUCCESS:
            continue
        told = value(address, request, answer)
        for key, entry in table(address, told, "offsetTable").items():
            queue = dict(key) if isinstance(key, tuple) else {}
            if isinstance(entry, dict) and "pullOffset" in entry:
                queue_id = number(address, queue, "queueId")
                found.setdefault(pair, {})[queue_id] = number(address, entry, "pullOffset")
    return found


def committed_by(
    cluster: Cluster, broker: str, group: str, queues: Iterable[TopicQueue]
) -> dict[TopicQueue, int]:
    """Return the next queue offsets that a group committed in queues of a broker, by queue.

    Queues in which it never did are left out; a 4.9 broker tells 0 of them. Raises as
    Cluster#ask_all.
    """
    queues = list(queues)
    asked = [
        (
            broker,
            requests.QUERY_CONSUMER_OFFSET(
                consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=False
            ),
        )
        for topic, queue_id in queues
    ]
    found = {}
    for queue, (answer, address) in zip(queues, cluster.ask_all(asked), strict=True):
        if answer.code == requests.SUCCESS:
            found[queue] = header_number(address, answer, "offset")
    return found


def _offsets(
    cluster: Cluster, brokers: Sequence[str], name: str, *, is_optional: bool = False
) -> dict[str, Committed]:
    request = requests.GET_ALL_CONSUMER_OFFSET()
    answers = cluster.ask_all([(broker, request) for broker in brokers])
    return {
        broker: cluster.ahead.read(
            broker,
            name,
            answer,
            partial(_read_offsets, address, request, answer, name, is_optional=is_optional),
        )
        for broker, (answer, address) in zip(brokers, answers, strict=True)
    }


def _read_offsets(
    address: str, request: requests.Request, answer: Frame, name: str, *, is_optional: bool
) -> Committed:
    found = value(address, request, answer)
    if is_optional and isinstance(found, dict) and name not in found:
        return {_UNTOLD: {}}
    return _committed(address, found, name)


def online(
    cluster: Cluster,
    brokers: Sequence[str],
    groups: Sequence[str],
    left_out: LeftOut | None = None,
) -> dict[tuple[str, str], OnlineGroup]:
    """Return the online ones of those groups by (broker, group): a pipeline to each broker.

    Groups that this user may not see are ``left_out``; without it, that is AccessDeniedError.
    """
    is_deniable = left_out is not None
    asked = [
        (broker, connections_request(group, is_deniable=is_deniable))
        for broker in brokers
        for group in groups
    ]
    found = {}
    for (broker, request), (answer, address) in zip(asked, cluster.ask_all(asked), strict=True):
        group = request.fields["consumerGroup"]
        if left_out is not None and denies(answer):
            left_out(group, refusal(address, request, answer))
        elif answer.code == requests.SUCCESS:
            found[broker, group] = online_of(address, request, answer)
    return found


def online_of(address: str, request: requests.Request, answer: Frame) -> OnlineGroup:
    """Return the group of an answer to ``connections_request``. Raises BrokenAnswerError."""
    return _online(address, request.fields["consumerGroup"], value(address, request, answer))


def connections_request(group: str, *, is_deniable: bool) -> requests.Request:
    """Return the request for who is connected; ``is_deniable``: a denial is an answer to it."""
    request = requests.GET_CONSUMER_CONNECTION_LIST(consumerGroup=group)
    denial = {requests.NO_PERMISSION} if is_deniable else set()
    return replace(request, accepts=request.accepts | denial)


def _committed(address: str, found: Any, name: str) -> Committed:
    read: dict[tuple[str, str], dict[int, int]] = {}
    count = 0
    for key, queues in table(address, found, name).items():
        if not isinstance(key, str) or "@" not in key or not isinstance(queues, dict):
            raise BrokenAnswerError(address, f"{name} is not by topic@group")
        topic, group = split_topic_group(key)
        positions = {}
        for queue_id in queues:
            positions[_queue_id(address, queue_id)] = number(address, queues, queue_id)
        count += len(positions)
        if count > _MOST_QUEUES:
            raise BrokenAnswerError(address, f"{name} has more than {_MOST_QUEUES} queues")
        if topic:
            read[topic, group] = positions
    return read


def _queue_id(address: str, key: Any) -> int:
    digits = str(key)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise BrokenAnswerError(address, "an offset table names a queue by no number")
    return int(digits)


def _online(address: str, group: str, found: Any) -> OnlineGroup:
    subscriptions = [
        Subscription(
            text(address, entry, "topic"),
            text(address, entry, "subString"),
            str(entry.get("expressionType") or "TAG"),
        )
        for entry in table(address, found, "subscriptionTable").values()
    ]
    connections = rows(address, found, "connectionSet")
    ids = [one.get("clientId") if isinstance(one, dict) else None for one in connections]
    pulls = [isinstance(one, str) and _REMOTING_ID.search(one) is not None for one in ids]
    is_pulling = bool(pulls) and all(pulls) and found.get("consumeType") != _POPS
    model = str(found.get("messageModel") or "")
    ordered = tuple(sorted(subscriptions, key=lambda entry: entry.topic))
    named = frozenset(one for one in ids if isinstance(one, str))
    return OnlineGroup(group, len(connections), model, ordered, is_pulling, named)

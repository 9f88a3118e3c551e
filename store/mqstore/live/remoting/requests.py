"""Requests as declared values: one table of code, header fields and what the answer's body is.

A kind makes requests: ``GET_TOPIC_STATS_INFO(topic="T")``. None of them changes a broker; those
that do are in group_publish.

Reference: org.apache.rocketmq.remoting.protocol.RequestCode, ResponseCode and the
...RequestHeader classes (org.apache.rocketmq.common.protocol in 4.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from mqstore.format.arrays import TopicQueue

JSON_FORMAT: Final = "json"  # as fastjson writes it
PROPERTIES: Final = "properties"  # java.util.Properties' text
RECORDS: Final = "records"  # as in the CommitLog
BYTES: Final = "bytes"  # as in a file of the broker

MAX_MESSAGES: Final = 1_024  # Of a pull: a 4.9 broker reserves memory for as many as are asked for.

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
SYSTEM_BUSY: Final = 2
REQUEST_CODE_NOT_SUPPORTED: Final = 3
SERVICE_NOT_AVAILABLE: Final = 14
NO_PERMISSION: Final = 16
TOPIC_NOT_EXIST: Final = 17
PULL_NOT_FOUND: Final = 19
PULL_RETRY_IMMEDIATELY: Final = 20
PULL_OFFSET_MOVED: Final = 21
QUERY_NOT_FOUND: Final = 22
CONSUMER_NOT_ONLINE: Final = 206
FLOW_CONTROL: Final = 215
GO_AWAY: Final = 1500

BUSY: Final = frozenset({SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, FLOW_CONTROL, GO_AWAY})
"""Refusals before anything was done: the same request may be sent again, later."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its code and its header fields, as texts; and the rights that it takes."""

    name: str
    code: int
    fields: Mapping[str, str]
    answer: str = JSON_FORMAT
    body: bytes = b""
    accepts: frozenset[int] = frozenset({SUCCESS})
    rights: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request: RequestCode, its header fields (all of them are sent), the answer.

    ``answer`` is what the body holds; codes in ``accepts`` are answers, others are refusals.
    ``rights`` are what a user needs, with the names of header fields in braces.
    """

    name: str
    code: int
    fields: tuple[str, ...] = ()
    answer: str = JSON_FORMAT
    accepts: frozenset[int] = field(default=frozenset({SUCCESS}))
    rights: str = ""

    def __call__(self, **values: str | int | bool) -> Request:
        """Return a request with those values; raises TypeError unless they are the fields."""
        if values.keys() != set(self.fields):
            raise TypeError(f"{self.name} has the fields {self.fields}, not {tuple(values)}")
        texts = {name: _text(values[name]) for name in self.fields}
        rights = self.rights.format_map(texts)
        return Request(
            self.name, self.code, texts, self.answer, accepts=self.accepts, rights=rights
        )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# What DefaultAuthorizationContextBuilder (ACL 2.0) and PlainAccessResource (ACL 1.0) want.
SUB_RIGHTS: Final = (
    "SUB on topic {topic} and on group {consumerGroup} (with ACL 2.0 Topic:Sub and Group:Sub)"
)
_GET: Final = "with ACL 2.0 the right Topic:Get on {topic}"
_GET_GROUP: Final = "with ACL 2.0 the right Group:Get on {consumerGroup}"

# To name servers.
GET_ROUTEINFO_BY_TOPIC: Final = Kind(
    "GET_ROUTEINFO_BY_TOPIC",
    105,
    ("topic", "acceptStandardJsonOnly"),
    accepts=frozenset({SUCCESS, TOPIC_NOT_EXIST}),
)
GET_BROKER_CLUSTER_INFO: Final = Kind("GET_BROKER_CLUSTER_INFO", 106)
GET_ALL_TOPIC_LIST: Final = Kind("GET_ALL_TOPIC_LIST_FROM_NAMESERVER", 206)

# To brokers.
PULL_MESSAGE: Final = Kind(
    "PULL_MESSAGE",
    11,
    (
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subscription",
        "subVersion",
        "expressionType",
    ),
    RECORDS,
    frozenset({SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED}),
    SUB_RIGHTS,
)
# Without _UNIQUE_KEY_QUERY: a 4.9 broker leaves it out of what it signs.
QUERY_MESSAGE: Final = Kind(
    "QUERY_MESSAGE",
    12,
    ("topic", "key", "maxNum", "beginTimestamp", "endTimestamp"),
    RECORDS,
    frozenset({SUCCESS, QUERY_NOT_FOUND}),
    _GET,
)
GET_MAX_OFFSET: Final = Kind("GET_MAX_OFFSET", 30, ("topic", "queueId"))
GET_MIN_OFFSET: Final = Kind("GET_MIN_OFFSET", 31, ("topic", "queueId"))
GET_ALL_TOPIC_CONFIG: Final = Kind("GET_ALL_TOPIC_CONFIG", 21)
GET_BROKER_CONFIG: Final = Kind("GET_BROKER_CONFIG", 26, (), PROPERTIES)
GET_BROKER_RUNTIME_INFO: Final = Kind("GET_BROKER_RUNTIME_INFO", 28)
VIEW_MESSAGE_BY_ID: Final = Kind(
    "VIEW_MESSAGE_BY_ID",
    33,
    ("topic", "offset"),
    RECORDS,
    frozenset({SUCCESS, SYSTEM_ERROR, NO_PERMISSION}),
    _GET,
)
GET_ALL_CONSUMER_OFFSET: Final = Kind("GET_ALL_CONSUMER_OFFSET", 43)
GET_ALL_DELAY_OFFSET: Final = Kind("GET_ALL_DELAY_OFFSET", 45)
# 4.x does not know the request, and 5.x without timerWheelEnable has no checkpoint.
GET_TIMER_CHECK_POINT: Final = Kind(
    "GET_TIMER_CHECK_POINT",
    60,
    (),
    BYTES,
    frozenset({SUCCESS, SYSTEM_ERROR, REQUEST_CODE_NOT_SUPPORTED}),
)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = Kind("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", 201)
GET_TOPIC_STATS_INFO: Final = Kind("GET_TOPIC_STATS_INFO", 202, ("topic",), rights=_GET)
GET_CONSUME_STATS: Final = Kind(
    "GET_CONSUME_STATS",
    208,
    ("consumerGroup", "topic"),
    accepts=frozenset({SUCCESS, SYSTEM_ERROR, NO_PERMISSION, TOPIC_NOT_EXIST}),
    rights=_GET_GROUP,
)
GET_CONSUMER_CONNECTION_LIST: Final = Kind(
    "GET_CONSUMER_CONNECTION_LIST",
    203,
    ("consumerGroup",),
    accepts=frozenset({SUCCESS, CONSUMER_NOT_ONLINE}),
    rights=_GET_GROUP,
)
# The broker passes it on to the client, and answers with what that says.
GET_CONSUMER_RUNNING_INFO: Final = Kind(
    "GET_CONSUMER_RUNNING_INFO",
    307,
    ("consumerGroup", "clientId", "jstackEnable"),
    rights=_GET_GROUP,
)
# 4.x does not know the request; a user without the right Cluster:Get may not ask.
GET_ALL_MESSAGE_REQUEST_MODE: Final = Kind(
    "GET_ALL_MESSAGE_REQUEST_MODE",
    402,
    accepts=frozenset({SUCCESS, SYSTEM_ERROR, REQUEST_CODE_NOT_SUPPORTED, NO_PERMISSION}),
)
QUERY_CONSUME_QUEUE: Final = Kind(
    "QUERY_CONSUME_QUEUE", 321, ("topic", "queueId", "index", "count"), rights=_GET
)

# Without the last field a broker answers 0 where nothing was ever committed; 4.9 does so with it.
QUERY_CONSUMER_OFFSET: Final = Kind(
    "QUERY_CONSUMER_OFFSET",
    14,
    ("consumerGroup", "topic", "queueId", "setZeroIfNotFound"),
    accepts=frozenset({SUCCESS, QUERY_NOT_FOUND}),
    rights=SUB_RIGHTS,
)

# PullSysFlag.
SUBSCRIPTION: Final = 4  # The filter comes with the request: else the group must be online.

ALL_TAGS: Final = "*"
TAG_EXPRESSION: Final = "TAG"


def pull(group: str, queue: TopicQueue, start: int, most: int, tags: str = ALL_TAGS) -> Request:
    """Return a pull of at most ``most`` messages of a (topic, queueId) from ``start`` on.

    Nothing is committed and nothing waited for.
    """
    first = _first_pull(group, *queue, tags)
    fields = {**first.fields, "queueOffset": str(start), "maxMsgNums": str(most)}
    return Request(
        first.name, first.code, fields, first.answer, accepts=first.accepts, rights=first.rights
    )


@lru_cache(maxsize=256)
def _first_pull(group: str, topic: str, queue_id: int, tags: str) -> Request:
    return PULL_MESSAGE(
        consumerGroup=group,
        topic=topic,
        queueId=queue_id,
        queueOffset=0,
        maxMsgNums=1,
        sysFlag=SUBSCRIPTION,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription=tags,
        subVersion=0,
        expressionType=TAG_EXPRESSION,
    )

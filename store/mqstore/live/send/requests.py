"""Requests that store messages or make topics, as declared values.

One header serves single messages and batches. Its names have one letter: a producerGroup,
b topic, c defaultTopic, d defaultTopicQueueNums, e queueId, f sysFlag, g bornTimestamp, h flag,
i properties, j reconsumeTimes, k unitMode, m batch, n brokerName. The default topic is empty, so
that no broker makes a topic that it does not have.

Reference: SendMessageRequestHeaderV2, CreateTopicRequestHeader; PermName; TopicFilterType.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from mqstore.format.arrays import Int64s
from mqstore.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, WAIT
from mqstore.live.remoting.requests import Kind, Request
from mqstore.live.remoting.routes import READABLE, WRITABLE

_HEADER_NAMES: Final = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "m", "n")
_RIGHTS: Final = "PUB on the topic {b} (with ACL 2.0 Topic:Pub), whose perm must have a W"
SEND_MESSAGE_V2: Final = Kind("SEND_MESSAGE_V2", 310, _HEADER_NAMES, rights=_RIGHTS)
SEND_BATCH_MESSAGE: Final = Kind("SEND_BATCH_MESSAGE", 320, _HEADER_NAMES, rights=_RIGHTS)
UPDATE_AND_CREATE_TOPIC: Final = Kind(
    "UPDATE_AND_CREATE_TOPIC",
    17,
    (
        "topic",
        "defaultTopic",
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicFilterType",
        "topicSysFlag",
        "order",
    ),
    rights="to be an administrator (with ACL 2.0 Topic:Create on {topic}), for createTopic",
)
_NO_WAIT: Final = f"{WAIT}{chr(NAME_VALUE_SEPARATOR)}false{chr(PROPERTY_SEPARATOR)}"


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A queue of a broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """The messages of one request: a batch, or one message with its ``properties``.

    ``body`` is the batch as ``client_encode`` makes it, or the message's own body. ``may_move``
    tells that any other queue of the topic will do.
    """

    queue: Queue
    count: int
    body: bytes
    sys_flag: int = 0
    born_timestamp_ms: int
    waits: bool = True
    """The broker answers when the messages are as safe as it is configured to make them."""
    flag: int = 0
    properties: str | None = None
    may_move: bool = False
    rows: Int64s | None = field(default=None, compare=False, repr=False)
    """The numbers of its messages among all that are sent, in their order."""


def send_request(group: str, parcel: Parcel) -> Request:
    """Return the request that stores the messages of ``parcel``, for a producer group."""
    is_batch = parcel.properties is None
    kind = SEND_BATCH_MESSAGE if is_batch else SEND_MESSAGE_V2
    # A 4.9 broker gives the properties of a batch's header to each of its messages.
    properties = parcel.properties
    if properties is None:
        properties = "" if parcel.waits else _NO_WAIT
    request = kind(
        a=group,
        b=parcel.queue.topic,
        c="",
        d=0,
        e=parcel.queue.queue_id,
        f=parcel.sys_flag,
        g=parcel.born_timestamp_ms,
        h=parcel.flag,
        i=properties,
        j=0,
        k=False,
        m=is_batch,
        n=parcel.queue.broker,
    )
    return replace(request, name=f"{kind.name} to {parcel.queue}", body=parcel.body)


def create_topic_request(topic: str, queue_nums: int) -> Request:
    """Return the request that gives a broker a topic with so many queues to read and write."""
    return UPDATE_AND_CREATE_TOPIC(
        topic=topic,
        defaultTopic="",
        readQueueNums=queue_nums,
        writeQueueNums=queue_nums,
        perm=READABLE | WRITABLE,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )

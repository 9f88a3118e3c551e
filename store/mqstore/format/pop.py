"""POP of RocketMQ 5: checkpoints and acknowledgements, as brokers write them into their log.

A checkpoint (``ck``) names the messages that one pop gave to a consumer. An acknowledgement
(``ack``) names one of them, ``bAck`` several. All three are messages of the timer topic, whose real
topic is a revive topic, and after the invisible time messages of that revive topic. Their bodies
are JSON:

    ck    {"t": topic, "c": group, "q": queueId, "so": start offset, "d": [differences to it],
           "n": messages, "pt": pop time, "it": invisible time, "bn": broker}, times in ms
    ack   {"t", "c", "q", "so", "pt", "bn" of its checkpoint, "ao": queue offset}
    bAck  the same with "aol": [queue offsets]

A broker of 5.0.0 writes acknowledgements with long names. An old checkpoint without ``d`` has
the messages so, so + 1, … so + n - 1.

Reference: PopCheckPoint, AckMsg, BatchAckMsg, PopAckConstants, KeyBuilder#buildPopRetryTopic;
PopMessageProcessor#genCkUniqueId.
"""

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mqstore.format.names import MAX_QUEUE_ID, RETRY_PREFIX, is_topic

REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""PopAckConstants#REVIVE_TOPIC; behind it comes the name of the broker's cluster."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
POP_TAGS: Final = (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)
MOST_TIMER_MS: Final = 3 * 24 * 3600 * 1000
"""MessageStoreConfig#timerMaxDelaySec: a longer invisible time is refused."""

MAX_POP_BODY_BYTES: Final = 64 * 1024
MAX_POP_MESSAGES: Final = 127
"""Of a checkpoint, whose count is a byte in Java; a pop gives 32 at most."""
_BEYOND: Final = 2**63
_LONG_NAMES: Final = {
    "t": "topic",
    "c": "consumerGroup",
    "q": "queueId",
    "so": "startOffset",
    "pt": "popTime",
    "bn": "brokerName",
    "ao": "ackOffset",
}


class PopKey(NamedTuple):
    """What a checkpoint and its acknowledgements have in common. ``broker`` may be empty."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker: str


class Checkpoint(NamedTuple):
    """A pop: the queue offsets that were given out, invisible for ``invisible_ms``."""

    key: PopKey
    invisible_ms: int
    queue_offsets: tuple[int, ...]


class Acks(NamedTuple):
    """Queue offsets of a checkpoint that were acknowledged."""

    key: PopKey
    queue_offsets: tuple[int, ...]


class KvEntry(NamedTuple):
    """A message that was popped with the KV service, and not acknowledged.

    ``visible_ms`` is pop time + invisible time, ``deliveries`` the pops so far, 0 if not known.
    Reference: PopConsumerRecord.
    """

    visible_ms: int
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pop_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class KvPops:
    """What the KV service of one broker keeps.

    ``entries`` are in any order, and read several times; ``pairs`` are the (topic, group) that it
    has ever named, as far as it still shows, also those with nothing open. ``is_used``: groups
    popped by it, whatever of that is left.
    """

    entries: Iterable[KvEntry] = ()
    pairs: frozenset[tuple[str, str]] = frozenset()
    is_used: bool = False


class OrderInfo(NamedTuple):
    """The one open batch of a queue that a group pops in order.

    ``acknowledged`` and ``visible_ms`` have a value for each of ``queue_offsets``, which ascend.
    Reference: ConsumerOrderInfoManager.OrderInfo.
    """

    queue_offsets: tuple[int, ...]
    acknowledged: tuple[bool, ...]
    visible_ms: tuple[int, ...]
    pop_ms: int


def retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Return the names that the retry topic of a POP group and a topic may have: V1, V2."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def topic_of_retries(group: str, retry: str) -> str | None:
    """Return the topic that a POP group's retry topic belongs to; None: it is none of the group."""
    start = f"{RETRY_PREFIX}{group}"
    name = retry[len(start) + 1 :]
    is_retry = retry.startswith(start) and retry[len(start) : len(start) + 1] in {"_", "+"}
    return name if is_retry and name else None


def parse_checkpoint(body: bytes) -> Checkpoint | None:
    """Return the checkpoint of a body; None if no broker wrote it."""
    return checkpoint_of(_value(body))


def parse_acks(body: bytes) -> Acks | None:
    """Return the acknowledgements of the body of an ``ack`` or a ``bAck``; None as above."""
    return acks_of(_value(body))


def parse_values(bodies: Sequence[bytes]) -> list[Any]:
    """Return the JSON value of each body, None for one that is none: all at once, if all are."""
    if all(0 < len(body) <= MAX_POP_BODY_BYTES for body in bodies):
        # No body knows what stands between two: several values, or a part of one, are found out.
        between = secrets.token_hex(16)
        try:
            found = json.loads(b"[%s]" % (b',"%s",' % between.encode()).join(bodies))
        except (ValueError, RecursionError):
            found = []
        if len(found) == 2 * len(bodies) - 1 and found[1::2] == [between] * (len(bodies) - 1):
            return list(found[::2])
    return [_value(body) for body in bodies]


def checkpoint_of(fields: object) -> Checkpoint | None:
    """Return the checkpoint that a JSON value is; None if no broker wrote it."""
    key = _key(fields) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or key is None:
        return None
    invisible = _below(fields.get("it"), _BEYOND)
    count = _below(fields.get("n"), MAX_POP_MESSAGES + 1)
    if invisible is None or count is None or key.pop_ms + invisible >= _BEYOND:
        return None
    differences = fields.get("d")
    places = _places(list(range(count)) if differences is None else differences, key.start_offset)
    if places is None:
        return None
    return Checkpoint(key, invisible, places[:count])


def acks_of(fields: object) -> Acks | None:
    """Return the acknowledgements that a JSON value is; None if no broker wrote it."""
    key = _key(fields) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or key is None:
        return None
    several = fields.get("aol")
    places = _places([_of(fields, "ao")] if several is None else several, 0)
    return None if places is None else Acks(key, places)


def _value(body: bytes) -> Any:
    if len(body) > MAX_POP_BODY_BYTES:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


_is_topic: Final = lru_cache(maxsize=65_536)(is_topic)


def _key(fields: dict[str, Any]) -> PopKey | None:
    topic, group, broker = _of(fields, "t"), _of(fields, "c"), _of(fields, "bn")
    queue_id, start = _below(_of(fields, "q"), MAX_QUEUE_ID + 1), _below(_of(fields, "so"), _BEYOND)
    pop_ms = _below(_of(fields, "pt"), _BEYOND)
    if not isinstance(topic, str) or not isinstance(group, str):
        return None
    if queue_id is None or start is None or pop_ms is None:
        return None
    if not _is_topic(topic) or not group:
        return None
    name = broker.strip() if isinstance(broker, str) else ""
    return PopKey(topic, group, queue_id, start, pop_ms, name)


def _of(fields: dict[str, Any], name: str) -> Any:
    found = fields.get(name)
    return fields.get(_LONG_NAMES[name]) if found is None else found


def _places(differences: object, start: int) -> tuple[int, ...] | None:
    if not isinstance(differences, list) or len(differences) > MAX_POP_MESSAGES:
        return None
    if not all(type(one) is int and 0 <= start + one < _BEYOND for one in differences):
        return None
    return tuple(start + one for one in differences)


def _below(number: object, end: int) -> int | None:
    return number if type(number) is int and 0 <= number < end else None

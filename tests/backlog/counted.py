"""Backlogs of a test's stores: as mqstore measures them, and counted message by message."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mqstore.backlog import (
    SCHEMA,
    BacklogItem,
    BacklogRequest,
    measure,
    plan,
)
from mqstore.backlog.schema import POP_COUNTS
from mqstore.format.hashing import java_hash
from mqstore.read.directory import take
from support import oracle, strategies
from support.expectations import rows
from support.oracle import Message
from support.stores import Laid

AS_OF_MS = strategies.MILLENNIUM_MS


def measured(
    root: Path, request: BacklogRequest | None = None, *, strict: bool = True
) -> list[dict[str, Any]]:
    """The rows of one store; timestamps in microseconds."""
    request = request or BacklogRequest()
    snapshot = take(root, broker_name="broker-a", strict=strict)
    batch = measure(plan(snapshot, request), request, AS_OF_MS)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    return rows(batch)


def message(tags: str | None = None, **fields: Any) -> Message:
    properties = {"KEYS": "k"} if tags is None else {"TAGS": tags, "KEYS": "k"}
    return Message(properties=oracle.join_properties(properties), **fields)


def brute_force(laid: Laid, request: BacklogRequest) -> Iterator[dict[str, Any]]:
    """The rows of a store, one message at a time."""
    counts: Counter[str] = Counter()
    for m in laid.messages:
        counts[m.topic] = max(counts[m.topic], m.queue_id + 1)
    committed = laid.layout.group_offsets
    pairs = {(group, topic) for topic, group in committed}
    pairs |= {
        (g, t) for g, of_topics in request.subscriptions.items() for t in of_topics if t in counts
    }
    for group, topic in sorted(pairs):
        its = committed.get((topic, group), {})
        for queue_id in sorted({*range(counts[topic]), *its}):
            yield from _brute_queue(laid, request, (group, topic, queue_id), its.get(queue_id))


def _brute_queue(
    laid: Laid, request: BacklogRequest, key: tuple[str, str, int], committed: int | None
) -> Iterator[dict[str, Any]]:
    group, topic, queue_id = key
    held = laid.queues.get((topic, queue_id), [])
    low, high = laid.bounds.get((topic, queue_id), (0, 0))
    consumed = max(committed or 0, 0)
    unconsumed = [m for m in held if m.queue_offset >= consumed]
    expression = _subscription(request.subscriptions.get(group, {}), topic)
    passing = [m for m in unconsumed if _passes(m, expression, request.lag_mode)]
    last = [m for m in held if m.queue_offset == consumed - 1]
    status = (
        "TOPIC_GONE"
        if topic == "Gone"
        else "NEVER_COMMITTED"
        if committed is None
        else "AHEAD"
        if consumed > high
        else "EXPIRED"
        if consumed < low
        else "OK"
    )
    tags: list[str | None] = [None]
    if request.by_tag and unconsumed:
        tags = sorted({m.tags for m in unconsumed}, key=lambda t: (t is None, t or ""))
    for tag in tags:
        every = not request.by_tag
        behind = [m for m in unconsumed if every or m.tags == tag]
        matching = [m for m in passing if every or m.tags == tag]
        first = matching[0].store_timestamp_ms if matching else None
        yield {
            "brokerName": "broker-a",
            "group": group,
            "topic": topic,
            "queueId": queue_id,
            "tag": tag,
            "brokerOffset": high,
            "consumerOffset": committed,
            "minOffset": low,
            "diff": high - consumed,
            "lag": len(behind),
            "expired": max(0, low - consumed),
            "subscription": expression,
            "lagMatching": len(matching),
            "bytesBehind": sum(m.size for m in behind),
            "bytesMatching": sum(m.size for m in matching),
            "firstUnconsumedStoreTimestamp": None if first is None else first * 1000,
            "lagMs": None if first is None else max(0, AS_OF_MS - first),
            "lastConsumedStoreTimestamp": last[0].store_timestamp_ms * 1000 if last else None,
            "status": "LATE" if status == "OK" and _is_late(first, request) else status,
            "asOf": AS_OF_MS * 1000,
            "expressionType": None if expression is None else "TAG",
            "consumers": None,
            "mode": "PULL",
            **dict.fromkeys(POP_COUNTS),
            "isSystem": group.startswith("CID_RMQ_SYS_"),
        }


def _is_late(first_ms: int | None, request: BacklogRequest) -> bool:
    return first_ms is not None and AS_OF_MS - first_ms >= request.late_after_ms


def _subscription(expressions: Mapping[str, str], topic: str) -> str | None:
    otherwise = "*" if topic.startswith("%RETRY%") else expressions.get("*")
    found = expressions.get(topic, otherwise)
    return "*" if found == "" else found


def _passes(m: Message, expression: str | None, lag_mode: str) -> bool:
    if expression in (None, "*") or lag_mode == "offset":
        return True
    wanted = [tag.strip() for tag in (expression or "").split("||")]
    if lag_mode == "hash":
        return oracle.tags_code(m) in [java_hash(tag) for tag in wanted]
    return m.tags in wanted


class ExpiringItems(list[BacklogItem]):
    """Items that are looked at while a broker deletes a file, after the log was listed."""

    looks = 0
    path: Path

    def __getitem__(self, number: Any) -> Any:
        self.looks += 1
        if self.looks == 1:  # Single items are taken when their store is open.
            self.path.unlink()
        return super().__getitem__(number)

"""The backlog against consumerProgress, and against counting message by message."""

import importlib
import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog import (
    SCHEMA,
    BacklogItem,
    BacklogRequest,
    PackedItems,
    measure,
    measure_in_batches,
    plan,
    plan_all,
    split,
)
from mqstore.backlog.tally import NONE, Tally
from mqstore.errors import InvalidOptionError, StoreNotFoundError, UnknownTopicError
from mqstore.format.consume_queue import UNIT
from mqstore.format.hashing import java_hash
from mqstore.read.snapshot import take
from mqstore.read.units import Chunk
from support import goldens, oracle, strategies
from support.expectations import rows
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out

AS_OF_MS = strategies.MILLENNIUM_MS
GOLDEN_TAGS = {"4.9.7": ("CG_H", "HTopic", ["HA", "HB"]), "5.5.0": ("CG_G", "GTopic", ["GA", "GB"])}


def measured(root: Path, request: BacklogRequest | None = None) -> list[dict[str, Any]]:
    """The rows of one store; timestamps in microseconds."""
    request = request or BacklogRequest()
    snapshot = take(root, broker_name="broker-a")
    batch = measure(plan(snapshot, request), request, AS_OF_MS)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    return rows(batch)


def message(tags: str | None = None, **fields: Any) -> Message:
    properties = {"KEYS": "k"} if tags is None else {"TAGS": tags, "KEYS": "k"}
    return Message(properties=oracle.join_properties(properties), **fields)


def take_magics(laid: Laid, count: int) -> None:
    """Make the first messages' records unreadable: their magics are zero."""
    for broken in laid.messages[:count]:
        path, position = laid.file_of(broken)
        data = bytearray(path.read_bytes())
        data[position + 4 : position + 8] = b"\0" * 4
        path.write_bytes(data)


# What the brokers' own tools said.


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_a_golden_backlog_is_what_consumer_progress_printed(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    found = {(r["group"], r["topic"], r["queueId"]): r for r in measured(root)}
    printed = goldens.progress(version)
    assert printed
    for queue, line in printed.items():
        row = found[queue]
        numbers = row["brokerOffset"], max(row["consumerOffset"], 0), row["diff"]
        assert numbers == (line.broker_offset, line.consumer_offset, line.diff), queue
        assert (row["lag"], row["expired"], row["status"]) == (line.diff, 0, "OK")
    others = {group for group, *_ in found} - {group for group, *_ in printed}
    assert others == {"CID_RMQ_SYS_TRANS"}


@pytest.mark.parametrize("version", goldens.VERSIONS)
@pytest.mark.parametrize("lag_mode", ["exact", "hash"])
def test_a_golden_backlog_by_tag_is_a_count_of_what_the_client_decoded(
    version: str, lag_mode: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    group, topic, tags = GOLDEN_TAGS[version]
    asked = BacklogRequest(group, {group: {"*": " || ".join(tags)}}, lag_mode)
    for row in measured(root, asked):
        unconsumed = [
            m
            for m in goldens.expected(version)
            if (m["topic"], m["queueId"]) == (row["topic"], row["queueId"])
            and m["queueOffset"] >= row["consumerOffset"]
        ]
        wanted = [
            m for m in unconsumed if row["topic"] != topic or m["properties"].get("TAGS") in tags
        ]
        assert row["subscription"] == (" || ".join(tags) if row["topic"] == topic else "*")
        assert row["lag"] == len(unconsumed)
        assert row["bytesBehind"] == sum(m["storeSize"] for m in unconsumed)
        assert row["lagMatching"] == len(wanted)
        assert row["bytesMatching"] == sum(m["storeSize"] for m in wanted)
        first = wanted[0]["store"] * 1000 if wanted else None
        assert row["firstUnconsumedStoreTimestamp"] == first


# Message by message.


@dataclass(frozen=True)
class Case:
    messages: list[Message]
    layout: Layout
    request: BacklogRequest


_TAGS = st.sampled_from([None, "A", "B", "Aa", "BB", "AaAa", "BBBB", "AaBB", "标签", "a||b"])
_EXPRESSIONS = st.sampled_from(["*", "", "A", "Aa", "BB || A", "AaBB||BBBB", "a||b", "标签 || x"])
_TOPICS = ("T", "Topic_2", "%RETRY%g1")
_FAR = st.sampled_from([-(2**63), -1, 0, 2**31, 2**63 - 1])


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    found = draw(strategies.messages(topics=("T", "T", *_TOPICS)))
    if draw(st.integers(0, 3)):
        tags = draw(_TAGS)
        properties = {"KEYS": "k"} if tags is None else {"TAGS": tags}
        found = replace(found, properties=oracle.join_properties(properties))
    body = bytes(draw(st.sampled_from([0, 10, 4100, 5000])))
    # Few queues, so that one holds many messages.
    queue_id = draw(st.sampled_from([0, 0, 0, 1]))
    return replace(found, body=body, queue_id=queue_id, sys_flag=found.sys_flag & ~0x701)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    queue_offsets = st.one_of(st.integers(0, 4), st.integers(0, 12), _FAR)
    topics = st.sampled_from((*_TOPICS, "Gone"))
    keys = st.tuples(topics, st.sampled_from(["g1", "g2", "g3"]))
    committed = st.dictionaries(st.integers(0, 2), queue_offsets, max_size=3)
    # One group that surely stands in a queue and says what it wants; others as they come.
    group_offsets = draw(st.dictionaries(keys, committed, max_size=5))
    group_offsets["T", "g1"] = {0: draw(st.integers(0, 6)), **draw(committed)}
    layout = replace(
        draw(strategies.layouts()),
        commit_log_bytes=draw(st.sampled_from([8192, 10_000])),
        expired_files=draw(st.sampled_from([0, 0, 1, 2])),
        group_offsets=group_offsets,
    )
    expressions = st.dictionaries(st.sampled_from(["T", "*", "%RETRY%g1"]), _EXPRESSIONS)
    subscriptions = draw(st.dictionaries(st.sampled_from(["g2", "new"]), expressions))
    for group in subscriptions.keys() - {group for _, group in group_offsets}:
        subscriptions[group]["T"] = draw(_EXPRESSIONS)  # Who never committed has to name a topic.
    subscriptions["g1"] = {"T": draw(_EXPRESSIONS), **draw(expressions)}
    request = BacklogRequest(
        None,
        subscriptions,
        draw(st.sampled_from(["exact", "exact", "hash", "offset"])),
        draw(st.booleans()),
    )
    # Every topic is there, so that a subscription names none that is not.
    known = [Message(topic=topic) for topic in _TOPICS]
    return Case(known + draw(st.lists(_messages(), min_size=5, max_size=40)), layout, request)


@given(case=_cases())
def test_every_column_is_a_count_message_by_message(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    last = oracle_high(case)
    layout = replace(case.layout, expired_files=min(case.layout.expired_files, last))
    laid = lay_out(tmp_path_factory.mktemp("store"), case.messages, layout)
    assert measured(laid.root, case.request) == list(brute_force(laid, case.request))


def oracle_high(case: Case) -> int:
    """How many CommitLog files may expire: never the last."""
    size = sum(m.size + 8 for m in case.messages)
    return max(0, size // case.layout.commit_log_bytes - 1)


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
            "status": status,
            "asOf": AS_OF_MS * 1000,
            "expressionType": None if expression is None else "TAG",
        }


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


# One rule at a time.


def test_colliding_tags_are_told_apart_by_the_string_and_not_by_the_hash(store: MakeStore) -> None:
    laid = store(
        [message(tag, body=bytes(size)) for tag in ("Aa", "BB", "C", None) for size in (1, 5000)],
        Layout(commit_log_bytes=32_768, group_offsets={("T", "g"): {0: 0}}),
    )
    counts = {}
    for mode in ("exact", "hash", "offset"):
        (row,) = measured(
            laid.root, BacklogRequest(subscriptions={"g": {"T": "BB"}}, lag_mode=mode)
        )
        counts[mode] = row["lag"], row["lagMatching"]
    assert counts == {"exact": (8, 2), "hash": (8, 4), "offset": (8, 8)}


def test_a_tag_with_the_hash_of_no_tag_is_not_an_untagged_message(store: MakeStore) -> None:
    zero = "f5a5a608"
    assert java_hash(zero) == 0
    laid = store([message(zero), message(None)], Layout(group_offsets={("T", "g"): {0: 0}}))
    (row,) = measured(laid.root, BacklogRequest(subscriptions={"g": {"T": zero}}))
    assert (row["lag"], row["lagMatching"]) == (2, 1)


def test_the_schedule_topic_is_matched_by_the_string_alone(store: MakeStore) -> None:
    laid = store(
        [
            message(tag, topic=oracle.SCHEDULE_TOPIC, store_timestamp_ms=time)
            for tag, time in (("A", 1), ("B", 2), ("A", 1_700_000_000_000))
        ],
        Layout(group_offsets={(oracle.SCHEDULE_TOPIC, "g"): {0: 0}}),
    )
    asked = BacklogRequest(subscriptions={"g": {oracle.SCHEDULE_TOPIC: "A"}})
    (row,) = measured(laid.root, asked)
    assert (row["lag"], row["lagMatching"]) == (3, 2)


@pytest.mark.parametrize(
    ("committed", "status", "diff", "lag"),
    [
        (0, "OK", 3, 3),
        (2, "OK", 1, 1),
        (3, "OK", 0, 0),
        (-1, "OK", 3, 3),
        (-(2**63), "OK", 3, 3),
        (4, "AHEAD", -1, 0),
        (2**63 - 1, "AHEAD", 4 - 2**63, 0),
    ],
)
def test_any_committed_offset_is_reported_as_it_is(
    store: MakeStore, committed: int, status: str, diff: int, lag: int
) -> None:
    laid = store([message()] * 3, Layout(group_offsets={("T", "g"): {0: committed}}))
    (row,) = measured(laid.root)
    assert row["consumerOffset"] == committed
    assert (row["status"], row["diff"], row["lag"], row["expired"]) == (status, diff, lag, 0)


def test_a_group_that_a_subscription_names_has_rows_before_it_commits(store: MakeStore) -> None:
    laid = store([message("A"), message("B", queue_id=1)])
    assert measured(laid.root) == []
    found = measured(laid.root, BacklogRequest(subscriptions={"new": {"T": "A"}}))
    assert [(r["status"], r["consumerOffset"], r["lag"], r["lagMatching"]) for r in found] == [
        ("NEVER_COMMITTED", None, 1, 1),
        ("NEVER_COMMITTED", None, 1, 0),
    ]


def test_a_retry_topic_is_taken_whole(store: MakeStore) -> None:
    laid = store(
        [message("B"), message("B", topic="%RETRY%g")],
        Layout(group_offsets={("T", "g"): {0: 0}, ("%RETRY%g", "g"): {0: 0}}),
    )
    found = measured(laid.root, BacklogRequest(subscriptions={"g": {"*": "A"}}))
    assert [(r["topic"], r["subscription"], r["lagMatching"]) for r in found] == [
        ("%RETRY%g", "*", 1),
        ("T", "A", 0),
    ]


def test_a_topic_without_messages_is_not_a_topic_that_is_gone(store: MakeStore) -> None:
    offsets = {("Half", "g"): {0: 3}, ("Gone", "g"): {0: 3}}
    half = message(topic="Half", sys_flag=oracle.PREPARED)
    laid = store([message(), half], Layout(group_offsets=offsets))
    assert [(r["topic"], r["status"], r["diff"]) for r in measured(laid.root)] == [
        ("Gone", "TOPIC_GONE", -3),
        ("Half", "AHEAD", -3),
    ]


def test_a_record_that_cannot_be_read_is_behind_and_matches_nothing(store: MakeStore) -> None:
    laid = lay_out(
        Path(str(store([message()]).root) + "-broken"),
        [message("A"), message("A"), message("A", body=bytes(3000))],
        Layout(commit_log_bytes=8192, group_offsets={("T", "g"): {0: 1}}),
    )
    take_magics(laid, 2)
    (row,) = measured(laid.root, BacklogRequest(subscriptions={"g": {"T": "A"}}))
    assert (row["lag"], row["lagMatching"]) == (2, 1)
    assert row["lastConsumedStoreTimestamp"] is None


def test_records_none_of_which_can_be_read_match_nothing(tmp_path: Path) -> None:
    laid = lay_out(tmp_path, [message("A")] * 3, Layout(group_offsets={("T", "g"): {0: 0}}))
    take_magics(laid, 3)
    (row,) = measured(laid.root, BacklogRequest(subscriptions={"g": {"T": "A"}}))
    assert (row["lag"], row["lagMatching"]) == (3, 0)
    (row,) = measured(laid.root, BacklogRequest(by_tag=True))
    assert (row["tag"], row["lag"]) == (None, 3)


def test_a_range_whose_file_is_missing_matches_nothing(tmp_path: Path) -> None:
    laid = lay_out(
        tmp_path,
        [message("A")] * 10,
        Layout(queue_units=4, group_offsets={("T", "g"): {0: 0}}),
    )
    laid.unit_of(("T", 0), 4)[0].unlink()
    (row,) = measured(laid.root, BacklogRequest(subscriptions={"g": {"T": "A"}}))
    assert (row["lag"], row["lagMatching"]) == (10, 6)
    by_tag = measured(laid.root, BacklogRequest(by_tag=True))
    assert [(r["tag"], r["lag"]) for r in by_tag] == [("A", 6), (None, 4)]


class _ExpiringItems(list[BacklogItem]):
    """Items that are looked at while a broker deletes a file, after the log was listed."""

    looks = 0
    path: Path

    def __getitem__(self, number: Any) -> Any:
        self.looks += 1
        if self.looks == 4 * len(self) + 1:  # Four of each item find its store.
            self.path.unlink()
        return super().__getitem__(number)


def test_a_file_that_expires_under_the_count_takes_its_messages_along(tmp_path: Path) -> None:
    large = [message("A", body=bytes(1500)) for _ in range(4)]
    laid = lay_out(tmp_path, large, Layout(group_offsets={("T", "g"): {0: 0}}))
    request = BacklogRequest(subscriptions={"g": {"T": "A"}})
    items = _ExpiringItems(plan(take(laid.root), request))
    items.path = laid.file_of(laid.messages[0])[0]
    (row,) = rows(measure(items, request, AS_OF_MS))
    assert not items.path.exists()
    assert (row["lag"], row["lagMatching"]) == (4, 2)


@pytest.mark.parametrize("bound", ["MAX_CELLS", "MAX_CHARS"])
def test_more_tags_than_memory_is_for_is_an_error(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    laid = store(
        [message(f"tag-{n}") for n in range(9)], Layout(group_offsets={("T", "g"): {0: 0}})
    )
    monkeypatch.setattr(importlib.import_module("mqstore.backlog.count"), bound, 8)
    with pytest.raises(InvalidOptionError, match=r"byTag.* queue 0 of T .* different tags"):
        measured(laid.root, BacklogRequest(by_tag=True))


# Queues that are counted together.


def _side_by_side(root: Path) -> tuple[Laid, BacklogRequest]:
    """Six queues whose messages lie side by side; two groups in each, one of them halfway."""
    sent = [
        message(tag, topic=topic, queue_id=queue_id)
        for tag in ("A", "B", None, "Aa", "BB", "A", "C")
        for topic in ("T", "Topic_2", "Topic_3")
        for queue_id in (0, 1)
    ]
    topics = ("T", "Topic_2", "Topic_3")
    offsets = {(topic, "g1"): {0: 0, 1: 3} for topic in topics}
    offsets |= {(topic, "g2"): {0: 2, 1: 0} for topic in topics}
    subscriptions = {"g1": {"T": "A", "*": "B || Aa"}, "g2": {"Topic_2": "BB", "Topic_3": "C"}}
    return lay_out(root, sent, Layout(group_offsets=offsets)), BacklogRequest(None, subscriptions)


@pytest.mark.parametrize(
    "bounds",
    [
        {"MAX_QUEUES": 1},
        {"MAX_QUEUES": 4},
        {"_BLOCK_UNITS": 12, "_LEAST_UNITS": 1},  # several blocks of each queue
        {"MAX_CELLS": 30},  # by tag more than six queues may have, as many as one may
        {"MAX_CHARS": 20},
    ],
    ids=str,
)
@pytest.mark.parametrize("lag_mode", ["exact", "hash"])
@pytest.mark.parametrize("by_tag", [False, True])
def test_queues_counted_together_are_counted_as_each_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
    lag_mode: str,
    *,
    by_tag: bool,
) -> None:
    laid, request = _side_by_side(tmp_path)
    request = replace(request, lag_mode=lag_mode, by_tag=by_tag)
    for name, bound in bounds.items():
        for module in ("count", "measure"):
            found = importlib.import_module(f"mqstore.backlog.{module}")
            if hasattr(found, name):
                monkeypatch.setattr(found, name, bound)
    assert measured(laid.root, request) == list(brute_force(laid, request))


def test_queues_counted_together_when_a_file_expires_lose_only_its_messages(
    tmp_path: Path,
) -> None:
    large = [message("A", queue_id=n % 2, body=bytes(1500)) for n in range(8)]
    laid = lay_out(tmp_path, large, Layout(group_offsets={("T", "g"): {0: 0, 1: 0}}))
    request = BacklogRequest(subscriptions={"g": {"T": "A"}})
    items = _ExpiringItems(plan(take(laid.root), request))
    items.path = laid.file_of(laid.messages[0])[0]
    gone = [m for m in laid.messages if laid.file_of(m)[0] == items.path]
    found = rows(measure(items, request, AS_OF_MS))
    assert not items.path.exists()
    lost = Counter(m.queue_id for m in gone)
    assert [(r["lag"], r["lagMatching"]) for r in found] == [(4, 4 - lost[0]), (4, 4 - lost[1])]


def test_rows_come_in_batches_queue_by_queue_and_are_those_of_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid, request = _side_by_side(tmp_path)
    items = plan(take(laid.root, broker_name="broker-a"), request)
    monkeypatch.setattr(importlib.import_module("mqstore.backlog.measure"), "_BATCH_ROWS", 3)
    batches = list(measure_in_batches(items, request, AS_OF_MS))
    assert [batch.num_rows for batch in batches] == [4, 4, 4]
    queues = [(r["topic"], r["queueId"]) for batch in batches for r in rows(batch)]
    assert len(list(groupby(queues))) == 6
    found = [row for batch in batches for row in rows(batch)]
    key = itemgetter("group", "topic", "queueId")
    assert sorted(found, key=key) == rows(measure(items, request, AS_OF_MS))


# Groups and names.


def _several(store: MakeStore) -> Path:
    groups = ("order-a", "order-b", "pay")
    config = {("T", group): {0: 0} for group in groups}
    return store([message()], Layout(group_offsets=config)).root


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (None, ["order-a", "order-b", "pay"]),
        ("pay", ["pay"]),
        (" pay , order-a,", ["order-a", "pay"]),
        ("/order-.*/", ["order-a", "order-b"]),
        ("/order/", []),
        ("/.*-b|pay/", ["order-b", "pay"]),
    ],
)
def test_groups_are_named_or_matched_whole(
    store: MakeStore, groups: str | None, found: list[str]
) -> None:
    assert [r["group"] for r in measured(_several(store), BacklogRequest(groups))] == found


def test_an_unknown_group_is_an_error_that_names_the_nearest(store: MakeStore) -> None:
    with pytest.raises(UnknownTopicError, match=r"groups: .* no group oder-a; .* order-a"):
        measured(_several(store), BacklogRequest("oder-a"))


def test_a_group_that_is_configured_but_never_committed_has_no_rows(store: MakeStore) -> None:
    root = _several(store)
    table = json.dumps({"subscriptionGroupTable": {"idle": {"groupName": "idle"}}})
    (root / "config/subscriptionGroup.json").write_text(table)
    assert measured(root, BacklogRequest("idle")) == []


def test_a_group_or_topic_needs_to_be_known_to_one_of_several_stores(store: MakeStore) -> None:
    laid = [
        store([message(topic=topic)], Layout(group_offsets={(topic, group): {0: 0}}))
        for topic, group in (("T", "g"), ("U", "h"))
    ]
    snapshots = [take(one.root, broker_name=f"broker-{n}") for n, one in enumerate(laid)]
    request = BacklogRequest("g,h", {"g": {"U": "A"}})
    items = plan_all(snapshots, request)
    assert [(i.broker_name, i.group, i.topic) for i in items] == [
        ("broker-0", "g", "T"),
        ("broker-1", "g", "U"),
        ("broker-1", "h", "U"),
    ]
    assert measure(items[::-1], request, AS_OF_MS)["brokerName"].to_pylist() == [
        "broker-1",
        "broker-1",
        "broker-0",
    ]


def test_a_subscription_to_an_unknown_topic_is_an_error(store: MakeStore) -> None:
    laid = store([message(topic="TopicTest")])
    with pytest.raises(UnknownTopicError, match=r"subscriptions: .* topic TopicTset; .* TopicTest"):
        measured(laid.root, BacklogRequest(subscriptions={"g": {"TopicTset": "A"}}))


@pytest.mark.parametrize("groups", [None, "oder-a"])
def test_a_subscription_of_an_unknown_group_that_names_no_topic_is_an_error(
    store: MakeStore, groups: str | None
) -> None:
    root = _several(store)
    subscriptions = {"oder-a": {"*": "A"}, "pay": {"*": "A"}}
    with pytest.raises(UnknownTopicError, match=r"subscriptions: .* no group oder-a; .* order-a"):
        measured(root, BacklogRequest(groups, subscriptions))
    table = json.dumps({"subscriptionGroupTable": {"oder-a": {"groupName": "oder-a"}}})
    (root / "config/subscriptionGroup.json").write_text(table)
    assert len(measured(root, BacklogRequest(groups, subscriptions))) == (0 if groups else 3)
    assert [r["group"] for r in measured(root, BacklogRequest("x", {"x": {"T": "A"}}))] == ["x"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lag_mode": "guess"}, "lagMode='guess'.* exact, hash, offset"),
        ({"groups": "/(/"}, r"groups='/\(/'.*no regular expression"),
        ({"groups": "/a{99999999999999}/"}, "no regular expression"),
        ({"groups": "/"}, "groups='/'.*between slashes"),
        ({"groups": " , "}, "groups=' , '.*comma list"),
        ({"subscriptions": {"g": {"T": "||"}}}, r"subscriptions='\|\|'.*at least one tag"),
    ],
)
def test_a_request_that_means_nothing_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        BacklogRequest(**fields)


# Sharing the work out.


def _items(counts: dict[int, int], groups: int) -> list[BacklogItem]:
    item = BacklogItem("/r", ("/r/commitlog",), "b", "g", "T", 0, 0, 0, 0)
    return [
        replace(item, group=f"g{group}", queue_id=queue_id, high=high)
        for group in range(groups)
        for queue_id, high in counts.items()
    ]


def test_work_is_shared_evenly_and_a_queue_is_never_torn() -> None:
    items = _items(dict.fromkeys(range(9), 1000000), groups=3)
    shares = split(items, 4)
    assert sorted(len(share) for share in shares) == [6, 6, 6, 9]
    assert sorted(map(repr, items)) == sorted(repr(item) for share in shares for item in share)
    of_queue = [{item.queue_id for item in share} for share in shares]
    assert sum(len(queues) for queues in of_queue) == len(set().union(*of_queue))


def test_small_queues_are_packed_into_one_share() -> None:
    assert len(split(_items(dict.fromkeys(range(100), 50), groups=2), 8)) == 1
    assert split([], 8) == []


def test_items_and_requests_travel_to_tasks() -> None:
    request = BacklogRequest("g", {"g": {"T": "A"}}, "hash", by_tag=True)
    items = _items({0: 1}, groups=1)
    assert pickle.loads(pickle.dumps((items, request))) == (items, request)


_OFFSETS = st.integers(-(2**63), 2**63 - 1)
_WORDS = st.sampled_from(["a", "b", "标签"])


@given(
    items=st.lists(
        st.builds(
            BacklogItem,
            *(_WORDS, st.tuples(_WORDS), _WORDS, _WORDS, _WORDS, st.integers(0, 65_535)),
            *(_OFFSETS, _OFFSETS, st.none() | _OFFSETS, st.none() | _WORDS),
            *(st.booleans(), st.none() | _WORDS),
        )
    )
)
def test_items_are_the_same_after_they_were_packed(items: list[BacklogItem]) -> None:
    assert pickle.loads(pickle.dumps(PackedItems.of(items))).items() == items


def test_a_thousand_groups_of_a_queue_travel_in_thirty_bytes_each() -> None:
    items = _items(dict.fromkeys(range(4), 1000), groups=1000)
    assert len(pickle.dumps(PackedItems.of(items))) < 30 * len(items)


def test_a_store_that_a_task_cannot_see_is_a_named_error(tmp_path: Path) -> None:
    item = replace(_items({0: 1}, groups=1)[0], root=str(tmp_path / "not-mounted"))
    with pytest.raises(StoreNotFoundError, match="no such directory"):
        measure([item], BacklogRequest(), AS_OF_MS)


# Large queues: no CommitLog is read for a hash.


def test_a_queue_of_many_chunks_is_counted_for_all_groups_in_it(tmp_path: Path) -> None:
    count, tags = 130_000, np.array([java_hash("A"), java_hash("B"), 0], np.int64)
    random = np.random.default_rng(5)
    units = np.zeros(count, UNIT)
    units["size"] = random.integers(100, 4000, count)
    units["tags_code"] = random.choice(tags, count)
    queue = tmp_path / "consumequeue/T/0"
    queue.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    (queue / f"{0:020d}").write_bytes(units.tobytes())
    starts = [0, 1, 52_427, 52_428, 52_429, 100_000, count - 1, count]
    item = BacklogItem(str(tmp_path), (str(tmp_path / "commitlog"),), "b", "g", "T", 0, 0, count)
    items = [
        replace(item, consumer_offset=start, subscription=expression)
        for start in starts
        for expression in ("A", "A || B", None)
    ]
    found = rows(measure(items, BacklogRequest(lag_mode="hash"), AS_OF_MS))
    wanted = {"A": tags[:1], "A || B": tags[:2], None: tags}
    for row in found:
        behind = units[row["consumerOffset"] :]
        passing = behind[np.isin(behind["tags_code"], wanted[row["subscription"]])]
        assert (row["lag"], row["lagMatching"]) == (len(behind), len(passing))
        assert row["bytesBehind"] == behind["size"].sum(dtype=np.int64)
        assert row["bytesMatching"] == passing["size"].sum(dtype=np.int64)


@given(data=st.data())
def test_a_tally_counts_as_a_loop_does(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 12), max_size=6))
    begin, total = data.draw(st.integers(0, 5)), sum(lengths)
    starts = sorted(data.draw(st.sets(st.integers(0, begin + total + 3), max_size=6)))
    tally = Tally(np.array(starts, np.int64))
    key_count, position = 1, begin
    units: list[tuple[int, int, int]] = []
    for length in lengths:
        key_count += data.draw(st.sampled_from([0, 0, 1, 90]))
        keys = data.draw(st.lists(st.integers(0, key_count - 1), min_size=length, max_size=length))
        sizes = np.arange(position, position + length, dtype=np.int64) + 7
        chunk = Chunk(position, sizes * 10, sizes, sizes)
        tally.add(chunk, np.array(keys, np.intp), key_count)
        units += zip(range(position, position + length), keys, sizes.tolist(), strict=True)
        position += length
    tally.accumulate()
    for row, start in enumerate(starts):
        for key in range(tally.counts.shape[1]):
            behind = [unit for unit in units if unit[0] >= start and unit[1] == key]
            assert tally.counts[row, key] == len(behind)
            assert tally.bytes[row, key] == sum(size for *_, size in behind)
            assert tally.first[row, key] == min((unit[0] for unit in behind), default=NONE)
            if behind:
                where, places, sizes = tally.noted(tally.first[row])
                index = where.tolist().index(behind[0][0])
                assert (places[index], sizes[index]) == (behind[0][2] * 10, behind[0][2])

"""The backlog against consumerProgress, and against counting message by message."""

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backlog.counted import AS_OF_MS, ExpiringItems, brute_force, measured, message
from mqstore.backlog import (
    BacklogRequest,
    measure,
    plan,
)
from mqstore.errors import InvalidOptionError
from mqstore.format.hashing import java_hash
from mqstore.read.directory import take
from support import goldens, oracle, strategies
from support.expectations import rows
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out

GOLDEN_TAGS = {"4.9.7": ("CG_H", "HTopic", ["HA", "HB"]), "5.5.0": ("CG_G", "GTopic", ["GA", "GB"])}


def take_magics(laid: Laid, count: int) -> None:
    """Make the first messages' records unreadable: their magics are zero."""
    for broken in laid.messages[:count]:
        path, position = laid.file_of(broken)
        data = bytearray(path.read_bytes())
        data[position + 4 : position + 8] = b"\0" * 4
        path.write_bytes(data)


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_a_golden_backlog_is_what_consumer_progress_printed(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    rows = measured(root, BacklogRequest(system=True, late_after_ms=10**15))
    found = {(r["group"], r["topic"], r["queueId"]): r for r in rows}
    printed = goldens.progress(version)
    assert printed
    for queue, line in printed.items():
        row = found[queue]
        numbers = row["brokerOffset"], max(row["consumerOffset"], 0), row["diff"]
        assert numbers == (line.broker_offset, line.consumer_offset, line.diff), queue
        assert (row["lag"], row["expired"], row["status"]) == (line.diff, 0, "OK")
    others = {group for group, *_ in found} - {group for group, *_ in printed}
    assert others == {"CID_RMQ_SYS_TRANS"} == {r["group"] for r in rows if r["isSystem"]}
    # RocketMQ's own groups are left out unless they are named or asked for.
    assert [r for r in rows if not r["isSystem"]] == measured(
        root, BacklogRequest(late_after_ms=10**15)
    )
    assert {r["group"] for r in measured(root, BacklogRequest("CID_RMQ_SYS_TRANS"))} == others


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
    (row,) = measured(laid.root, BacklogRequest(late_after_ms=10**15))
    assert row["consumerOffset"] == committed
    assert (row["status"], row["diff"], row["lag"], row["expired"]) == (status, diff, lag, 0)


def test_a_queue_whose_first_message_waits_for_long_is_late(store: MakeStore) -> None:
    sent = [message("A", store_timestamp_ms=AS_OF_MS - 5_000), message("B")]
    laid = store(sent, Layout(group_offsets={("T", "g"): {0: 0}, ("T", "done"): {0: 2}}))

    def words(after_ms: int, **more: Any) -> dict[str, str]:
        asked = BacklogRequest(late_after_ms=after_ms, **more)
        return {f"{r['group']} {r['tag']}": r["status"] for r in measured(laid.root, asked)}

    assert words(5_000) == {"g None": "LATE", "done None": "OK"}
    assert words(5_001) == {"g None": "OK", "done None": "OK"}
    # What the group does not take does not make it late.
    assert words(5_000, subscriptions={"g": {"T": "no"}})["g None"] == "OK"


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
    request = BacklogRequest(subscriptions={"g": {"T": "A"}})
    (row,) = measured(laid.root, request, strict=False)
    assert (row["lag"], row["lagMatching"]) == (10, 6)
    by_tag = measured(laid.root, BacklogRequest(by_tag=True), strict=False)
    assert [(r["tag"], r["lag"]) for r in by_tag] == [("A", 6), (None, 4)]


def test_a_file_that_expires_under_the_count_takes_its_messages_along(tmp_path: Path) -> None:
    large = [message("A", body=bytes(1500)) for _ in range(4)]
    laid = lay_out(tmp_path, large, Layout(group_offsets={("T", "g"): {0: 0}}))
    request = BacklogRequest(subscriptions={"g": {"T": "A"}})
    items = ExpiringItems(plan(take(laid.root), request))
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

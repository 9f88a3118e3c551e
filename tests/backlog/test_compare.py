"""Our backlog beside RocketMQ's tools: their numbers, and the word for the difference."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqstore.backlog import COMPARE_SCHEMA, BacklogRequest, Listed, compare, measure, plan
from mqstore.backlog.estimate import SAMPLE_THRESHOLD
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.stream_groups import publish
from mqstore.read.directory import take
from support import expectations, goldens
from support.opened import source_of
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, MakeStore, lay_out, write_json

AS_OF_MS = 1_800_000_000_000
STORED_MS = Message().store_timestamp_ms


def compared(
    root: Path, subscriptions: Mapping[str, Mapping[str, str]] | None = None
) -> dict[tuple[str, str, int], dict[str, Any]]:
    request = BacklogRequest(None, subscriptions or {}, "hash")
    snapshot = take(root, broker_name="b")
    items = plan(snapshot, request)
    pairs = {(item.topic, item.group) for item in items}
    of_config = Listed.of(source_of(snapshot).config, pairs)
    listed = pickle.loads(pickle.dumps({snapshot.origin: of_config}))
    batches = list(compare(items, request, listed, AS_OF_MS))
    for batch in batches:
        batch.validate(full=True)
    rows = expectations.rows(pa.Table.from_batches(batches, schema=COMPARE_SCHEMA))
    exact = BacklogRequest(None, request.subscriptions)
    ours = expectations.rows(measure(items, exact, AS_OF_MS))
    keys = ("topic", "queueId", "group")
    ours.sort(key=lambda row: [row[key] for key in keys])
    for row, own in zip(rows, ours, strict=True):
        both = own.keys() & row.keys()
        assert {name: own[name] for name in both} == {name: row[name] for name in both}
    return {(row["group"], row["topic"], row["queueId"]): row for row in rows}


def told(row: Mapping[str, Any]) -> tuple[int | None, int | None, int, str]:
    return row["progressDiff"], row["metricLag"], row["lagMatching"], row["difference"]


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_lines_are_those_consumer_progress_printed(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    found = compared(root)
    printed = goldens.progress(version)
    inflight = goldens.inflight(version)
    for queue, line in printed.items():
        assert found[queue]["progressDiff"] == line.diff
        untold = None if version == "4.9.7" else 0
        assert found[queue]["progressInflight"] == inflight.get(queue, untold)
        retry = queue[1].startswith("%RETRY%")
        assert found[queue]["metricLag"] == (None if retry else line.diff)
        assert found[queue]["difference"] == ("RETRY" if retry else "SAME")


def tagged(*names: str, topic: str = "T") -> list[Message]:
    return [Message(topic=topic, properties=join_properties({"TAGS": n})) for n in names]


def test_tags_and_hashes_explain_what_passes(store: MakeStore) -> None:
    layout = Layout(group_offsets={("T", group): {0: 0} for group in ("all", "aa", "b")})
    laid = store(tagged("Aa", "BB", "b"), layout)
    found = compared(laid.root, {"all": {"T": "*"}, "aa": {"T": "Aa"}, "b": {"T": "b"}})
    assert told(found["all", "T", 0]) == (3, 3, 3, "SAME")
    assert told(found["aa", "T", 0]) == (3, 2, 1, "HASH")
    assert told(found["b", "T", 0]) == (3, 1, 1, "TAGS")


def test_many_messages_are_guessed(tmp_path: Path) -> None:
    count = SAMPLE_THRESHOLD + 3
    messages = tagged(*["A"] * (SAMPLE_THRESHOLD + 1), "B", "B")
    layout = Layout(
        commit_log_bytes=1 << 20,
        queue_units=10_000,
        index=False,
        group_offsets={("T", "g"): {0: 0}},
    )
    laid = lay_out(tmp_path / "store", messages, layout)
    row = compared(laid.root, {"g": {"T": "A"}})["g", "T", 0]
    assert told(row) == (count, count, count - 2, "ESTIMATE")
    assert row["metricIsEstimate"]


def test_offsets_that_do_not_fit_explain_the_difference(store: MakeStore) -> None:
    layout = Layout(
        commit_log_bytes=2048,
        expired_files=1,
        group_offsets={("T", "g"): {0: 0, 1: 9}, ("Gone", "g"): {0: 4}, ("T", "new"): {}},
    )
    messages = [Message(body=bytes(1900)), Message(), Message(queue_id=1), Message(queue_id=2)]
    found = compared(store(messages, layout).root)
    assert told(found["g", "T", 0]) == (2, 2, 1, "EXPIRED")
    assert told(found["g", "T", 1]) == (-8, 0, 0, "AHEAD")
    assert told(found["g", "T", 2]) == (1, 0, 1, "NEVER_COMMITTED")
    assert told(found["g", "Gone", 0]) == (None, None, 0, "TOPIC_GONE")
    assert found["g", "T", 0]["metricLatencyMs"] is None  # what the offset points at is gone
    assert found["g", "T", 0]["lagMs"] == AS_OF_MS - STORED_MS


def test_what_the_tools_do_not_list_is_null(store: MakeStore) -> None:
    layout = Layout(group_offsets={("T", "g"): {0: 0}, ("%RETRY%g", "g"): {0: 0}})
    laid = store([Message(), Message(queue_id=1), Message(topic="%RETRY%g")], layout)
    configure(laid, readQueueNums=1, writeQueueNums=1)
    found = compared(laid.root, {"other": {"T": "*"}})
    assert told(found["g", "%RETRY%g", 0]) == (1, None, 1, "RETRY")
    assert told(found["g", "T", 0]) == (1, 1, 1, "SAME")
    assert told(found["g", "T", 1]) == (None, None, 1, "NEVER_COMMITTED")
    assert found["other", "T", 0]["progressDiff"] is None
    groups = {"subscriptionGroupTable": {"g": {}}}
    write_json(laid.root / "config" / "subscriptionGroup.json", groups)
    assert compared(laid.root, {"other": {"T": "*"}})["other", "T", 0]["metricLag"] is None
    configure(laid, perm=0)
    assert told(compared(laid.root)["g", "T", 0]) == (1, None, 1, "UNLISTED")


def test_a_stream_of_ours_is_no_group_of_the_tools(store: MakeStore) -> None:
    laid = store([Message(), Message()])
    publish(StoreDir.at(laid.root), "stream", {("T", 0): 1})
    assert told(compared(laid.root)["stream", "T", 0]) == (None, None, 1, "UNLISTED")


def configure(laid: Laid, **fields: int) -> None:
    path = laid.root / "config" / "topics.json"
    document = json.loads(path.read_text())
    document["topicConfigTable"]["T"] |= fields
    write_json(path, document)


def test_latency_is_that_of_the_message_at_the_offset_and_inflight_what_was_pulled(
    store: MakeStore,
) -> None:
    layout = Layout(group_offsets={("T", "g"): {0: 1}, ("T", "done"): {0: 2}})
    messages = [Message(store_timestamp_ms=STORED_MS + 1000 * n) for n in range(2)]
    laid = store(messages, layout)
    path = laid.root / "config" / "consumerOffset.json"
    offsets = {"offsetTable": {"T@g": {0: 1}, "T@done": {0: 2}}, "pullOffsetTable": {"T@g": {0: 2}}}
    write_json(path, offsets)
    found = compared(laid.root)
    assert found["g", "T", 0]["metricLatencyMs"] == AS_OF_MS - STORED_MS - 1000
    assert found["done", "T", 0]["metricLatencyMs"] is None
    assert (found["g", "T", 0]["progressInflight"], found["done", "T", 0]["progressInflight"]) == (
        1,
        0,
    )
    write_json(path, {"offsetTable": offsets["offsetTable"]})
    assert {row["progressInflight"] for row in compared(laid.root).values()} == {None}


def test_sql_of_a_group_is_evaluated_here_and_not_by_the_tools(store: MakeStore) -> None:
    properties = [{"TAGS": "a", "a": "6"}, {"TAGS": "b", "a": "5"}]
    messages = [Message(topic="T", properties=join_properties(each)) for each in properties]
    laid = store(messages, Layout(group_offsets={("T", "g"): {0: 0}, ("T", "h"): {0: 0}}))
    entry = {"expression": "a > 5", "expressionType": "SQL92", "deadTime": 7}
    others = {"h": {"expression": "x", "expressionType": "TAG"}, "odd": 3}
    document = {"filterDataByTopic": {"T": {"groupFilterData": {"g": entry, **others}}, "U": []}}
    write_json(laid.root / "config" / "consumerFilter.json", document)
    row = compared(laid.root)["g", "T", 0]
    assert (row["subscription"], row["expressionType"]) == ("a > 5", "SQL92")
    assert told(row) == (2, 2, 1, "SQL92")
    other = compared(laid.root)["h", "T", 0]
    assert (other["subscription"], other["expressionType"]) == (None, None)
    # What the user says counts more.
    row = compared(laid.root, {"g": {"T": "a"}})["g", "T", 0]
    assert (row["expressionType"], row["lagMatching"]) == ("TAG", 1)

"""The table of tags against a count of the messages that were laid out."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.format.names import is_system_topic
from mqstore.read.source import QueueSlice
from mqstore.tables import tags
from mqstore.tables.choice import slices
from mqstore.tables.tags import TagsPart
from support import goldens, oracle, parts, strategies
from support.opened import opened
from support.oracle import Message, java_hash
from support.stores import Laid, Layout, MakeStore, lay_out


def every(root: Path) -> list[QueueSlice]:
    return slices(*opened(root, "b"), lambda _: True)


def read(root: Path, expression: str = "*") -> list[dict[str, Any]]:
    return parts.rows("tags", tags.plan(every(root), expression))


def counted(laid: Laid, wanted: set[str] | None = None) -> list[dict[str, Any]]:
    found: defaultdict[tuple[str, int, str | None], list[Message]] = defaultdict(list)
    for (topic, queue_id), held in laid.queues.items():
        for m in held:
            if wanted is None or m.tags in wanted:
                found[topic, queue_id, m.tags].append(m)
    return [
        {
            "topic": topic,
            "queueId": queue_id,
            "tag": tag,
            "tagsCode": java_hash(tag or ""),
            "messageCount": len(held),
            "bytes": sum(m.size for m in held),
            "firstStoreTimestamp": held[0].store_timestamp_ms * 1000,
            "lastStoreTimestamp": held[-1].store_timestamp_ms * 1000,
            "brokerName": "b",
            "isSystem": is_system_topic(topic),
        }
        for (topic, queue_id, tag), held in found.items()
    ]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: (r["topic"], r["queueId"], r["tag"] is None, r["tag"] or ""))


_some = st.lists(st.one_of(strategies.messages(topics=("T",)), strategies.delayed()), max_size=25)


@given(messages=_some, layout=strategies.layouts(), expression=st.sampled_from(["*", "Aa || x"]))
def test_tags_are_a_count_message_by_message(
    messages: list[Message],
    layout: Layout,
    expression: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), messages, layout)
    wanted = None if expression == "*" else {"Aa", "x"}
    assert in_order(read(laid.root, expression)) == in_order(counted(laid, wanted))


@given(
    names=st.lists(st.sampled_from([None, "A", "B", "C", "D", "E", "Aa", "BB"]), max_size=30),
    most=st.integers(2, 4),
)
def test_a_queue_of_many_tags_is_read_in_several_passes(
    names: list[str | None], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    messages = [
        Message(properties=oracle.join_properties({"TAGS": n} if n else {"KEYS": "k"}))
        for n in names
    ]
    laid = lay_out(tmp_path_factory.mktemp("store"), messages)
    part = TagsPart(tuple(every(laid.root)), max_keys=most)
    assert in_order(parts.rows("tags", [part])) == in_order(counted(laid))


def test_more_tags_of_one_hash_than_fit_are_refused_by_name(store: MakeStore) -> None:
    same = ("AaAa", "AaBB", "BBAa", "BBBB")
    laid = store([Message(properties=oracle.join_properties({"TAGS": n})) for n in same])
    part = TagsPart(tuple(every(laid.root)), max_keys=3)
    with pytest.raises(InvalidOptionError, match="queue 0 of T has more than 3 tags"):
        parts.rows("tags", [part])


def test_a_record_that_cannot_be_read_keeps_its_hash(tmp_path: Path) -> None:
    tagged = Message(properties=oracle.join_properties({"TAGS": "A"}))
    laid = lay_out(tmp_path / "broken", [tagged, tagged])
    path, position = laid.file_of(laid.messages[0])
    data = bytearray(path.read_bytes())
    data[position + 4] ^= 1
    path.write_bytes(data)
    found = {(r["tag"], r["tagsCode"]): r["messageCount"] for r in read(laid.root)}
    assert found == {(None, java_hash("A")): 1, ("A", java_hash("A")): 1}


def test_what_expires_before_it_is_read_is_not_counted(tmp_path: Path) -> None:
    tagged = Message(body=bytes(1900), properties=oracle.join_properties({"TAGS": "A"}))
    laid = lay_out(tmp_path / "store", [tagged] * 3, Layout(commit_log_bytes=2048))
    planned = tags.plan(every(laid.root), "*")
    min((laid.root / "commitlog").iterdir()).unlink()
    (row,) = parts.rows("tags", planned)
    assert (row["tag"], row["messageCount"]) == ("A", 2)


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_tags_are_those_the_client_decoded(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    wanted = Counter(
        (m["topic"], m["queueId"], m["properties"].get("TAGS")) for m in goldens.expected(version)
    )
    for row in read(root):
        # Delayed and half messages kept coming after the dump.
        if not row["topic"].startswith(("SCHEDULE_TOPIC", "RMQ_SYS")):
            assert row["messageCount"] == wanted[row["topic"], row["queueId"], row["tag"]]

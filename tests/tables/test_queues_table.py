"""Queues, topics and offsets against topicStatus and against the messages that were laid out."""

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.log.commit_log import CommitLog
from mqstore.read import heads
from mqstore.read.directory import take
from mqstore.tables import store as store_tables
from support import goldens, oracle, strategies
from support.expectations import rows
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_queues_are_what_topic_status_printed(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    batch = store_tables.queues(take(root))
    batch.validate(full=True)
    found = {(r["topic"], r["queueId"]): r for r in rows(batch)}
    printed = goldens.topic_status(version)
    assert printed
    for queue, bounds in printed.items():
        assert (found[queue]["minOffset"], found[queue]["maxOffset"]) == bounds


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_queues_hold_what_the_client_decoded(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    for row in rows(store_tables.queues(take(root))):
        # Delayed and half messages kept coming after the dump.
        if row["topic"].startswith(("SCHEDULE_TOPIC", "RMQ_SYS")):
            continue
        held = [
            m
            for m in goldens.expected(version)
            if (m["topic"], m["queueId"]) == (row["topic"], row["queueId"])
        ]
        assert row["messageCount"] == len(held)
        assert row["bytes"] == sum(m["storeSize"] for m in held)
        assert row["minStoreTimestamp"] == held[0]["store"] * 1000
        assert row["maxStoreTimestamp"] == held[-1]["store"] * 1000


@given(messages=strategies.batches(max_size=25), layout=strategies.layouts())
def test_queues_and_topics_count_what_was_laid_out(
    messages: list[Message], layout: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), messages, layout)
    snapshot = take(laid.root, broker_name="b")
    assert rows(store_tables.queues(snapshot)) == [
        {
            "brokerName": "b",
            "topic": topic,
            "queueId": queue_id,
            "minOffset": laid.bounds[topic, queue_id][0],
            "maxOffset": laid.bounds[topic, queue_id][1],
            "messageCount": len(held),
            "bytes": sum(m.size for m in held),
            "minStoreTimestamp": held[0].store_timestamp_ms * 1000,
            "maxStoreTimestamp": held[-1].store_timestamp_ms * 1000,
            "namedCount": None,
        }
        for (topic, queue_id), held in sorted(laid.queues.items())
    ]
    counts, sizes, queue_nums = Counter[str](), Counter[str](), Counter[str]()
    for (topic, _), held in laid.queues.items():
        counts[topic] += len(held)
        sizes[topic] += sum(m.size for m in held)
    for m in messages:
        queue_nums[m.topic] = max(queue_nums[m.topic], m.queue_id + 1)
    assert rows(store_tables.topics(snapshot)) == [
        {
            "brokerName": "b",
            "topic": topic,
            "perm": 6,
            "readQueueNums": queue_nums[topic],
            "writeQueueNums": queue_nums[topic],
            "order": False,
            "messageCount": counts[topic],
            "bytes": sizes[topic],
            "isSystem": topic.startswith(("%RETRY%", "%DLQ%")),
        }
        for topic in sorted(queue_nums)
    ]


def test_an_expired_queue_is_empty_and_has_no_times(store: MakeStore) -> None:
    early = Message(topic="Early", body=bytes(1900))
    layout = Layout(commit_log_bytes=2048, expired_files=1)
    laid = store([early, Message(topic="Late", body=bytes(1900))], layout)
    found = [row for row in rows(store_tables.queues(take(laid.root))) if row["topic"] == "Early"]
    for row in found:
        assert (row["minOffset"], row["maxOffset"], row["messageCount"]) == (1, 1, 0)
        assert row["minStoreTimestamp"] is row["maxStoreTimestamp"] is None
    assert len(found) == 1


def test_a_topic_that_is_not_configured_has_what_its_queues_tell(golden_497: Path) -> None:
    found = {row["topic"]: row for row in rows(store_tables.topics(take(golden_497)))}
    row = found["RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    assert row["perm"] is row["readQueueNums"] is row["writeQueueNums"] is row["order"] is None
    assert row["messageCount"] == 27


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_only_the_users_topics_are_not_the_systems(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    batch = store_tables.topics(take(root))
    batch.validate(full=True)
    letter = {"4.9.7": "H", "5.5.0": "G"}[version]
    users = {row["topic"] for row in rows(batch) if not row["isSystem"]}
    assert users == {letter + name for name in ("Batch", "Delay", "Order", "Topic", "Tx")}


def test_offsets_are_those_of_the_file_believable_or_not(store: MakeStore) -> None:
    layout = Layout(
        group_offsets={("T", "h"): {1: 2**63 - 1, 0: -5}, ("Gone", "g"): {7: 3}, ("T", "g"): {}}
    )
    found = rows(
        store_tables.committed_offsets(take(store([Message()], layout).root, broker_name="b"))
    )
    assert [tuple(row.values()) for row in found] == [
        ("b", "g", "Gone", 7, 3, "consumerOffset.json", None),
        ("b", "h", "T", 0, -5, "consumerOffset.json", None),
        ("b", "h", "T", 1, 2**63 - 1, "consumerOffset.json", None),
    ]


def test_pull_offsets_stand_beside_committed_ones(golden_550: Path) -> None:
    snapshot = take(golden_550)
    found = rows(store_tables.committed_offsets(snapshot))
    told = {(row["topic"], row["group"], row["queueId"]): row["pullOffset"] for row in found}
    pulled = [told["GTopic", "CG_G", queue_id] for queue_id in range(4)]
    assert pulled == [100, 101, 100, 100]
    unasked = rows(store_tables.committed_offsets(snapshot, ["consumerOffset"]))
    assert {row["pullOffset"] for row in unasked} == {None}


def test_offsets_of_a_backup_say_so(store: MakeStore) -> None:
    laid = store([Message()], Layout(group_offsets={("T", "g"): {0: 1}}))
    (laid.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@')
    (row,) = rows(store_tables.committed_offsets(take(laid.root)))
    assert (row["consumerOffset"], row["source"]) == (1, "consumerOffset.json.bak")


def test_columns_that_are_not_asked_for_are_not_added_up(store: MakeStore) -> None:
    snapshot = take(store([Message(body=b"12")]).root)
    (row,) = rows(store_tables.queues(snapshot, ["topic", "maxStoreTimestamp"]))
    assert (row["bytes"], row["maxStoreTimestamp"]) == (0, Message().store_timestamp_ms * 1000)
    (row,) = rows(store_tables.topics(snapshot, ["topic", "messageCount"]))
    assert (row["bytes"], row["messageCount"]) == (0, 1)


def test_bytes_that_the_snapshot_knows_are_not_added_up_again(tmp_path: Path) -> None:
    messages = [Message(topic=t, body=bytes(n)) for t in "AB" for n in range(9)]
    laid = lay_out(tmp_path / "store", messages)
    snapshot = take(laid.root)
    expected = rows(store_tables.topics(snapshot))
    shutil.rmtree(laid.root / "consumequeue")
    assert rows(store_tables.topics(snapshot)) == expected
    assert min(row["bytes"] for row in expected) > 0


def test_the_files_of_a_queue_are_listed_once(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = store([Message(topic=t, body=bytes(n)) for t in "AB" for n in range(30)])
    snapshot, listed = take(laid.root), []
    snapshot = replace(snapshot, queues=tuple(replace(q, weight=None) for q in snapshot.queues))
    act = MappedFileQueue.list

    def list_and_note(folders: Iterable[Folder]) -> MappedFileQueue:
        opened = list(folders)
        listed.extend(folder.name.removeprefix(f"{laid.root}/") for folder in opened)
        return act(opened)

    monkeypatch.setattr(MappedFileQueue, "list", list_and_note)
    assert [row["messageCount"] for row in rows(store_tables.queues(snapshot))] == [30, 30]
    assert sorted(listed) == ["commitlog", "consumequeue/A/0", "consumequeue/B/0"]


def test_times_of_a_queue_with_a_hole_are_those_of_its_ends(tmp_path: Path) -> None:
    messages = [Message(topic=t, store_timestamp_ms=10**12 + n) for n in range(1200) for t in "LH"]
    messages = messages[:200] + [m for m in messages[200:] if m.topic == "L"]
    laid = lay_out(tmp_path / "store", messages)
    laid.unit_of(("H", 0), 50)[0].unlink()
    snapshot = take(laid.root, strict=False)
    found = {row["topic"]: row for row in rows(store_tables.queues(snapshot))}
    for topic, last in (("L", 1199), ("H", 99)):
        assert found[topic]["minStoreTimestamp"] == 10**15
        assert found[topic]["maxStoreTimestamp"] == (10**12 + last) * 1000


def test_a_log_file_that_expires_meanwhile_takes_only_its_own_times(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = store([Message(topic=t, body=bytes(900)) for t in "AB" for _ in range(8)])
    snapshot, first = take(laid.root), laid.file_of(laid.messages[0])[0]
    act = heads.store_timestamps

    def expire(log: CommitLog, *of: NDArray[np.int64]) -> NDArray[np.int64]:
        first.unlink(missing_ok=True)
        return act(log, *of)

    monkeypatch.setattr(heads, "store_timestamps", expire)
    of_a, of_b = rows(store_tables.queues(snapshot))
    assert (of_a["minStoreTimestamp"], of_a["maxStoreTimestamp"]) == (None, None)
    time = Message().store_timestamp_ms * 1000
    assert (of_b["minStoreTimestamp"], of_b["maxStoreTimestamp"]) == (time, time)


def test_an_empty_store_has_empty_tables(store: MakeStore) -> None:
    snapshot = take(store([]).root)
    for table in (store_tables.queues, store_tables.topics, store_tables.committed_offsets):
        assert table(snapshot).num_rows == 0


def test_a_record_that_cannot_be_read_leaves_its_time_out(store: MakeStore, tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "broken", [Message(), Message()])
    path, position = laid.file_of(laid.messages[0])
    data = bytearray(path.read_bytes())
    data[position + 4] ^= 1
    path.write_bytes(data)
    (row,) = rows(store_tables.queues(take(laid.root)))
    assert row["minStoreTimestamp"] is None
    assert row["maxStoreTimestamp"] == oracle.Message().store_timestamp_ms * 1000

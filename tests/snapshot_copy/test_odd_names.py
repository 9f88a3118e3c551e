"""Topics and groups whose names nobody can make today are in every table, copy and repair.

Brokers before 4.6 take any name, later ones any group's; all serve each folder of consumequeue.
"""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import mqlog
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from mqstore.copy.take_point import take_point
from mqstore.errors import InvalidMessageError, UnsupportedStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.points.backing import LocalBacking
from mqstore.files.queue.consume_queue import list_queues
from mqstore.format.config import split_topic_group
from support import oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

GROUP = "com.shop.app"
TOPICS = (
    "T",
    "shop.orders",
    "订单",
    "a b",
    "a,b",
    "x@y",
    "h#1",
    "..%2f",
    "cafe\u0301",
    "café",
    f"%RETRY%{GROUP}",
    f"%DLQ%{GROUP}",
)
EACH = 3


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    """A store with three messages of each topic, of which the group has consumed one."""
    sent = [
        Message(
            topic=topic,
            body=b"%d" % n,
            properties=oracle.join_properties({"KEYS": f"k{n}", "TAGS": "A"}),
            store_timestamp_ms=1_700_000_000_000 + n,
        )
        for topic in TOPICS
        for n in range(EACH)
    ]
    offsets = {(topic, GROUP): {0: 1} for topic in TOPICS if "%DLQ%" not in topic}
    return lay_out(tmp_path / "store", sent, Layout(group_offsets=offsets))


def topics_of(root: Path | str) -> set[str]:
    found = mqlog.open(str(root)).scan(include_system_topics=True, columns="topic").to_table()
    assert found.num_rows == EACH * len(TOPICS)
    return set(found["topic"].to_pylist())


@pytest.mark.parametrize("table", ["queues", "topics", "backlog", "offsets", "tags", "digests"])
def test_every_table_has_a_topic_whatever_its_letters(laid: Laid, table: str) -> None:
    rows = mqlog.open(str(laid.root)).table(table, include_system_topics=True).to_table()
    without_offsets = {f"%DLQ%{GROUP}"} if table in {"backlog", "offsets"} else set()
    assert set(TOPICS) - set(rows["topic"].to_pylist()) == without_offsets


def test_a_name_is_read_and_found_by_itself(laid: Laid) -> None:
    place = mqlog.open(str(laid.root))
    for topic in TOPICS:
        assert place.scan(topic).to_table().num_rows == EACH
        start = json.dumps({topic: {"0": 1}})
        assert place.scan([topic], starting_offsets=start).to_table().num_rows == EACH - 1
        assert place.scan(topic, keys="k1").to_table().num_rows == 1


def test_retries_and_dead_letters_of_a_group_with_a_dot_are_its_own(laid: Laid) -> None:
    rows = mqlog.open(str(laid.root)).table("retries", groups=GROUP).to_table()
    assert sorted(set(rows["topic"].to_pylist())) == [f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"]


def test_copies_points_and_salvage_keep_every_topic(laid: Laid, tmp_path: Path) -> None:
    assert check(laid.root) == []
    copy_store(laid.root, tmp_path / "copy")
    take_point(laid.root, LocalBacking(str(tmp_path / "points")))
    assert salvage(laid.root, tmp_path / "salvaged").is_complete
    for root in (tmp_path / "copy", tmp_path / "salvaged", f"{tmp_path / 'points'}@1"):
        assert topics_of(root) == set(TOPICS)
    assert check(tmp_path / "copy") == []
    assert check(tmp_path / "salvaged") == []


def test_a_store_with_such_topics_takes_messages_and_no_new_such_topic(laid: Laid) -> None:
    rows = pa.table({"topic": ["T", "shop.orders", "订单"], "body": [b"x"] * 3})
    assert mqlog.write(rows, str(laid.root)).messages == 3
    assert check(laid.root) == []
    new = pa.table({"topic": ["shop.returns"], "body": [b"x"]})
    with pytest.raises(InvalidMessageError, match="other than letters"):
        mqlog.write(new, str(laid.root), create_topic=True)


def test_a_folder_whose_name_is_no_text_is_refused_by_name(laid: Laid) -> None:
    folder = laid.root / "consumequeue" / os.fsdecode("订单".encode("gbk"))
    (folder / "x").mkdir(parents=True)
    assert len(list_queues(StoreDir.at(laid.root))) == len(TOPICS)
    shutil.copytree(laid.root / "consumequeue/T/0", folder / "0")
    with pytest.raises(UnsupportedStoreError, match=r"no UTF-8.*queues=log") as error:
        list_queues(StoreDir.at(laid.root))
    assert str(error.value).isprintable()
    assert mqlog.open(str(laid.root)).scan("T", queues="log").to_table().num_rows == EACH


@pytest.mark.parametrize(
    ("key", "topic", "group"),
    [
        ("T@g", "T", "g"),
        ("x@y@g", "x@y", "g"),
        ("T@g@broadcast", "T", "g@broadcast"),
        ("x@y@g@broadcast", "x@y", "g@broadcast"),
        ("T@broadcast", "T", "broadcast"),
        ("T", "", ""),
        ("@g", "", ""),
        ("T@", "", ""),
    ],
)
def test_a_key_of_offsets_has_a_topic_and_a_group(key: str, topic: str, group: str) -> None:
    assert split_topic_group(key) == (topic, group)


def test_offsets_of_a_broadcast_group_are_in_tables(tmp_path: Path) -> None:
    offsets = {("T", "g"): {0: 2}, ("T", "g@broadcast"): {0: 1}}
    laid = lay_out(tmp_path / "store", [Message()] * 3, Layout(group_offsets=offsets))
    place = mqlog.open(str(laid.root))
    for table in ("offsets", "groups", "backlog"):
        groups = place.table(table).to_table()["group"].to_pylist()
        assert {"g", "g@broadcast"} <= set(groups)
    backlog = place.table("backlog", groups="g@broadcast").to_table()
    assert backlog["lag"].to_pylist() == [2]

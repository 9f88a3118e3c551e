"""A stream's progress under a group's name: in the backlog and the offsets, never the broker's."""

from pathlib import Path

import pytest

from mqstore.backlog import BacklogRequest
from mqstore.backlog.plan import plan
from mqstore.backlog.standing import Standing
from mqstore.errors import CorruptConfigError, InvalidOptionError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.config.stream_groups import publish, published
from mqstore.read.directory import open_origin, take
from mqstore.read.group_progress import PublishedProgress
from mqstore.tables.store import committed_offsets
from support.oracle import Message
from support.stores import Layout, MakeStore


def test_the_backlog_shows_a_stream_as_a_group(store: MakeStore) -> None:
    laid = store([Message(queue_id=i % 2) for i in range(10)])
    group = PublishedProgress("audit", {"broker-1": open_origin(laid.root)})
    group.publish({("T", "broker-1", 0): 3, ("T", "broker-1", 1): 5, ("T", "other", 0): 1})
    items = plan(take(laid.root), BacklogRequest())
    assert [(i.group, i.queue_id, i.consumer_offset) for i in items] == [
        ("audit", 0, 3),
        ("audit", 1, 5),
    ]
    assert Standing.of(items).lag.tolist() == [2, 0]
    rows = committed_offsets(take(laid.root)).to_pylist()
    assert {(row["group"], row["consumerOffset"], row["source"]) for row in rows} == {
        ("audit", 3, "mqlog"),
        ("audit", 5, "mqlog"),
    }


def test_what_is_published_replaces_what_was_and_leaves_no_trace(store: MakeStore) -> None:
    laid = store([Message()])
    group = PublishedProgress("%RETRY%a|b", {"broker-1": open_origin(laid.root)})
    for queue_offset in (0, 1, 1):
        group.publish({("T", "broker-1", 0): queue_offset})
    assert published(StoreDir.at(laid.root)) == {("T", "%RETRY%a|b"): {0: 1}}
    assert len(list((laid.root / ".mqlog" / "groups").iterdir())) == 1


def test_a_group_of_the_brokers_is_refused_and_wins(store: MakeStore) -> None:
    laid = store([Message()], Layout(group_offsets={("T", "G"): {0: 1}}))
    with pytest.raises(InvalidOptionError, match="is a consumer group of the broker"):
        PublishedProgress("G", {"broker-1": open_origin(laid.root)})
    publish(StoreDir.at(laid.root), "G", {("T", 0): 0})
    assert BrokerConfig(StoreDir.at(laid.root)).consumer_offsets() == {("T", "G"): {0: 1}}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 256])
def test_what_is_no_group_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="must be a group's name"):
        PublishedProgress(name, {})


def test_a_store_that_cannot_be_written_to_is_refused(store: MakeStore) -> None:
    laid = store([Message()])
    (laid.root / ".mqlog").write_text("in the way")
    with pytest.raises(InvalidOptionError, match="commitGroup='audit': progress is kept in"):
        PublishedProgress("audit", {"broker-1": open_origin(laid.root)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        '{"group":"g","offsetTable":{"T":{"0":"1"}}}',
        '{"group":"g","offsetTable":{"T":{"x":1}}}',
        '{"group":"g","offsetTable":[]}',
    ],
)
def test_a_damaged_file_is_told(store: MakeStore, text: str) -> None:
    laid = store([Message()])
    publish(StoreDir.at(laid.root), "g", {("T", 0): 1})
    (path,) = (laid.root / ".mqlog" / "groups").iterdir()
    path.write_text(text)
    with pytest.raises(CorruptConfigError, match="remove it, the stream writes it again"):
        BrokerConfig(StoreDir.at(laid.root)).consumer_offsets()


def test_what_has_no_name_of_ours_is_passed_over(store: MakeStore, tmp_path: Path) -> None:
    laid = store([Message()])
    publish(StoreDir.at(laid.root), "g", {("T", 0): 1})
    (laid.root / ".mqlog" / "groups" / "notes.txt").write_text("{")
    (laid.root / ".mqlog" / "groups" / "link").symlink_to(tmp_path)
    assert published(StoreDir.at(laid.root)) == {("T", "g"): {0: 1}}

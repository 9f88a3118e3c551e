"""Transactions, timers and the index of keys in RocksDB (RIP-82), with a broker of 5.5.1.

What the broker keeps is read live and from its store. A point of the stopped broker is started
again with the same settings: a client counts what it delivers, and its database tells which
transactions it knows.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster
from broker.reading import read
from broker.toolchain import Toolchain
from mqstore.copy.copy_store import copy_store
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import UnsupportedStoreError
from mqstore.files.base.directory import folder_of
from mqstore.files.rocksdb.database import RocksDatabase
from snapshot_copy.pointed import at, backing
from support import planned
from support.processes import until

pytestmark = pytest.mark.broker

SETTINGS: Mapping[str, str] = {
    "timerWheelEnable": "true",
    "timerRocksDBEnable": "true",
    "timerRocksDBPrecisionMs": "500",
    "transRocksDBEnable": "true",
    "transWriteOriginTransHalfEnable": "false",
    "indexRocksDBEnable": "true",
    "indexFileWriteEnable": "false",
    "indexFileReadEnable": "false",
}
TIMED, HALF, KEYS = "RipTimed", "RipTx", "RipKeys"
TIMERS, TRANSACTIONS, KEYED = 20, 30, 25
SOON, OPEN = TIMERS // 2, TRANSACTIONS // 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What was sent, and what was found beside the running broker, in its store, and later."""

    open_: set[str]
    live: list[dict[str, Any]]
    refused: UnsupportedStoreError
    root: Path
    copied: Path
    known: dict[int, bytes]
    again: int
    known_again: dict[int, bytes]
    restored: Path


def table(place: object, name: str, **options: str) -> list[dict[str, Any]]:
    return planned.rows(str(place), table=name, **options)


def in_database(root: Path) -> dict[int, bytes]:
    """The open transactions in the database: physical offset of the half message to its value."""
    with closing(RocksDatabase(folder_of(root), "rocksdbstore", "ROCKSDB_STATE")) as database:
        items = dict(database.items("trans"))
    return {int.from_bytes(k[:8]): v for k, v in items.items() if k != b"lastOffsetPy"}


@pytest.fixture(scope="module")
def seen(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("rocksdb-state-")
    root, repository = folder / "store", folder / "repository"
    with Cluster(toolchain, "5.5.1", folder / "programs") as cluster:
        with cluster.broker(root, SETTINGS) as broker:
            live = f"rocketmq://{cluster.name_server}"
            sent = broker.produce(HALF, "Tx", TRANSACTIONS)
            open_ = {one["msgId"] for one in sent[2::3]}
            broker.produce(KEYS, "Keyed", KEYED)
            broker.produce(TIMED, "Timer", TIMERS)
            broker.wait_for(TIMED, SOON)
            halves = table(live, "halfmessages")
            until(lambda: len(table(root, "scheduled")) == TIMERS)
            until(lambda: is_refused(root, repository))
            with pytest.raises(UnsupportedStoreError) as refused:
                take_point(str(root), backing(repository))
            broker.stop()
        known = in_database(root)
        copied = folder / "copied"
        copy_store(str(root), str(copied))
        take_point(str(root), backing(repository))
        restored = folder / "restored"
        restore_point(at(backing(repository), 1), str(restored))
        with cluster.broker(restored, SETTINGS) as broker:
            # What it would deliver again comes before what is sent now.
            broker.produce(TIMED, "Timer", 1)
            broker.wait_for(TIMED, SOON + 1)
            again = len([row for row in broker.dump().rows if row["topic"] == TIMED])
            broker.stop()
    return Seen(
        open_, halves, refused.value, root, copied, known, again, in_database(restored), restored
    )


def is_refused(root: Path, repository: Path) -> bool:
    """Whether the wheel was seen not to take the timers up: its clock goes on every second."""
    try:
        take_point(str(root), backing(repository.with_name("early")))
    except UnsupportedStoreError:
        return True
    return False


def test_open_transactions_are_those_that_the_producer_left_open(seen: Seen) -> None:
    assert len(seen.open_) == OPEN
    for rows in (seen.live, table(seen.root, "halfmessages"), table(seen.copied, "halfmessages")):
        assert {row["msgId"] for row in rows} == seen.open_
        assert {(row["state"], row["realTopic"]) for row in rows} == {("PENDING", HALF)}
    places = {row["physicalOffset"] for row in table(seen.root, "halfmessages")}
    assert places == set(seen.known)


def test_timers_are_delivered_or_pending_as_the_broker_has_them(seen: Seen) -> None:
    delivered = {row["msgId"] for row in read(seen.root) if row["topic"] == TIMED}
    rows = table(seen.root, "scheduled")
    assert len(delivered) == SOON
    assert {row["msgId"] for row in rows if row["state"] == "DELIVERED"} == delivered
    assert len([row for row in rows if row["state"] == "PENDING"]) == TIMERS - SOON


def test_keys_are_found_without_index_files(seen: Seen) -> None:
    for root in (seen.root, seen.restored):
        found = table(root, "messages", subscribe=KEYS, keys="key3")
        assert len(found) == KEYED // 5


def test_a_running_broker_is_refused_by_name(seen: Seen) -> None:
    assert "MQLOG_UNSUPPORTED_STORE.ROCKSDB_STATE" in str(seen.refused)
    assert "Stop the broker" in str(seen.refused)


def test_a_broker_started_on_the_point_delivers_nothing_twice(seen: Seen) -> None:
    assert seen.again == SOON + 1


def test_a_broker_started_on_the_point_knows_its_open_transactions(seen: Seen) -> None:
    assert len(seen.known) == OPEN
    assert set(seen.known_again) == set(seen.known)
    files = {p.name for p in (seen.copied / "rocksdbstore").iterdir()}
    assert "CURRENT" in files
    assert json.loads((seen.copied / "config" / "topics.json").read_text())

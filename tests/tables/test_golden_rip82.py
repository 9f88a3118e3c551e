"""A golden store of a killed broker of 5.5.1 with transactions, timers and index in RocksDB.

Its database is empty, as it is after kill -9: what is told comes from the log.
"""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from mqstore.copy.take_point import take_point
from mqstore.errors import UnsupportedStoreError
from snapshot_copy.pointed import backing
from support import goldens, planned

STORE = "5.5.1-rip82"
HALF, OP = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return goldens.unpack(STORE, tmp_path_factory.mktemp("golden"))


def timers() -> dict[str, str]:
    """What became of each timer, by its key: soon, later or recalled."""
    with (goldens.FOLDER / STORE / "timers.tsv").open() as file:
        return {row[0]: row[1] for row in csv.reader(file, delimiter="\t")}


@pytest.mark.parametrize("options", [{}, {"queues": "log"}], ids=["queues", "log"])
def test_open_transactions_are_those_that_no_op_message_ended(
    root: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    if options:
        options = options | {"cacheDir": str(tmp_path)}
    rows = goldens.expected(STORE)
    ended = {int(r["properties"]["TRANS_OFFSET"]) for r in rows if r["topic"] == OP}
    halves = [row for row in rows if row["topic"] == HALF]
    open_ = {r["msgId"] for r in halves if r["physicalOffset"] not in ended}
    found = planned.rows(str(root), table="halfmessages", **options)
    assert 0 < len(open_) < len(halves)
    assert {row["msgId"] for row in found} == open_
    assert {(r["state"], r["realTopic"], r["checkTimes"]) for r in found} == {
        ("PENDING", "GrpTx", None)
    }


def test_timers_are_what_the_client_saw_of_them(root: Path) -> None:
    found = planned.rows(str(root), table="scheduled")
    states: dict[str, set[str]] = {}
    for row in found:
        if row["kind"] == "timer":
            states.setdefault(row["keys"] or "", set()).add(row["state"])
    wanted = {"soon": {"DELIVERED"}, "later": {"PENDING"}, "recalled": {"PENDING"}}
    told = timers()
    assert {key: states[key] for key in told} == {key: wanted[kind] for key, kind in told.items()}
    assert sum(row["state"] == "CANCEL" for row in found) == list(told.values()).count("recalled")


def test_keys_are_found_as_the_tool_found_them(root: Path) -> None:
    told: dict[str, list[Any]] = json.loads((goldens.FOLDER / STORE / "keys.json").read_text())
    for key, places in told.items():
        found = planned.rows(str(root), subscribe="GrpTopic", keys=key)
        assert sorted((r["msgId"], str(r["queueId"]), str(r["queueOffset"])) for r in found) == (
            sorted(map(tuple, places))
        )


def test_the_table_of_the_index_names_the_database(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert planned.rows(str(root), table="index") == []
    assert "rocksdbstore" in caplog.text


def test_a_copy_of_a_killed_broker_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    for take in (
        lambda: take_point(str(root), backing(tmp_path / "repository")),
        lambda: copy_store(str(root), str(tmp_path / "copy")),
    ):
        with pytest.raises(UnsupportedStoreError, match=r"ROCKSDB_STATE\].*deliver timers again"):
            take()
    assert not (tmp_path / "copy").exists()


def with_timeline(root: Path, taken_up: bytes, delivered: bytes) -> None:
    """Make the database anew, as if the broker had stopped cleanly at that time."""
    rocksdict = pytest.importorskip("rocksdict")
    shutil.rmtree(root / "rocksdbstore")
    options = rocksdict.Options(raw_mode=True)
    options.create_missing_column_families(True)
    families = {name: rocksdict.Options(raw_mode=True) for name in ("default", "timer", "trans")}
    database = rocksdict.Rdict(str(root / "rocksdbstore"), options, column_families=families)
    timer = database.get_column_family("timer")
    timer[b"sys_topic_scan_offset_checkpoint"] = taken_up
    timer[b"timeline_checkpoint"] = delivered
    timer.close()
    database.close()
    (root / "abort").unlink()


def delivered_of(root: Path) -> set[str]:
    rows = planned.rows(str(root), table="scheduled")
    return {r["keys"] for r in rows if r["kind"] == "timer" and r["state"] == "DELIVERED"}


@pytest.mark.parametrize("early_ms", [0, 1], ids=["the first", "none"])
def test_of_a_stopped_broker_the_database_tells_which_timers_were_delivered(
    tmp_path: Path, early_ms: int
) -> None:
    root = goldens.unpack(STORE, tmp_path)
    rows = [r for r in planned.rows(str(root), table="scheduled") if r["kind"] == "timer"]
    first = min(row["deliverTimestamp"] for row in rows)
    time_ms = round(first.timestamp() * 1000) - early_ms
    with_timeline(root, (80).to_bytes(8), time_ms.to_bytes(8))
    due = {row["keys"] for row in rows if row["deliverTimestamp"] == first}
    assert delivered_of(root) == (set() if early_ms else due)


@pytest.mark.parametrize(
    ("taken_up", "delivered"),
    [(b"", b""), (b"\xff" * 8, b"\xff" * 8), (b"\0" * 7, b"\0" * 9), (b"\0" * 8, b"\x7f" * 8)],
)
def test_numbers_that_no_broker_writes_leave_the_clock_of_the_wheel(
    root: Path, tmp_path: Path, taken_up: bytes, delivered: bytes
) -> None:
    harmed = goldens.unpack(STORE, tmp_path)
    with_timeline(harmed, taken_up, delivered)
    assert delivered_of(harmed) == delivered_of(root)


def test_a_damaged_database_leaves_the_clock_of_the_wheel(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harmed = goldens.unpack(STORE, tmp_path)
    (harmed / "abort").unlink()
    for path in (harmed / "rocksdbstore").iterdir():
        path.write_bytes(b"\xff" * 100)
    assert delivered_of(harmed) == delivered_of(root)
    assert "by the clock of the wheel" in caplog.text


def test_salvage_reports_the_database_as_lost(root: Path, tmp_path: Path) -> None:
    made = salvage(str(root), str(tmp_path / "new"))
    report = (tmp_path / "new" / ".mqlog" / "salvage" / "report.txt").read_text()
    assert made.lost_files == 1
    assert "file=rocksdbstore" in report
    assert "delivers due timers again" in report

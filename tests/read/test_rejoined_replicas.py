"""Replicas that came back, RocketMQ 5.5.1, judged by what the client pulled from the master.

``r2-rejoined`` has its queues in RocksDB. It cut its log, and the database still has units of what
was cut, and none of what the new master sent. Behind the log of ``r1-rejoined`` lie records that it
cut. ``r1-restarted`` was stopped with 40 records that its group had not agreed on. When it started
it entered them into its queues, all but the first one.
"""

import json
import logging
from pathlib import Path

import pytest

from fuzz.bases import sound
from mqstore.check import check
from mqstore.copy.salvage import salvage
from mqstore.copy.take_point import take_point
from mqstore.errors import CorruptStoreError
from mqstore.files.points.backing import LocalBacking
from mqstore.read import index_gaps
from support import goldens, planned
from support.oracle import index_files
from support.stores import Layout, lay_out

ROCKSDB, RESTARTED = goldens.CONTROLLER_ROCKSDB, goldens.CONTROLLER_RESTARTED
REJOINED = [(ROCKSDB, "r2-rejoined", 285), (goldens.CONTROLLER_LEFTOVER, "r1-rejoined", 276)]
TOPIC = "FailOvers"
Place = tuple[int, int, str]


def expected(version: str) -> dict[Place, str]:
    rows = [row for row in goldens.expected(version) if row["topic"] == TOPIC]
    return {
        (row["queueId"], row["queueOffset"], row["msgId"]): row["properties"]["KEYS"]
        for row in rows
    }


def rows(place: Path | str, **options: str) -> dict[Place, str]:
    found = planned.rows(str(place), subscribe=TOPIC, columns="full", **options)
    by_place = {(r["queueId"], r["queueOffset"], r["msgId"]): r["keys"] for r in found}
    assert len(by_place) == len(found)
    return by_place


def errors(root: Path) -> list[str]:
    return [found.problem for found in check(root) if found.severity == "error"]


@pytest.mark.parametrize(("version", "disk", "count"), REJOINED)
def test_what_a_replica_cut_gives_way_to_what_its_group_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, disk: str, count: int
) -> None:
    root, truth = goldens.unpack(version, tmp_path, disk), expected(version)
    assert len(truth) == count
    with caplog.at_level(logging.WARNING):
        assert rows(root) == truth
        assert rows(root, queues="log", cacheDir=f"{tmp_path}/cache") == truth
        assert caplog.text == ""
    assert rows(root, keys=json.dumps(sorted(truth.values()))) == truth
    assert errors(root) == []


@pytest.mark.parametrize(("version", "disk"), [one[:2] for one in REJOINED])
def test_a_point_and_a_salvage_have_what_the_group_has(
    tmp_path: Path, version: str, disk: str
) -> None:
    root, truth = goldens.unpack(version, tmp_path, disk), expected(version)
    backing = LocalBacking(f"{tmp_path}/points")
    take_point(root, backing)
    salvage(root, tmp_path / "salvaged")
    for place in (f"{backing.address}@1", f"{tmp_path}/salvaged"):
        assert rows(place) == truth


def test_without_its_epochs_the_log_is_walked_from_its_begin(tmp_path: Path) -> None:
    root, truth = goldens.unpack(ROCKSDB, tmp_path, "r2-rejoined"), expected(ROCKSDB)
    (root / "epochFileCheckpoint").unlink()
    assert rows(root) == truth


def test_a_queue_that_lacks_a_record_and_goes_on_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, truth = goldens.unpack(RESTARTED, tmp_path, "r1-restarted"), expected(RESTARTED)
    assert len(truth) == 160
    parted = r"FailOvers/1 at byte 300: index and queueOffset part: unit 15 has the record of"
    with pytest.raises(CorruptStoreError, match=parted):
        rows(root)
    with pytest.raises(CorruptStoreError, match="queues=log"):
        planned.rows(str(root), table="backlog")
    assert rows(root, queues="log", cacheDir=f"{tmp_path}/cache") == truth
    whole = {place: key for place, key in truth.items() if place[0] != 1 or place[1] < 15}
    with caplog.at_level(logging.WARNING):
        assert rows(root, onCorrupt="skip") == whole
    assert "index and queueOffset part" in caplog.text
    assert any("index and queueOffset part" in found.problem for found in check(root))


def test_a_message_that_the_index_passes_by_is_found_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart, if no other record of its queue was behind the end of the queues."""
    monkeypatch.setattr(index_gaps, "_UNITS_AT_ONCE", 7)
    messages = [sound("TU"[n % 2], KEYS=f"k{n}", UNIQ_KEY=f"{n:032d}") for n in range(40)]
    layout = Layout(commit_log_bytes=8192, queue_units=50, index=False)
    laid = lay_out(tmp_path / "store", messages, layout)
    (laid.root / "index").mkdir()
    for first in (0, 20):
        indexed = [m for n, m in enumerate(laid.messages) if first <= n < first + 20]
        left_out = [m for m in indexed if m.properties_map["KEYS"] not in ("k3", "k5", "k30")]
        (file,) = index_files(left_out, slots=5, units=60, tags=True)
        (laid.root / "index" / f"20261121030{first:06d}").write_bytes(file.bytes())
    keys = [m.properties_map["KEYS"] for m in laid.messages]
    lacking = {"k3", "k5", "k30"}
    assert searched(laid.root, keys) == set(keys) - lacking  # A plain store's index is believed.
    (laid.root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    (laid.root / "brokerIdentity").write_text("DefaultCluster#broker-a#2")
    assert searched(laid.root, keys) == set(keys)
    for key in sorted(lacking):
        assert searched(laid.root, [key]) == {key}
    monkeypatch.setattr(index_gaps, "_MOST_GAPS", 1)
    assert searched(laid.root, keys) == set(keys)


def searched(root: Path, keys: list[str]) -> set[str]:
    found = [
        row["keys"]
        for topic in "TU"
        for row in planned.rows(str(root), subscribe=topic, keys=json.dumps(keys))
    ]
    assert len(found) == len(set(found))
    return set(found)

"""Where reads of a replica by its log end, copies and salvage: where its group agreed.

The old master ``r1-killed`` and the slave ``r3-kill`` have 120 records that nobody acknowledged;
116 of them the group never had. ``r2-live`` was the only replica of its set: its confirm offset
stands still, and 200 acknowledged messages lie behind it.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from mqstore.copy.salvage_report import REPORT_FOLDER
from mqstore.copy.take_point import take_point
from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.points.backing import LocalBacking
from mqstore.format.checkpoint import CHECKPOINT
from support import goldens, planned, rocksdb

CONTROLLER, DEFAULT = goldens.CONTROLLER, goldens.CONTROLLER_DEFAULT
TAIL = 120
FORMER = ["r1-killed", "r3-kill"]
LIVING = [(CONTROLLER, "r1-rejoined"), (CONTROLLER, "r2-live"), (DEFAULT, "r2-live")]


def rows(root: Path | str, cache: Path, **options: str) -> list[tuple[int, int, str]]:
    """Return queue, queue offset and id of what a read by the log gives."""
    return places(planned.rows(str(root), queues="log", cacheDir=str(cache), **options))


def places(found: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return sorted((row["queueId"], row["queueOffset"], row["msgId"]) for row in found)


def expected(version: str, before: int | None = None) -> list[tuple[int, int, str]]:
    """Return what the client pulled from the living master."""
    return sorted(
        (row["queueId"], row["queueOffset"], row["msgId"])
        for row in goldens.expected(version)
        if before is None or row["physicalOffset"] < before
    )


def acknowledged(version: str, file: str) -> set[str]:
    lines = (goldens.FOLDER / version / file).read_text().splitlines()
    return {line.split("\t")[0] for line in lines if line.split("\t")[1] == "SEND_OK"}


def errors(root: Path | str) -> list[str]:
    return [found.problem for found in check(root) if found.severity == "error"]


def warnings(root: Path | str, word: str) -> list[str]:
    return [found.problem for found in check(root) if word in found.problem]


@pytest.mark.parametrize("disk", FORMER)
def test_a_read_by_the_log_ends_where_the_group_agreed_and_counts_what_it_leaves_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, disk: str
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, disk)
    agreed = expected(CONTROLLER, before=168_080)
    assert len(agreed) == 300
    assert rows(root, tmp_path / "cache") == agreed
    assert "120 records behind physical offset 168080 are left out" in caplog.text
    whole = rows(root, tmp_path / "cache", readUnCommitted="true")
    assert len(whole) == 300 + TAIL
    assert set(agreed) < set(whole)


@pytest.mark.parametrize(("version", "disk"), LIVING)
def test_a_living_replica_loses_no_acknowledged_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, disk: str
) -> None:
    """Also the master whose confirm offset stands still, as it is alone in its set."""
    root = goldens.unpack(version, tmp_path, disk)
    assert rows(root, tmp_path / "cache") == expected(version)
    assert places(planned.rows(str(root))) == expected(version)
    assert "left out" not in caplog.text
    keys = {r["keys"] for r in planned.rows(str(root), queues="log", cacheDir=f"{tmp_path}/cache")}
    assert acknowledged(version, "acks-b.tsv") <= keys
    assert len(acknowledged(version, "acks-b.tsv")) >= 160


@pytest.mark.parametrize("disk", FORMER)
def test_verify_takes_a_replica_with_a_tail_for_sound_and_says_how_long_it_is(
    tmp_path: Path, disk: str
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, disk)
    assert errors(root) == []
    told = warnings(root, "agreed on them")
    assert [text.split()[0] for text in told] == [str(TAIL)]


@pytest.mark.parametrize(
    ("version", "disk", "count"),
    [(CONTROLLER, "r2-live", 200), (DEFAULT, "r1-killed", TAIL), (CONTROLLER, "r1-rejoined", None)],
)
def test_verify_says_how_many_messages_lie_behind_the_confirm_offset(
    tmp_path: Path, version: str, disk: str, count: int | None
) -> None:
    root = goldens.unpack(version, tmp_path, disk)
    assert errors(root) == []
    told = warnings(root, "behind the confirmed offset")
    assert [int(text.split()[0]) for text in told] == ([] if count is None else [count])


def test_verify_takes_an_index_that_a_cut_left_for_sound(tmp_path: Path) -> None:
    root = goldens.unpack(DEFAULT, tmp_path, "r3-end")
    assert errors(root) == []
    assert warnings(root, "no record there")


@pytest.mark.parametrize("disk", FORMER)
def test_copy_point_count_and_verify_agree_on_a_replica_with_a_tail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, disk: str
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, disk)
    agreed = expected(CONTROLLER, before=168_080)
    copy_store(root, tmp_path / "copy")
    assert "120 records behind physical offset 168080 are left out" in caplog.text
    assert "mqlog salvage --read-uncommitted takes" in caplog.text
    backing = LocalBacking(f"{tmp_path}/points")
    take_point(root, backing)
    for number, place in enumerate((f"{tmp_path}/copy", f"{backing.address}@1")):
        assert places(planned.rows(place)) == agreed
        assert rows(place, tmp_path / f"cache{number}") == agreed
    assert check(f"{tmp_path}/copy") == []
    (topic,) = planned.rows(
        str(root), table="topics", queues="log", cacheDir=f"{tmp_path}/c", subscribe="GldT"
    )
    assert topic["messageCount"] == len(agreed)


@pytest.mark.parametrize("takes_unconfirmed", [False, True])
def test_salvage_takes_what_the_group_agreed_on_and_the_rest_by_an_option(
    tmp_path: Path, takes_unconfirmed: bool
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    made = salvage(root, tmp_path / "new", takes_unconfirmed=takes_unconfirmed)
    tail = 0 if takes_unconfirmed else TAIL
    assert (made.messages, made.doubted, made.lost_bytes) == (300 + TAIL - tail, tail, 0)
    assert made.is_complete is takes_unconfirmed
    assert len(planned.rows(f"{tmp_path}/new")) == 300 + TAIL - tail
    report = pq.read_table(tmp_path / "new" / REPORT_FOLDER / "report.parquet").to_pylist()
    told = [one for one in report if "--read-uncommitted takes it" in str(one["reason"])]
    assert len(told) == tail
    assert all(one["record"] for one in told)


def test_salvage_takes_all_where_nothing_tells_what_the_group_agreed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    assert salvage(root, tmp_path / "new").messages == 300 + TAIL
    assert "all records are taken" in caplog.text


def test_a_read_by_the_log_fails_by_name_where_nothing_tells_what_the_group_agreed_on(
    tmp_path: Path,
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    with pytest.raises(CorruptStoreError, match="readUnCommitted=true"):
        rows(root, tmp_path / "cache")
    assert len(rows(root, tmp_path / "cache", readUnCommitted="true")) == 300 + TAIL
    assert any("cannot be known" in text for text in errors(root))


def test_the_option_is_refused_where_no_log_is_read(tmp_path: Path) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    with pytest.raises(InvalidOptionError, match="queues=log"):
        planned.rows(str(root), readUnCommitted="true")
    with pytest.raises(InvalidOptionError, match="readUnCommitted"):
        planned.rows("rocketmq://127.0.0.1:1", subscribe="T", readUnCommitted="true")


def confirm(root: Path, offset: int) -> None:
    """Write another confirm offset into the checkpoint."""
    data = (root / "checkpoint").read_bytes()
    header = np.frombuffer(data, CHECKPOINT, 1).copy()
    header["confirm_phy_offset"] = offset
    (root / "checkpoint").write_bytes(header.tobytes() + data[CHECKPOINT.itemsize :])


@pytest.mark.parametrize("offset", [-(2**63), -1, 0, 1, 168_079])
def test_a_confirm_offset_that_is_too_low_takes_no_message_that_is_in_a_queue(
    tmp_path: Path, offset: int
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    confirm(root, offset)
    assert len(rows(root, tmp_path / "cache")) == 300
    assert errors(root) == []


@pytest.mark.parametrize("offset", [235_180, 2**40, 2**63 - 1])
def test_a_confirm_offset_behind_the_log_ends_with_the_log(tmp_path: Path, offset: int) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    confirm(root, offset)
    assert len(rows(root, tmp_path / "cache")) == 300 + TAIL


def test_a_confirm_offset_inside_a_record_is_an_error_with_a_name(tmp_path: Path) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    confirm(root, 168_081)
    with pytest.raises(CorruptStoreError, match="at byte 168080"):
        rows(root, tmp_path / "cache")
    assert len(planned.rows(str(root))) == 300


def test_a_unit_that_names_no_record_does_not_move_the_agreed_end(tmp_path: Path) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    path = root / "consumequeue" / "GldT" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    end = next(at for at in range(0, len(data), 20) if not any(data[at : at + 20]))
    data[end : end + 20] = (1 << 17).to_bytes(8) + (557).to_bytes(4) + bytes(8)
    path.write_bytes(data)
    assert len(rows(root, tmp_path / "cache")) == 300


def test_queues_in_rocksdb_end_where_the_group_agreed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed broker has flushed few units; the others are made from the log."""
    root = goldens.unpack(CONTROLLER, tmp_path, "r1-killed")
    rocksdb.move_queues(root, before=100_000)
    agreed = expected(CONTROLLER, before=168_080)
    assert places(planned.rows(str(root))) == agreed
    assert "120 records behind physical offset 168080 are left out" in caplog.text
    assert rows(root, tmp_path / "cache") == agreed
    assert len(planned.rows(str(root), readUnCommitted="true")) == 300 + TAIL
    backing = LocalBacking(f"{tmp_path}/points")
    take_point(root, backing)
    assert places(planned.rows(f"{backing.address}@1")) == agreed
    assert errors(root) == []
    assert salvage(root, tmp_path / "new").messages == 300


def test_the_index_shows_how_far_a_master_came_that_is_alone_in_its_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of queues in RocksDB neither the confirm offset nor the database tells it."""
    root = goldens.unpack(CONTROLLER, tmp_path, "r2-live")
    rocksdb.move_queues(root, before=172_000)
    assert places(planned.rows(str(root))) == expected(CONTROLLER)
    assert rows(root, tmp_path / "cache") == expected(CONTROLLER)
    assert "left out" not in caplog.text


def test_without_an_index_the_messages_are_counted_that_a_lone_master_may_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = goldens.unpack(CONTROLLER, tmp_path, "r2-live")
    rocksdb.move_queues(root, before=172_000)
    shutil.rmtree(root / "index")
    found = places(planned.rows(str(root)))
    left_out = len(expected(CONTROLLER)) - len(found)
    assert 190 < left_out < 200
    assert f"{left_out} records behind physical offset" in caplog.text
    assert places(planned.rows(str(root), readUnCommitted="true")) == expected(CONTROLLER)

"""A salvage of batch ConsumeQueues: a unit for each whole record, and no other."""

import shutil
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from check.damages import write
from mqstore.check import check
from mqstore.codec.inner_batch import NOT_FILLED
from mqstore.copy.salvage import Salvaged, salvage
from mqstore.copy.salvaged_offsets import OUT_OF_ORDER, TWICE
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import goldens, oracle
from support.batch_stores import LOG_BYTES, Record, batch, client_message, lay_out, place

COUNTS = [3, 1, 5, 2, 4, 1, 7, 2, 3, 6, 1, 1]
UNITS = "batchconsumequeue/T/0"


def placed(first: int = 0, log_bytes: int = LOG_BYTES) -> list[Record]:
    """Records of batches, and of messages that were sent alone where the count is 1."""
    records, at = [], first
    for count in COUNTS:
        bodies = [client_message(b"body %d" % n, b"KEYS\1k%d\2" % n) for n in range(at, at + count)]
        alone = oracle.Message(body=b"body %d" % at)
        records.append(replace(batch(bodies) if count > 1 else alone, store_timestamp_ms=at + 1))
        at += count
    return place(records, COUNTS, first, log_bytes)


def served(root: Path, topic: str | None = None) -> dict[int, bytes]:
    settings = ScanSettings(columns=("queueOffset", "body", "topic"))
    rows = [r for part in scan(slices_of(take(root)), settings) for r in part.to_pylist()]
    rows = [r for r in rows if topic in (None, r["topic"])]
    assert len(rows) == len({r["queueOffset"] for r in rows})
    return {r["queueOffset"]: r["body"] for r in rows}


def bodies(records: list[Record], *gone: int) -> dict[int, bytes]:
    """The messages of all records but those."""
    numbers = [n for i, r in enumerate(records) if i not in gone
               for n in range(r.base, r.base + r.count)]  # fmt: skip
    return {number: b"body %d" % number for number in numbers}


def doubted(root: Path) -> list[str]:
    table = pq.read_table(root / ".mqlog" / "salvage" / "report.parquet").to_pylist()
    return [row["reason"] for row in table if row["kind"] == "doubted"]


def saved(root: Path, new: Path) -> Salvaged:
    made = salvage(root, new)
    assert [str(found) for found in check(new)] == []
    assert BrokerConfig(StoreDir.at(new)).topics()["T"].has_batches
    return made


def test_the_batch_queues_of_a_broker_are_made_again_to_the_byte(tmp_path: Path) -> None:
    root = goldens.unpack(goldens.BATCH, tmp_path)
    assert salvage(root, tmp_path / "new").is_complete
    assert check(tmp_path / "new") == []
    files = {p.relative_to(root): p.read_bytes() for p in root.glob("batchconsumequeue/*/*/*")}
    assert len(files) > 2
    assert files == {p: (tmp_path / "new" / p).read_bytes() for p in files}


@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("what", ["queues are gone", "topics.json is gone", "both are gone"])
def test_records_that_were_lost_leave_no_unit(tmp_path: Path, first: int, what: str) -> None:
    """The topic is known by its queues, by topics.json, or by its records."""
    records = placed(first)
    root = lay_out(tmp_path / "store", records)
    gone = 2, 3, 9
    for number in gone:
        at = records[number].message.physical_offset
        write(root / "commitlog" / f"{0:020d}", at + 60, b"\7" * 20)
    if what != "topics.json is gone":
        shutil.rmtree(root / "batchconsumequeue")
    if what == "queues are gone":
        config = root / "config" / "topics.json"
        text = config.read_text()
        config.write_text(text.replace('"attributes":{}', '"attributes":{"queue.type":"BatchCQ"}'))
        assert "BatchCQ" in config.read_text()
    else:
        shutil.rmtree(root / "config")
    made = saved(root, tmp_path / "new")
    assert made.lost_messages == sum(COUNTS[number] for number in gone)
    assert made.messages == sum(COUNTS) - made.lost_messages
    assert served(tmp_path / "new") == bodies(records, *gone)


def test_a_long_gap_has_several_units(tmp_path: Path) -> None:
    """A unit counts its messages in 16 bits."""
    lost = 2 * 32_767 + 5
    alone = [oracle.Message(body=b"body 0"), oracle.Message(topic="U", body=bytes(LOG_BYTES * 3)),
             oracle.Message(body=b"body 1")]  # fmt: skip
    *records, last = place(alone, [1, 1, 1], log_bytes=4 * LOG_BYTES)
    last = replace(last, message=replace(last.message, queue_offset=lost + 1), base=lost + 1)
    root = lay_out(tmp_path / "store", [*records, last], log_bytes=4 * LOG_BYTES)
    made = saved(root, tmp_path / "new")
    assert (made.lost_messages, made.messages) == (lost, 3)
    files = (tmp_path / "new" / UNITS).iterdir()
    data = b"".join(path.read_bytes() for path in sorted(files))
    units = list(struct.iter_unpack(">qiqqqhii", data))[:5]
    assert [(unit[4], unit[5]) for unit in units] == [
        (0, 1), (1, 32_767), (32_768, 32_767), (65_535, 5), (65_540, 1)
    ]  # fmt: skip
    assert [unit[1] == 2 for unit in units] == [False, True, True, True, False]
    assert served(tmp_path / "new", "T") == {0: b"body 0", lost + 1: b"body 1"}
    (queue,) = [q for q in take(tmp_path / "new").queues if q.topic == "T"]
    assert (queue.low, queue.high) == (0, lost + 2)


def test_the_first_message_behind_an_expired_one_and_a_gap_is_found(tmp_path: Path) -> None:
    size = 1024
    records = placed(log_bytes=size)
    root = lay_out(tmp_path / "store", records, log_bytes=size)
    for number in (1, 4, 8):
        at = records[number].message.physical_offset
        write(root / "commitlog" / f"{at // size * size:020d}", at % size + 60, b"\7" * 20)
    made = saved(root, tmp_path / "new")
    logs = sorted((tmp_path / "new" / "commitlog").iterdir())
    assert len(logs) == 4
    for expired, following in pairwise(logs):
        expired.unlink()
        low = int(following.name) - made.moved_by
        held = [r.base for i, r in enumerate(records)
                if i not in (1, 4, 8) and r.message.physical_offset >= low]  # fmt: skip
        (queue,) = take(tmp_path / "new").queues
        assert queue.low == held[0]
        assert set(served(tmp_path / "new")) >= set(held)


def test_a_batch_whose_messages_do_not_fill_it_is_doubted(tmp_path: Path) -> None:
    """Its record is whole: a body of that checksum was stored."""
    records = placed()
    m = records[4].message
    body = m.body[:3] + bytes([m.body[3] + 1]) + m.body[4:]
    records[4] = replace(records[4], message=replace(m, body=body))
    root = lay_out(tmp_path / "store", records)
    saved(root, tmp_path / "new")
    assert doubted(tmp_path / "new") == [NOT_FILLED]
    assert served(tmp_path / "new") == bodies(records, 4)


@pytest.mark.parametrize(
    ("number", "reason"), [(11, TWICE), (14, OUT_OF_ORDER), (2**40, OUT_OF_ORDER)]
)
def test_a_batch_whose_queue_offsets_others_have_is_set_aside(
    tmp_path: Path, number: int, reason: str
) -> None:
    records = placed()
    assert (records[3].base, records[4].base, records[5].base) == (9, 11, 15)
    changed = replace(records[5].message, queue_offset=number)
    records[5] = replace(records[5], message=changed, base=number)
    root = lay_out(tmp_path / "store", records)
    saved(root, tmp_path / "new")
    assert doubted(tmp_path / "new") == [reason]
    assert served(tmp_path / "new") == bodies(placed(), 5)


def test_of_a_topic_that_was_made_again_the_new_batches_are_served(tmp_path: Path) -> None:
    old = placed()
    again = [replace(r.message, body=r.message.body.replace(b"body", b"new!")) for r in old[:4]]
    records = place([*(r.message for r in old), *again], [*COUNTS, *COUNTS[:4]])
    anew = [
        replace(r, message=replace(r.message, queue_offset=r.base - sum(COUNTS)),
                base=r.base - sum(COUNTS))
        for r in records[len(old) :]
    ]  # fmt: skip
    root = lay_out(tmp_path / "store", [*records[: len(old)], *anew])
    made = salvage(root, tmp_path / "new")
    assert [f for f in check(tmp_path / "new") if f.severity == "error"] == []
    assert made.messages == sum(COUNTS[:4])
    assert served(tmp_path / "new") == {n: b"new! %d" % n for n in range(sum(COUNTS[:4]))}

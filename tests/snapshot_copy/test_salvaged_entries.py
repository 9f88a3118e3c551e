"""A salvage of a DLedger disk: a plain store with every whole record, and no other."""

import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from check.damages import write
from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.copy.salvage import Salvaged, salvage
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import goldens, soak
from support.damaged import damage, messages_of_six_queues
from support.expectations import row, rows
from support.oracle import Message, encode, walk, with_property_crc
from support.stores import Laid, Layout, is_consumable, lay_out, stored

SIZE = 4096
HEAD = 48
FULL = PROFILES["full"]


def messages(seed: int, count: int = 100) -> list[Message]:
    return messages_of_six_queues(seed, count)


def layout(start: int = 0) -> Layout:
    return Layout(
        commit_log_bytes=SIZE,
        start=start,
        dledger="n0",
        index_units=400,
        group_offsets={("Topic0", "G"): {0: 11, 1: 9}},
    )


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", messages(1), layout())


def served(new: Path) -> dict[tuple[object, ...], dict[str, object]]:
    settings = ScanSettings(columns=FULL)
    found = [r for part in scan(slices_of(take(new, broker_name="b")), settings)
             for r in rows(part)]  # fmt: skip
    return {(r["topic"], r["queueId"], r["queueOffset"]): r for r in found}


def packed(new: Path) -> list[Message]:
    """The records of the new log, by the oracle: each where it says that it lies."""
    found = []
    for start, data in stored(new):
        for position, m in walk(data):
            assert m.physical_offset == start + position
            found.append(m)
    return found


def saved(laid: Laid, new: Path, *gone: Message) -> Salvaged:
    """Salvage, and check that all is there but what is gone, in the order of the log."""
    before = goldens.digest(laid.root)
    made = salvage(laid.root, new)
    assert goldens.digest(laid.root) == before
    assert made.is_packed
    assert [str(found) for found in check(new)] == []
    left = [m for m in laid.messages if m not in gone]
    found = [m for m in packed(new) if m.topic != "MQLOG_SALVAGE_LOST"]
    assert [replace(m, physical_offset=0) for m in found] == [
        replace(m, physical_offset=0) for m in left
    ]
    expected = {(m.topic, m.queue_id, m.queue_offset): row(m, "b") for m in found}
    assert served(new) == expected
    return made


def report(new: Path) -> list[dict[str, object]]:
    table: list[dict[str, object]] = pq.read_table(
        new / ".mqlog" / "salvage" / "report.parquet"
    ).to_pylist()
    return table


@pytest.mark.parametrize("start", [0, 5 * SIZE])
def test_a_whole_disk_becomes_a_plain_store(tmp_path: Path, start: int) -> None:
    laid = lay_out(tmp_path / "store", messages(1), layout(start))
    made = saved(laid, tmp_path / "new")
    assert made.is_complete
    assert (made.records, made.moved, made.low) == (len(laid.messages), 0, start)
    assert report(tmp_path / "new") == []
    before, after = (BrokerConfig(StoreDir.at(root)) for root in (laid.root, tmp_path / "new"))
    assert after.consumer_offsets() == before.consumer_offsets()
    assert after.topics() == before.topics()


def test_a_broker_disk_becomes_a_plain_store(tmp_path: Path) -> None:
    root = goldens.unpack(goldens.DLEDGER, tmp_path)
    expected = wherever(served(root))
    made = salvage(root, tmp_path / "new")
    assert made.is_complete
    assert check(tmp_path / "new") == []
    assert wherever(served(tmp_path / "new")) == expected


def wherever(found: dict[tuple[object, ...], dict[str, object]]) -> list[dict[str, object]]:
    """Without places, and ids that are made of them."""
    of_place = {"physicalOffset", "offsetMsgId", "msgId"}
    return [{name: value for name, value in r.items() if name not in of_place}
            for r in found.values()]  # fmt: skip


@pytest.mark.parametrize("seed", range(soak.size("salvaged_stores", check=2, test=20, whole=400)))
def test_every_whole_record_is_in_the_new_store_and_no_other(tmp_path: Path, seed: int) -> None:
    laid = lay_out(tmp_path / "store", messages(seed, 120), layout(SIZE * (seed % 3)))
    damaged = damage(laid, seed)
    made = salvage(laid.root, tmp_path / "new")
    assert [str(finding) for finding in check(tmp_path / "new")] == [], damaged.done
    found = {(m.topic, m.queue_id, m.queue_offset): replace(m, physical_offset=0)
             for m in packed(tmp_path / "new") if is_consumable(m)}  # fmt: skip
    whole = {(m.topic, m.queue_id, m.queue_offset): replace(m, physical_offset=0)
             for m in damaged.whole}  # fmt: skip
    unsure = {(m.topic, m.queue_id, m.queue_offset) for m in damaged.unsure}
    assert {place: found.get(place) for place in whole} == whole, damaged.done
    assert set(found) - set(whole) <= unsure, damaged.done
    assert len(found) == made.messages


def test_damaged_records_are_missed_and_no_other(laid: Laid, tmp_path: Path) -> None:
    gone = [laid.messages[n] for n in (3, 30, 31, 32, 77)]
    for m in gone:
        path, position = laid.file_of(m)
        write(path, position + 40, b"\7" * 40)
    made = saved(laid, tmp_path / "new", *gone)
    assert made.lost_messages == sum(m.queue_offset > 0 for m in gone)
    assert made.doubted == len(gone)


def test_a_damaged_head_of_an_entry_costs_no_record(laid: Laid, tmp_path: Path) -> None:
    """Neither its magic nor a term far above all others."""
    for number, at, data in ((10, 0, b"\7\7"), (20, 16, b"\x7f"), (40, 8, b"\7\7\7\7")):
        path, position = laid.file_of(laid.messages[number])
        write(path, position - HEAD + at, data)
    made = saved(laid, tmp_path / "new")
    assert (made.doubted, made.lost_messages) == (0, 0)


def test_files_that_lost_or_changed_their_names_are_put_right(laid: Laid, tmp_path: Path) -> None:
    folder = laid.root / laid.layout.log_folder
    paths = sorted(folder.iterdir())
    paths[1].rename(folder / "lost")
    swap = [path.read_bytes() for path in paths[2:4]]
    paths[2].write_bytes(swap[1])
    paths[3].write_bytes(swap[0])
    shutil.copy(paths[4], folder / "a copy of a file")
    made = saved(laid, tmp_path / "new")
    assert (made.lost_bytes, made.lost_messages) == (0, 0)
    reasons = {r["reason"] for r in report(tmp_path / "new")}
    assert reasons == {"another file has the records of its place"}


def test_a_file_that_is_gone_and_one_that_was_cut_are_a_loss(laid: Laid, tmp_path: Path) -> None:
    folder = laid.root / laid.layout.log_folder
    paths = sorted(folder.iterdir())
    paths[1].unlink()
    with paths[3].open("r+b") as file:
        file.truncate(1000)
    gone = [m for m in laid.messages if laid.file_of(m)[0] == paths[1]]
    gone += [m for m in laid.messages
             if laid.file_of(m)[0] == paths[3] and laid.file_of(m)[1] + m.size > 1000]  # fmt: skip
    made = saved(laid, tmp_path / "new", *gone)
    assert made.lost_bytes >= SIZE
    kinds = [(r["kind"], r["reason"]) for r in report(tmp_path / "new")]
    assert ("lost", "the file is missing") in kinds


def test_what_the_group_took_back_is_doubted(laid: Laid, tmp_path: Path) -> None:
    """Entries of an earlier term that lie behind the end of a later one."""
    for m in laid.messages[:80]:
        path, position = laid.file_of(m)
        write(path, position - HEAD + 16, struct.pack(">q", 7))
    made = salvage(laid.root, tmp_path / "new")
    assert (made.records, made.doubted) == (80, 20)
    assert check(tmp_path / "new") == []
    records = [r["record"] for r in report(tmp_path / "new") if r["kind"] == "doubted"]
    assert records == [encode(m) for m in laid.messages[80:]]


def test_a_commit_log_of_a_time_before_comes_first(tmp_path: Path) -> None:
    old = lay_out(tmp_path / "old", messages(2, 30), Layout(commit_log_bytes=SIZE, index=False))
    first = -(-old.high // SIZE) * SIZE
    queues = {q: high for q, (_, high) in old.bounds.items()}
    new = replace(layout(first), first_queue_offsets=queues, index=False)
    laid = lay_out(tmp_path / "store", messages(3, 40), new)
    shutil.copytree(old.root / "commitlog", laid.root / "commitlog", dirs_exist_ok=True)
    both = replace(laid, messages=(*old.messages, *laid.messages))
    made = saved(both, tmp_path / "new")
    assert made.records == 70


def test_records_with_a_checksum_of_their_own_keep_it_right(tmp_path: Path) -> None:
    """It covers PHYSICALOFFSET, which is another now."""
    sent = [with_property_crc(m) for m in messages(5)]
    laid = lay_out(tmp_path / "store", sent, layout())
    salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert len(served(tmp_path / "new")) == len(sent)


def test_a_disk_without_a_whole_record_is_an_error(laid: Laid, tmp_path: Path) -> None:
    for path in (laid.root / laid.layout.log_folder).iterdir():
        path.write_bytes(random.Random(1).randbytes(SIZE))
    with pytest.raises(CorruptStoreError, match="no whole record"):
        salvage(laid.root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]

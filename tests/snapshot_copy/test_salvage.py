"""A salvaged store is whole, and has every record whose bytes are whole, and no other."""

import errno
import json
import os
import random
import shutil
import struct
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from check.damages import where, write
from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.copy.salvage import Salvaged, salvage
from mqstore.copy.salvaged_offsets import OUT_OF_ORDER, _choose
from mqstore.errors import (
    CorruptStoreError,
    InvalidOptionError,
    NoSpaceError,
    UnsupportedStoreError,
)
from mqstore.files.base import durable
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.read.directory import open_origin, take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.tables import store as store_tables
from support import by_log, dying, goldens, oracle, soak
from support.damaged import Damaged, damage, messages_of_six_queues
from support.deleted import NEW, make_again, twice
from support.expectations import row, rows
from support.oracle import Message, encode, with_property_crc
from support.rocksdb import move_config, move_queues
from support.stores import Laid, Layout, is_consumable, lay_out, stored

SIZE = 4096
FULL = PROFILES["full"]
FILLERS = {"MQLOG_SALVAGE_LOST", "-"}


def messages(seed: int, count: int = 120) -> list[Message]:
    return messages_of_six_queues(seed, count)


def layout(seed: int) -> Layout:
    chance = random.Random(seed)
    queues = {(f"Topic{n}", q): chance.choice([0, 7, 16]) for n in range(3) for q in range(2)}
    start = chance.choice([0, SIZE, 5 * SIZE])
    return Layout(
        commit_log_bytes=SIZE,
        start=start,
        first_queue_offsets=queues if start else {},
        group_offsets={("Topic0", "G"): {0: 11, 1: 9}},
        index_units=400,
    )


def found_in(new: Path) -> list[Message]:
    """The records of the new log that are no filler, by the oracle."""
    found: list[Message] = []
    for start, data in stored(new):
        for position, m in oracle.walk(data):
            assert m.physical_offset == start + position
            found += [] if m.topic in FILLERS and not is_consumable(m) else [m]
    return found


def served(new: Path) -> list[dict[str, object]]:
    settings = ScanSettings(columns=FULL)
    return [
        r for batch in scan(slices_of(take(new, broker_name="b")), settings) for r in rows(batch)
    ]


def judge(laid: Laid, damaged: Damaged, new: Path, made: Salvaged) -> None:
    assert [str(finding) for finding in check(new)] == [], damaged.done
    found = {m.physical_offset - made.moved_by: m for m in found_in(new)}
    whole = {m.physical_offset: m for m in damaged.whole}
    unsure = {m.physical_offset for m in damaged.unsure}
    assert set(whole) <= set(found), damaged.done
    assert set(found) - set(whole) <= unsure, damaged.done
    for place, m in whole.items():
        moved = replace(m, physical_offset=place + made.moved_by)
        assert found[place] == moved
    held = [replace(m, physical_offset=m.physical_offset + made.moved_by) for m in damaged.whole]
    expected = sorted((row(m, "b") for m in held), key=_where)
    got = sorted(served(new), key=_where)
    sure = {(m.topic, m.queue_id, m.queue_offset) for m in damaged.whole}
    assert [r for r in got if _where(r) in sure] == expected
    assert made.records == len(found)


def _where(row: dict[str, object]) -> tuple[object, ...]:
    return row["topic"], row["queueId"], row["queueOffset"]


@pytest.mark.parametrize("seed", range(soak.size("salvaged_stores", check=2, test=20, whole=400)))
def test_every_whole_record_is_in_the_new_store_and_no_other(tmp_path: Path, seed: int) -> None:
    laid = lay_out(tmp_path / "store", messages(seed), layout(seed))
    damaged = damage(laid, seed)
    before = goldens.digest(laid.root)
    made = salvage(laid.root, tmp_path / "new")
    judge(laid, damaged, tmp_path / "new", made)
    assert goldens.digest(laid.root) == before


def test_the_golden_stores_are_carried_over_whole(tmp_path: Path) -> None:
    for version in goldens.VERSIONS:
        root = goldens.unpack(version, tmp_path)
        made = salvage(root, tmp_path / f"new-{version}")
        assert made.is_complete
        new = tmp_path / f"new-{version}"
        assert [str(finding) for finding in check(new)] == []
        assert served(new) == served(root)
        before, after = BrokerConfig(StoreDir.at(root)), BrokerConfig(StoreDir.at(new))
        assert after.consumer_offsets() == before.consumer_offsets()
        assert after.topics() == before.topics()


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", messages(1), layout(2))


def put(laid: Laid, m: Message, field: str, value: bytes) -> None:
    """Change a field of a record in its file."""
    path, position = laid.file_of(m)
    write(path, position + where(field), value)


def kinds(new: Path) -> Counter[tuple[str, str]]:
    table = pq.read_table(new / ".mqlog" / "salvage" / "report.parquet")
    return Counter(zip(table["kind"].to_pylist(), table["reason"].to_pylist(), strict=True))


def test_of_two_records_with_one_queue_offset_one_is_kept(laid: Laid, tmp_path: Path) -> None:
    """The one that fits between its neighbours; the other is in the report, with its bytes."""
    queue = laid.queues["Topic1", 1]
    wrong = queue[9]
    put(laid, wrong, "queue_offset", struct.pack(">q", queue[4].queue_offset))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert (made.doubted, made.lost_messages) == (1, 1)
    table = pq.read_table(tmp_path / "new" / ".mqlog" / "salvage" / "report.parquet")
    (row,) = [r for r in table.to_pylist() if r["kind"] == "doubted"]
    changed = replace(wrong, queue_offset=queue[4].queue_offset)
    assert row["record"] == encode(changed)
    assert (row["topic"], row["queueId"]) == (wrong.topic, wrong.queue_id)
    kept = {(r["topic"], r["queueId"], r["queueOffset"]) for r in served(tmp_path / "new")}
    assert ("Topic1", 1, queue[4].queue_offset) in kept
    assert ("Topic1", 1, wrong.queue_offset) not in kept


@pytest.mark.parametrize("queue_offset", [2**40, 2**58, 60])
def test_a_queue_offset_that_cannot_be_is_set_aside(
    laid: Laid, tmp_path: Path, queue_offset: int
) -> None:
    queue = laid.queues["Topic1", 1]
    put(laid, queue[9], "queue_offset", struct.pack(">q", queue_offset))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.messages == len(laid.messages) - 1
    assert kinds(tmp_path / "new")["doubted", OUT_OF_ORDER] == 1


@pytest.mark.parametrize("first", [2**60, 2**63 - 1_000])
def test_queue_offsets_that_no_file_can_have_are_doubted(
    laid: Laid, tmp_path: Path, first: int
) -> None:
    for m in laid.queues["Topic1", 1]:
        put(laid, m, "queue_offset", struct.pack(">q", m.queue_offset + first))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.doubted == len(laid.queues["Topic1", 1])
    assert ("Topic1", 1) not in {(q.topic, q.queue_id) for q in take(tmp_path / "new").queues}


def test_a_place_that_no_log_reaches_is_not_believed(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(1, 1), layout(0))
    (path,) = (laid.root / "commitlog").iterdir()
    put(laid, laid.messages[0], "physical_offset", struct.pack(">q", 2**63 - 2_000))
    path.rename(path.with_name("lost"))
    with pytest.raises(CorruptStoreError, match="no whole record"):
        salvage(laid.root, tmp_path / "new")


def test_times_are_found_also_where_records_were_lost(tmp_path: Path) -> None:
    count = 60
    made = [
        Message(topic="T", body=b"x" * 100, store_timestamp_ms=1_700_000_000_000 + number)
        for number in range(count)
    ]
    laid = lay_out(tmp_path / "store", made, Layout(commit_log_bytes=SIZE, start=SIZE))
    lost = range(21, 40)
    for m in laid.messages[lost.start : lost.stop]:
        put(laid, m, "crc", b"none")
    assert salvage(laid.root, tmp_path / "new").lost_messages == len(lost)
    with closing(open_origin(str(tmp_path / "new")).bounds()) as source:
        (queue,) = source.snapshot().queues
        for m in laid.messages:
            (found,) = source.first_at([queue], [m.store_timestamp_ms])
            wanted = lost.start if m.queue_offset in [*lost, lost.stop] else m.queue_offset
            assert found == wanted


def test_counts_of_queues_have_gap_units_and_those_of_the_log_do_not(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(300))] * 40, Layout(index=False))
    for m in laid.messages[5:8]:
        put(laid, m, "crc", b"\1\2\3\4")
    made = salvage(laid.root, tmp_path / "new")
    assert (made.messages, made.lost_messages) == (37, 3)
    (found,) = store_tables.queues(take(tmp_path / "new")).to_pylist()
    assert found["messageCount"] == found["maxOffset"] - found["minOffset"] == 40
    (by,) = store_tables.queues(by_log.snapshot(tmp_path / "new", tmp_path / "cache")).to_pylist()
    assert by["messageCount"] == 37


def test_queue_offsets_far_from_each_other_take_no_time_to_set_aside() -> None:
    count = 100_000
    kept, reasons = _choose(np.arange(count) << 40, np.arange(count) * 100, -1, -1)
    assert kept.sum() == 1
    assert len(reasons) == count - 1


def test_a_queue_offset_far_behind_the_last_one_kept_is_set_aside() -> None:
    kept, _ = _choose(np.array([11, 12]), np.array([5_000, 5_200]), 10, 4_900)
    assert kept.all()
    kept, reasons = _choose(np.array([2**50]), np.array([5_000]), 10, 4_900)
    assert not kept.any()
    assert reasons == {0: OUT_OF_ORDER}


def test_names_of_files_that_are_no_utf8_stand_in_the_report(laid: Laid, tmp_path: Path) -> None:
    path = max((laid.root / "commitlog").iterdir())
    path.rename(path.with_name("\udcff"))
    assert salvage(laid.root, tmp_path / "new").moved > 0
    table = pq.read_table(tmp_path / "new" / ".mqlog" / "salvage" / "report.parquet")
    assert any((file or "").endswith("commitlog/?") for file in table["file"].to_pylist())


def test_a_delay_level_that_is_no_number_is_carried_over(laid: Laid, tmp_path: Path) -> None:
    table = {"9" * 5_000: 7, "x": 8}
    text = json.dumps({"offsetTable": table})
    (laid.root / "config" / "delayOffset.json").write_text(text)
    salvage(laid.root, tmp_path / "new")
    found = json.loads((tmp_path / "new" / "config" / "delayOffset.json").read_text())
    assert found["offsetTable"] == table


def test_records_of_moved_blocks_lie_where_they_say_again(laid: Laid, tmp_path: Path) -> None:
    path = laid.root / "commitlog" / f"{laid.low + SIZE:020d}"
    data = path.read_bytes()
    path.write_bytes(data[1024:] + data[:1024])
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.moved > 0
    pieces = data[1024:] + data[:1024]
    whole = [m for m in laid.messages if laid.file_of(m)[0] != path or encode(m) in pieces]
    assert made.records == len(whole)


def test_a_record_inside_a_message_is_no_record_of_the_log(tmp_path: Path) -> None:
    """Its bytes say a place in a hole of the log, but lie in no block that could be from there."""
    planted = Message(topic="Topic0", body=b"planted", queue_offset=3, physical_offset=SIZE + 400)
    outer = Message(topic="Topic0", body=b"x" * 100 + encode(planted) + b"y" * 100)
    laid = lay_out(tmp_path / "store", [*messages(3, 60), outer, *messages(4, 20)], layout(0))
    carrier = laid.messages[60]
    put(laid, carrier, "crc", b"\0\0\0\0")
    write(laid.root / "commitlog" / f"{SIZE:020d}", 300, bytes(700))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.moved == 0
    assert b"planted" not in {m.body for m in found_in(tmp_path / "new")}


def test_no_group_goes_on_behind_the_end_of_a_queue(laid: Laid, tmp_path: Path) -> None:
    for path in sorted((laid.root / "commitlog").iterdir())[2:]:
        path.unlink()
    salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    ends = {(q.topic, q.queue_id): q.high for q in take(tmp_path / "new").queues}
    before = laid.layout.group_offsets["Topic0", "G"]
    after = BrokerConfig(StoreDir.at(tmp_path / "new")).consumer_offsets()["Topic0", "G"]
    assert after == {q: min(n, ends.get(("Topic0", q), 0)) for q, n in before.items()}
    assert after != before


def test_configuration_that_is_torn_is_a_loss(laid: Laid, tmp_path: Path) -> None:
    """Also in a database; of the others all is carried over."""
    groups = BrokerConfig(StoreDir.at(laid.root)).consumer_offsets()
    move_config(laid.root)
    torn = laid.root / "config" / "delayOffset.json"
    torn.write_text('{"x')
    torn.with_name(f"{torn.name}.bak").unlink(missing_ok=True)
    (laid.root / "config" / "topics" / "CURRENT").write_text("MANIFEST-999999\n")
    made = salvage(laid.root, tmp_path / "new")
    assert (made.lost_files, made.lost_messages, made.is_complete) == (2, 0, False)
    text = (tmp_path / "new" / ".mqlog" / "salvage" / "report.txt").read_text()
    assert "lost: this database is not carried over: [MQLOG_CORRUPT_CONFIG]" in text
    assert text.count("file=config/topics") == 1
    assert "file=config/delayOffset.json" in text
    assert BrokerConfig(StoreDir.at(tmp_path / "new")).consumer_offsets() == groups


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("is_json_newer", [False, True])
def test_topics_groups_and_offsets_in_rocksdb_become_files(
    laid: Laid, tmp_path: Path, *, single: bool, is_json_newer: bool
) -> None:
    """Of a file and a database with one table, the one counts that was changed more often."""
    table = json.loads((laid.root / "config" / "topics.json").read_text())
    before = BrokerConfig(StoreDir.at(laid.root))
    offsets, groups, topics = before.consumer_offsets(), before.groups(), before.topics()
    move_queues(laid.root)
    move_config(laid.root, single=single, counter=7)
    table["topicConfigTable"] = {"Old": table["topicConfigTable"]["Topic0"] | {"topicName": "Old"}}
    table["dataVersion"] = {"counter": 8 if is_json_newer else 6}
    (laid.root / "config" / "topics.json").write_text(json.dumps(table))
    made = salvage(laid.root, tmp_path / "new")
    assert made.is_complete
    after = BrokerConfig(StoreDir.at(tmp_path / "new"))
    assert (after.consumer_offsets(), after.groups()) == (offsets, groups)
    assert ("Old" in after.topics()) == is_json_newer
    assert {topic: of for topic, of in after.topics().items() if topic != "Old"} == topics
    version = json.loads((tmp_path / "new" / "config" / "consumerOffset.json").read_text())
    assert version["dataVersion"]["counter"] == 7
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]


def test_configuration_in_rocksdb_needs_its_package(
    laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_config(laid.root)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnsupportedStoreError, match="pip install rocksdict"):
        salvage(laid.root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_torn_file_of_config_is_taken_from_its_backup(laid: Laid, tmp_path: Path) -> None:
    before = BrokerConfig(StoreDir.at(laid.root)).consumer_offsets()
    (laid.root / "config" / "consumerOffset.json").write_text('{"offsetTab')
    for name in ("topics.json", "topics.json.bak"):
        (laid.root / "config" / name).write_text("{")
    salvage(laid.root, tmp_path / "new")
    after = BrokerConfig(StoreDir.at(tmp_path / "new"))
    assert after.consumer_offsets() == before
    assert {t: c.read_queue_nums for t, c in after.topics().items()} == {
        f"Topic{number}": 2 for number in range(3)
    }
    assert sum(kinds(tmp_path / "new").values()) == 2


def test_a_store_without_a_whole_record_is_an_error(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(1, 5), layout(0))
    for path in (laid.root / "commitlog").iterdir():
        path.write_bytes(random.Random(1).randbytes(SIZE))
    with pytest.raises(CorruptStoreError, match="no whole record"):
        salvage(laid.root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("size", [-1, 0, 2**31, 2**70])
def test_a_file_size_that_no_broker_maps_is_refused(laid: Laid, tmp_path: Path, size: int) -> None:
    with pytest.raises(InvalidOptionError, match=r"--file-size='-?\d+': must be 1 to 2147483647"):
        salvage(laid.root, tmp_path / "new", file_size=size)


def test_a_file_size_that_no_record_fits_is_named(laid: Laid, tmp_path: Path) -> None:
    with pytest.raises(CorruptStoreError, match=r"of 50 bytes: .* give it by --file-size"):
        salvage(laid.root, tmp_path / "new", file_size=50)


def test_a_log_cut_short_while_it_is_read_is_an_error(
    laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_range = durable.copy_range

    def cut(source: int, fd: int, position: int, size: int) -> int:
        os.truncate(f"/proc/self/fd/{source}", position + size // 2)
        return copy_range(source, fd, position, size)

    monkeypatch.setattr(durable, "copy_range", cut)
    with pytest.raises(CorruptStoreError, match="cut short while it was read"):
        salvage(laid.root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_large_file_of_config_is_carried_over_whole(laid: Laid, tmp_path: Path) -> None:
    size = MAX_CONFIG_BYTES + 1
    (laid.root / "config" / "notes.db").touch()
    os.truncate(laid.root / "config" / "notes.db", size)
    salvage(laid.root, tmp_path / "new")
    assert (tmp_path / "new" / "config" / "notes.db").stat().st_size == size


def test_a_target_that_is_there_or_in_the_store_is_refused(laid: Laid, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for target in (tmp_path / "new", laid.root / "new"):
        with pytest.raises(InvalidOptionError):
            salvage(laid.root, target)


def test_a_salvage_that_was_killed_is_repeated(laid: Laid, tmp_path: Path) -> None:
    """At each of some hundred calls that change the file system."""
    with dying.killed(10**9) as calls:
        salvage(laid.root, tmp_path / "whole")
    expected = served(tmp_path / "whole")
    for at in soak.sample(range(calls.count), check=3, test=12):
        with dying.killed(at):
            salvage(laid.root, tmp_path / "new")
        assert at > calls.count - 10 or not (tmp_path / "new").exists()
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        salvage(laid.root, tmp_path / "new")
        assert served(tmp_path / "new") == expected
        assert not (tmp_path / "new.partial").exists()
        shutil.rmtree(tmp_path / "new")


@pytest.mark.parametrize("name", ["write_at", "create", "copy_range"])
def test_a_full_disk_is_an_error_and_leaves_nothing(
    laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    act, left = getattr(durable, name), 4

    def full(*args: object) -> object:
        nonlocal left
        left -= 1
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return act(*args)

    monkeypatch.setattr(durable, name, full)
    with pytest.raises(NoSpaceError, match="new"):
        salvage(laid.root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_records_with_a_checksum_of_their_own_keep_it_right(tmp_path: Path) -> None:
    """It covers PHYSICALOFFSET, which is higher now."""
    sent = [with_property_crc(m) for m in messages(5)]
    laid = lay_out(tmp_path / "store", sent, Layout(commit_log_bytes=SIZE, index_units=400))
    write(laid.root / "commitlog" / f"{0:020d}", 2000, bytes(200))
    made = salvage(laid.root, tmp_path / "new")
    assert made.moved_by > 0
    assert check(tmp_path / "new") == []
    assert made.lost_messages > 0


def test_files_that_changed_names_are_put_right(laid: Laid, tmp_path: Path) -> None:
    one, other = sorted((laid.root / "commitlog").iterdir())[1:3]
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]
    assert made.lost_bytes == 0


def in_queues(laid: Laid) -> list[Message]:
    return [m for _, held in sorted(laid.queues.items()) for m in held]


def test_a_second_copy_of_a_file_changes_nothing(laid: Laid, tmp_path: Path) -> None:
    path = sorted((laid.root / "commitlog").iterdir())[1]
    shutil.copy(path, path.with_name("copy-of-a-file"))
    made = salvage(laid.root, tmp_path / "new")
    assert made.is_complete
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]


def test_the_last_file_without_a_name_is_put_behind_the_others(laid: Laid, tmp_path: Path) -> None:
    for path in sorted((laid.root / "commitlog").iterdir())[-2:]:
        path.rename(path.with_name(f"{path.name}.bak"))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]
    assert made.moved > 0


def test_a_log_of_which_no_file_has_its_name_is_found(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(6), layout(2))
    for number, path in enumerate(sorted((laid.root / "commitlog").iterdir())):
        path.rename(path.with_name(f"#{number}"))
    made = salvage(laid.root, tmp_path / "new", file_size=SIZE)
    assert check(tmp_path / "new") == []
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]
    assert made.moved == len(laid.messages)


@pytest.mark.parametrize("name", [f"{2**62 // SIZE * SIZE:020d}", "9" * 20, f"{7:020d}"])
def test_a_name_far_from_all_others_is_not_believed(laid: Laid, tmp_path: Path, name: str) -> None:
    path = sorted((laid.root / "commitlog").iterdir())[-1]
    path.rename(path.with_name(name))
    salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert served(tmp_path / "new") == [row(m, "b") for m in in_queues(laid)]


def test_a_lone_file_under_another_number_is_found(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(6, 3), layout(2))
    (path,) = (laid.root / "commitlog").iterdir()
    path.rename(path.with_name(f"{7:020d}"))
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.messages == 3


def test_a_file_that_was_cut_short_does_not_tell_the_size_of_all(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(6, 20), Layout(commit_log_bytes=SIZE, index=False))
    first, second = sorted((laid.root / "commitlog").iterdir())[:2]
    first.write_bytes(b"\1" * 100)
    second.rename(second.with_name("9" * 20))
    for path in sorted((laid.root / "commitlog").iterdir())[1:-1]:
        path.unlink()
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.moved == made.messages > 0
    assert {len(data) for _, data in stored(tmp_path / "new")} == {SIZE}


def test_names_tell_the_size_of_all_where_no_file_is_whole(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(6, 20), Layout(commit_log_bytes=SIZE, index=False))
    first, second, third, *others = sorted((laid.root / "commitlog").iterdir())
    first.write_bytes(b"\1" * 100)
    second.write_bytes(second.read_bytes()[:3000])
    third.write_bytes(b"\1" * 3)
    third.rename(third.with_name(f"{SIZE - 777:020d}"))
    for path in others:
        path.unlink()
    made = salvage(laid.root, tmp_path / "new")
    assert check(tmp_path / "new") == []
    assert made.messages > 0
    assert {len(data) for _, data in stored(tmp_path / "new")} == {SIZE}


@pytest.mark.parametrize(
    ("properties", "is_whole"),
    [
        (b"k\x01\x1b[31m\x03\x02", True),
        (b"k\x01one zero \0 in a value\x02", True),
        ("k\x01\x85Ω\x02".encode(), True),
        (b"k\x01two \0\0 zeros\x02", False),
        (b"\0\x01the first byte\x02", False),
        (b"k\x01the last byte\0", False),
        (b"k\x01no UTF-8 \xff\x02", False),
    ],
)
def test_control_characters_of_a_producer_are_no_damage_and_zeros_of_a_hole_are(
    tmp_path: Path, properties: bytes, is_whole: bool
) -> None:
    odd = Message(topic="T", body=b"x", properties=properties)
    sent = [replace(odd, properties=b""), odd, replace(odd, properties=b"KEYS\x01k\x02")]
    laid = lay_out(tmp_path / "store", sent, Layout(commit_log_bytes=SIZE, index_units=400))
    made = salvage(laid.root, tmp_path / "new", file_size=SIZE)
    assert (made.records, made.doubted) == ((3, 0) if is_whole else (2, 1))
    assert check(tmp_path / "new") == []


def test_a_plain_record_that_says_that_it_is_compressed_is_doubted(tmp_path: Path) -> None:
    """One changed bit of sysFlag, which no checksum covers: no consumer could open the body."""
    sent = [Message(topic="T", body=b"plain %d" % number) for number in range(3)]
    laid = lay_out(tmp_path / "store", sent, Layout(commit_log_bytes=SIZE, index=False))
    put(laid, laid.messages[1], "sys_flag", struct.pack(">i", oracle.COMPRESSED))
    made = salvage(laid.root, tmp_path / "new", file_size=SIZE)
    assert (made.records, made.doubted, made.lost_messages) == (2, 1, 1)
    assert check(tmp_path / "new") == []
    assert [r["body"] for r in served(tmp_path / "new")] == [b"plain 0", b"plain 2"]
    table = pq.read_table(tmp_path / "new" / ".mqlog" / "salvage" / "report.parquet")
    (doubted,) = [r for r in table.to_pylist() if r["kind"] == "doubted"]
    assert doubted["record"] == encode(replace(laid.messages[1], sys_flag=oracle.COMPRESSED))
    assert doubted["reason"].startswith("the body cannot be decompressed: zlib body is broken")


def test_a_message_born_before_1970_is_whole(tmp_path: Path) -> None:
    sent = [Message(topic="T", body=b"x", born_timestamp_ms=moment) for moment in (-1, -(10**12))]
    laid = lay_out(tmp_path / "store", sent, Layout(commit_log_bytes=SIZE, index=False))
    assert salvage(laid.root, tmp_path / "new", file_size=SIZE).is_complete


@pytest.mark.parametrize(("before", "after"), [(40, 6), (6, 40), (9, 1)])
def test_of_a_topic_that_was_made_again_the_new_messages_are_served(
    tmp_path: Path, before: int, after: int
) -> None:
    """The deleted ones stay in the log, as in the source, and are in no queue."""
    small = Layout(commit_log_bytes=SIZE, queue_units=8, index=False)
    laid = make_again(lay_out(tmp_path / "store", twice(before, after), small))
    expected = served(laid.root)
    made = salvage(laid.root, tmp_path / "new", file_size=SIZE)
    assert made.is_complete
    assert (made.records, made.messages) == (2 * (before + after), before + 2 * after)
    assert served(tmp_path / "new") == expected
    assert [f for f in check(tmp_path / "new") if f.severity == "error"] == []
    table = pq.read_table(tmp_path / "new" / ".mqlog" / "salvage" / "report.parquet")
    told = {(r["kind"], r["topic"], r["queueId"]): r["count"] for r in table.to_pylist()}
    assert told == {("deleted", NEW, q): (before + 1 - q) // 2 for q in range(2)}

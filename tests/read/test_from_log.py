"""Stores read by their CommitLog alone: the rows of ConsumeQueues without ConsumeQueues."""

import logging
import pickle
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.derive import log_sections
from mqstore.derive.walked_log import open_log_queues
from mqstore.errors import (
    CorruptStoreError,
    StoreError,
    UnsupportedStoreError,
    UnsupportedTopicError,
)
from mqstore.files.base.store_dir import StoreDir
from mqstore.format.consume_queue import HIGHEST_QUEUE_OFFSET
from mqstore.read.directory import open_origin, take
from mqstore.read.log_directory import open_by_log
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.tables import store as store_tables
from support import by_log, expectations, killed_commit, oracle, strategies
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out
from support.writing import SMALL, append, rows


def without_queues(root: Path, target: Path) -> Path:
    """A copy of a store that has lost its ConsumeQueues and IndexFiles."""
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("consumequeue", "index"))
    return target


def test_golden_stores_without_queues_read_the_same_rows(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    _, root = golden
    lost = without_queues(root, tmp_path / "store")
    whole, found = take(root, broker_name="b"), by_log.snapshot(lost, tmp_path / "cache")
    held = [queue for queue in whole.queues if queue.low < queue.high]
    assert list(found.queues) == held
    settings = ScanSettings(columns=by_log.FULL)
    expected = [row for b in scan(slices_of(whole), settings) for row in expectations.rows(b)]
    assert by_log.rows(found) == expected
    merged = by_log.rows(found, merged=True)
    assert sorted(by_log.places(merged)) == sorted(by_log.places(expected))


def test_golden_tables_are_the_same(golden: tuple[str, Path], tmp_path: Path) -> None:
    _, root = golden
    lost = without_queues(root, tmp_path / "store")
    found, whole = by_log.snapshot(lost, tmp_path / "cache"), take(root, broker_name="b")
    expected = [row for row in store_tables.queues(whole).to_pylist() if row["messageCount"]]
    assert store_tables.queues(found).to_pylist() == expected
    assert store_tables.topics(found).to_pylist() == store_tables.topics(whole).to_pylist()


def test_golden_times_begin_at_the_same_messages(golden: tuple[str, Path], tmp_path: Path) -> None:
    _, root = golden
    times = sorted({row["storeTimestamp"] // 1000 for row in by_log.rows(take(root))})
    theirs = open_origin(root).bounds()
    ours = open_by_log(root, (), str(tmp_path / "cache")).bounds()
    queues = [queue for queue in theirs.snapshot().queues if queue.low < queue.high]
    ours.snapshot()
    for ms in (0, times[0], times[len(times) // 2], times[-1], times[-1] + 1):
        wanted = [ms] * len(queues)
        assert ours.first_at(queues, wanted) == theirs.first_at(queues, wanted)
    ours.close()
    theirs.close()


@given(batch=strategies.batches(max_size=30), layout=strategies.layouts())
def test_any_store_reads_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], layout: Layout
) -> None:
    folder = tmp_path_factory.mktemp("store")
    laid = lay_out(folder / "store", batch, layout)
    shutil.rmtree(laid.root / "consumequeue")
    found = by_log.snapshot(laid.root, folder / "cache")
    expected = [expectations.row(m, "b") for _, held in sorted(laid.queues.items()) for m in held]
    assert by_log.rows(found) == expected


@given(
    numbers=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    most=st.integers(1, 9),
    data=st.data(),
)
def test_any_queue_offsets_are_read_in_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    numbers: list[int],
    most: int,
    data: st.DataObject,
) -> None:
    """Sections of a few records each: gaps, doubles and offsets that go back lie across them."""
    folder = tmp_path_factory.mktemp("store")
    laid = lay_out(folder / "store", [Message(body=b"%d" % n) for n in range(len(numbers))])
    held = sorted(by_log.renumber(laid, numbers), key=lambda m: (m.queue_offset, m.physical_offset))
    rows_of_section = data.draw(st.integers(1, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_sections, "SECTION_ROWS", rows_of_section)
        patch.setattr("mqstore.derive.log_walk._FIRST_WINDOW_BYTES", 256)
        patch.setattr("mqstore.derive.log_walk._WINDOW_BYTES", 256)
        queues = open_log_queues(StoreDir.at(laid.root), str(folder / "cache"))
    low = data.draw(st.integers(0, 12))
    high = data.draw(st.integers(low, 13))
    expected = [m for m in held if low <= m.queue_offset < high]
    found = list(queues.units(("T", 0), low, high, most))
    assert all(0 < len(units) <= most for units in found)
    joined = log_sections.LogUnits.joined(found)
    assert joined.physical_offsets.tolist() == [m.physical_offset for m in expected]
    assert joined.queue_offsets.tolist() == [m.queue_offset for m in expected]
    assert joined.sizes.tolist() == [m.size for m in expected]
    missing, first_gap, doubled, first_double = queues.count_gaps(("T", 0))
    queues.close()
    there = sorted(set(numbers))
    gaps = [n for n in range(there[0], there[-1]) if n not in there]
    doubles = [n for n in there if numbers.count(n) > 1]
    assert (missing, doubled) == (len(gaps), len(numbers) - len(there))
    assert (first_gap, first_double) == (min(gaps, default=-1), min(doubles, default=-1))


def test_gaps_and_doubles_are_named_and_every_message_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(7)])
    held = by_log.renumber(laid, [0, 1, 2, 1, 2, 2, 5])
    with caplog.at_level(logging.WARNING):
        found = by_log.snapshot(laid.root, tmp_path / "cache")
    assert "T/0: no record has 2 of its queue offsets, the first 3" in caplog.text
    assert "3 records have the queueOffset of another, the first 1" in caplog.text
    expected = sorted(held, key=lambda m: (m.queue_offset, m.physical_offset))
    assert [row["body"] for row in by_log.rows(found)] == [m.body for m in expected]
    (row,) = store_tables.queues(found).to_pylist()
    assert (row["minOffset"], row["maxOffset"]) == (0, 6)
    assert row["messageCount"] == len(held)
    assert row["bytes"] == sum(m.size for m in held)
    assert store_tables.topics(found).to_pylist()[0]["messageCount"] == len(held)


@pytest.mark.parametrize("number", [2**63 - 1, 2**62 - 1, HIGHEST_QUEUE_OFFSET + 1, -1])
def test_a_queue_offset_that_no_file_can_have_is_left_out(tmp_path: Path, number: int) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(5)])
    path, position = laid.file_of(laid.messages[2])
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, position + 20, number)
    path.write_bytes(data)
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    assert [row["queueOffset"] for row in by_log.rows(found)] == [0, 1, 3, 4]
    assert store_tables.queues(found).to_pylist()[0]["maxOffset"] == 5


def test_messages_that_the_queue_skips_are_read(store: MakeStore, tmp_path: Path) -> None:
    """As a 4.9.7 broker left a disk: its queue goes on with later records, at lower places."""
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(9)])
    path, _ = laid.unit_of(("T", 0), 0)
    units = path.read_bytes()
    path.write_bytes((units[:40] + units[6 * 20 : 9 * 20]).ljust(len(units), b"\0"))
    with pytest.raises(CorruptStoreError, match=r"of another topic, queue or.*queues=log"):
        by_log.rows(take(laid.root))
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    assert [row["queueOffset"] for row in by_log.rows(found)] == list(range(9))
    (row,) = store_tables.queues(found).to_pylist()
    assert (row["messageCount"], row["namedCount"]) == (9, 5)


def test_a_partition_has_what_its_share_of_bytes_says(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(500)) for _ in range(40)])
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    slices = slices_of(found)
    (weighed,) = weigh(slices)
    assert weighed.total == sum(m.size for m in laid.held)
    parts = split([weighed], SplitLimits(max_bytes=laid.held[0].size * 10))
    assert [piece.end - piece.start for (piece,) in parts] == [10, 10, 10, 10]
    settings = ScanSettings(columns=("queueOffset",))
    read = [row for part in parts for batch in scan(part, settings) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in read] == list(range(40))


def test_a_task_reads_what_was_planned_though_the_log_has_grown(tmp_path: Path) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    planned = pickle.loads(pickle.dumps(by_log.snapshot(root, tmp_path / "cache")))
    before = by_log.places(by_log.rows(planned))
    append(root, rows(5), **SMALL)
    assert by_log.places(by_log.rows(planned)) == before
    assert len(by_log.rows(by_log.snapshot(root, tmp_path / "cache"))) == 10


def test_a_task_that_cannot_see_the_drivers_cache_walks_itself(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"1"), Message(body=b"2")])
    planned = by_log.snapshot(laid.root, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    assert [row["body"] for row in by_log.rows(planned)] == [b"1", b"2"]


def test_a_commit_under_way_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    before = by_log.rows(by_log.snapshot(root, tmp_path / "cache"))
    killed_commit.leave(root, "decided")
    assert by_log.rows(by_log.snapshot(root, tmp_path / "cache")) == before


def test_records_with_several_messages_are_refused_by_name(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(sys_flag=0x80), Message(topic="Other")])
    with pytest.raises(UnsupportedTopicError, match="1 records of T/0 hold several messages"):
        by_log.snapshot(laid.root, tmp_path / "cache")
    found = by_log.snapshot(laid.root, tmp_path / "cache", strict=False)
    assert [queue.topic for queue in found.queues] == ["Other"]


def test_stores_with_other_queues_are_read_and_the_refusal_offers_it(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"1")])
    shutil.rmtree(laid.root / "consumequeue")
    path = laid.root / "consumequeue" / "CURRENT"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(StoreError, match=r"queues=log \(mqlog: --from-log\)"):
        take(laid.root)
    assert len(by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))) == 1


def test_another_log_stays_refused(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "dledger-n0").mkdir(parents=True)
    with pytest.raises(UnsupportedStoreError):
        open_by_log(laid.root)


def test_a_store_without_any_queue_offers_its_log(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    shutil.rmtree(laid.root / "consumequeue")
    with pytest.raises(CorruptStoreError, match=r"no ConsumeQueue at all\. queues=log"):
        take(laid.root)


def test_keys_are_looked_for_by_a_scan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keyed = [Message(properties=oracle.join_properties({"KEYS": f"k{n}"})) for n in range(3)]
    laid = lay_out(tmp_path / "store", keyed)
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    with caplog.at_level(logging.WARNING):
        slices = found.origin.bounds().narrow(slices_of(found), ["k1"], [])
    assert "a scan of 3 messages" in caplog.text
    settings = ScanSettings(columns=("queueOffset",), keys=("k1",))
    assert [b.to_pylist() for b in scan(slices, settings)] == [[{"queueOffset": 1}]]

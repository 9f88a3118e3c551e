"""REPO@all: each message that a point of a repository has, once, and what no point has is told."""

import pickle
import random
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import mqlog
from mqstore.check import check
from mqstore.copy.point_continues import Accepted
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import InvalidOptionError, PointNotFoundError, UnsupportedStoreError
from mqstore.read.at_rest import open_at_rest
from snapshot_copy.copied import SMALL, messages, rows, rows_in
from snapshot_copy.pointed import all_of, backing, in_any_point, kept_at, rows_of
from support import rocksdb, soak
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, lay_out

HISTORIES = soak.size("histories_of_points", check=5, test=12, whole=2_000)


def missing_in(warnings: str) -> dict[tuple[str, int], int]:
    """The number of messages of each queue that warnings say no point has."""
    told = re.findall(r"no point has (\d+) messages of (\w+)/(\d+)", warnings)
    return {(topic, int(queue)): int(count) for count, topic, queue in told}


def history_of(seed: int, folder: Path) -> Laid:
    """Let a store grow and expire, with points now and then: none, some or many files go unseen."""
    chance = random.Random(seed)
    layout = replace(SMALL, queue_units=chance.choice([4, 8, 16]))
    count, expired = chance.randrange(1, 40), 0
    laid = lay_out(folder / "store", messages(count), layout)
    take_point(laid.root, backing(folder / "repository"))
    for _ in range(chance.randrange(1, 8)):
        count += chance.choice([0, 1, 5, 20, 60])
        files = lay_out(folder / "whole", messages(count), layout)
        there = len(list((files.root / "commitlog").iterdir()))
        shutil.rmtree(files.root)
        expired = max(expired, min(there - 1, expired + chance.choice([0, 0, 1, 3, 12])))
        grow(laid, messages(count), replace(layout, expired_files=expired))
        if chance.random() < 0.7:
            take_point(laid.root, backing(folder / "repository"))
    return laid


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_it_has_each_message_that_a_point_has_and_counts_those_that_none_has(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history_of(seed, tmp_path)
    repository = tmp_path / "repository"
    expected = in_any_point(repository)

    with closing(open_at_rest(all_of(repository)).bounds()) as source:
        caplog.clear()
        snapshot = source.snapshot()
        told = missing_in(caplog.text)
        assert rows_in(snapshot) == {q: held for q, held in expected.items() if held}
    for queue in snapshot.queues:
        name, held = (queue.topic, queue.queue_id), expected.get((queue.topic, queue.queue_id), [])
        assert queue.messages == len(held)
        if held:
            assert queue.low == held[0][0]
            assert told.get(name, 0) == queue.high - queue.low - len(held)


def rows_through(place: mqlog.Place, **options: object) -> list[tuple[str, int, bytes]]:
    columns = ["topic", "queueOffset", "body"]
    found = place.scan(columns=columns, **options)  # type: ignore[arg-type]
    return [(row["topic"], row["queueOffset"], row["body"]) for row in found]


def two_windows(folder: Path) -> Path:
    """Two points, between which brokers deleted files that neither has."""
    laid = lay_out(folder / "store", messages(60), SMALL)
    take_point(laid.root, backing(folder / "repository"))
    grow(laid, messages(160), replace(SMALL, expired_files=14))
    take_point(laid.root, backing(folder / "repository"))
    return folder / "repository"


def test_what_no_point_has_is_told_with_its_number_at_each_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = mqlog.open(f"{two_windows(tmp_path)}@all")
    caplog.clear()
    found = rows_through(place)
    told = missing_in(caplog.text)
    assert sum(told.values()) == 160 - len(found) > 0
    assert "which brokers deleted between two points: queue offsets [" in caplog.text
    numbers = {body for _, _, body in found}
    assert {b"message 0", b"message 59", b"message 159"} <= numbers
    assert b"message 70" not in numbers


def test_offsets_and_keys_find_messages_on_both_sides_of_a_gap(tmp_path: Path) -> None:
    place = mqlog.open(f"{two_windows(tmp_path)}@all")
    for number, count in ((5, 1), (159, 1), (70, 0)):
        assert len(rows_through(place, keys=[f"k{number}"])) == count
    every = rows_through(place, subscribe="A")
    start = {"A": dict.fromkeys((0, 1, 2), 9)}
    behind = rows_through(place, subscribe="A", starting_offsets=start)
    assert sorted(behind) == sorted(row for row in every if row[1] >= 9)
    amid = rows_through(place, subscribe="A", starting_offsets={"A": {0: 12, 1: 12, 2: 12}})
    assert sorted(amid) == sorted(row for row in every if row[1] >= 12)


def test_tasks_read_the_points_that_the_read_was_planned_with(tmp_path: Path) -> None:
    repository = two_windows(tmp_path)
    with closing(open_at_rest(all_of(repository)).bounds()) as source:
        snapshot = source.snapshot()
    planned = pickle.loads(pickle.dumps(snapshot))
    laid = lay_out(tmp_path / "later" / "store", messages(170), replace(SMALL, expired_files=14))
    take_point(laid.root, backing(repository), accepted=Accepted(other_store=True))
    assert rows_in(planned) == rows_in(snapshot)


def test_without_a_gap_it_is_restored_as_one_store(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [60, 61], SMALL)
    repository = tmp_path / "repository"
    grow(laid, messages(90), replace(SMALL, expired_files=6))
    take_point(laid.root, backing(repository))
    restore_point(all_of(repository), tmp_path / "restored")
    whole = lay_out(tmp_path / "whole", messages(90), SMALL)
    assert rows(tmp_path / "restored") == rows(whole.root)
    assert [f for f in check(tmp_path / "restored") if f.severity == "error"] == []


def test_with_a_gap_it_is_not_restored_and_the_place_of_the_gap_is_told(tmp_path: Path) -> None:
    repository = two_windows(tmp_path)
    with pytest.raises(InvalidOptionError, match=r"no point has bytes \[\d+, \d+\) of commitlog"):
        restore_point(all_of(repository), tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_points_of_two_stores_are_refused_by_name(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    take_point(lay_out(tmp_path / "a" / "store", messages(60), SMALL).root, backing(repository))
    others = [replace(m, body=m.body + b"!") for m in messages(70)]
    other = lay_out(tmp_path / "b" / "store", others, SMALL).root
    take_point(other, backing(repository), accepted=Accepted(other_store=True))
    with pytest.raises(InvalidOptionError, match=r"point 2, of .*/b/store, does not go on from po"):
        rows_of(all_of(repository))


def test_a_topic_made_again_counts_as_it_is_now_and_its_past_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = tmp_path / "repository"
    old = [Message(topic="A", queue_id=0, body=b"old %d" % n) for n in range(30)]
    kept = [Message(topic="B", queue_id=0, body=b"%d" % n) for n in range(32)]
    laid = lay_out(tmp_path / "store", [*old, *kept], SMALL)
    take_point(laid.root, backing(repository))
    end = -(-laid.high // SMALL.commit_log_bytes) * SMALL.commit_log_bytes
    shutil.rmtree(laid.root)
    new = [Message(topic="A", queue_id=0, body=b"new %d" % n) for n in range(9)]
    more = [replace(kept[0], body=b"more %d" % n) for n in range(8)]
    later = replace(SMALL, start=end, first_queue_offsets={("B", 0): 32})
    lay_out(laid.root, [*new, *more], later)
    take_point(laid.root, backing(repository))
    caplog.clear()
    found = rows_of(all_of(repository))
    assert [body for _, _, body in found["A", 0]] == [b"new %d" % n for n in range(9)]
    assert len(found["B", 0]) == 40
    told = "A/0 was deleted and made again after point 1: its messages of before, up to queue "
    assert f"{told}offset 30, are in {repository}@1 only" in caplog.text


def test_what_a_recovery_cut_off_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    laid, _ = kept_at(tmp_path, [60], SMALL)
    shutil.rmtree(laid.root)
    lay_out(laid.root, messages(40), SMALL)
    take_point(laid.root, backing(tmp_path / "repository"))
    caplog.clear()
    assert rows_of(all_of(tmp_path / "repository")) == rows(laid.root)
    assert "the broker cut the end of its CommitLog between points 1 and 2" in caplog.text


def test_queues_in_rocksdb_and_reads_by_the_log_are_refused_by_name(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(20), SMALL)
    rocksdb.move_queues(laid.root)
    take_point(laid.root, backing(tmp_path / "repository"))
    with pytest.raises(UnsupportedStoreError, match=r"its queues are in RocksDB.*name a point"):
        open_at_rest(all_of(tmp_path / "repository"))
    with pytest.raises(InvalidOptionError, match="has what several points have"):
        list(mqlog.open(f"{tmp_path}/repository@all", queues="log").scan())
    with pytest.raises(InvalidOptionError, match="mqlog verify REPO checks their bytes"):
        check(all_of(tmp_path / "repository"))


def test_a_repository_without_points_is_named(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [20], SMALL)
    repository = tmp_path / "repository"
    (repository / "points" / "00000001").unlink()
    with pytest.raises(PointNotFoundError, match="it has no points"):
        rows_of(all_of(repository))
    assert laid.root.exists()

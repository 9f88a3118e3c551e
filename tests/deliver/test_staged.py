"""Large writes that are to happen once: tasks write files, which the publisher streams."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deliver.test_once import CONTROL, of, settings_for
from live.taking import Take, TakingCluster
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once import handed
from mqstore.deliver.once.commit import publish
from mqstore.deliver.once.errors import PublicationError
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.prepare import of_batch, prepare, withdraw
from mqstore.deliver.task import hand_on
from mqstore.errors import InvalidMessageError
from mqstore.files.txn.errors import CorruptStagingError, StagingNotSharedError
from support.writing import rows

LIMIT = 2_000


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic(CONTROL)
        found.topic("T", 2)
        yield found


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def job_of(taking: TakingCluster, folder: Path, **more: Any) -> SendJob:
    named = {"staging_path": str(folder), "inline_bytes": LIMIT, **more}
    return prepare(settings_for(taking, **named), of([1]).schema)


def handed_on(job: SendJob, *parts: pa.RecordBatch) -> list[SendReport]:
    return [hand_on(job, part, partition=n, attempt=9) for n, part in enumerate(map(halves, parts))]


def halves(part: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [part.slice(0, part.num_rows // 2), part.slice(part.num_rows // 2)]


def test_tasks_above_the_limit_write_files_and_the_commit_removes_them(
    taking: TakingCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "not" / "there"
    numbers = [n // 2 for n in range(200)]
    job = job_of(taking, folder)
    reports = handed_on(job, of(numbers), of([7]), of(numbers))
    assert [bool(report.handed.path) for report in reports] == [True, False, True]
    assert len(files(folder)) == 2
    assert publish(job, reports).messages == 401
    assert Counter(taking.all_bodies("T")) == Counter(b"%d" % n for n in [*numbers, 7, *numbers])
    assert list(folder.iterdir()) == []
    again = handed_on(job, of([7]), of(numbers), of(numbers))
    assert publish(job, again).is_repeated
    assert list(folder.iterdir()) == []


def test_rows_of_a_queue_keep_their_order_through_a_file(
    taking: TakingCluster, tmp_path: Path
) -> None:
    bodies = [b"%d" % n for n in range(600)]
    part = rows(600, body=bodies, queueId=[n % 2 for n in range(600)])
    job = prepare(settings_for(taking, staging_path=str(tmp_path), inline_bytes=LIMIT), part.schema)
    publish(job, handed_on(job, part))
    assert [taking.bodies("T", n) for n in range(2)] == [bodies[0::2], bodies[1::2]]


def test_the_next_try_removes_the_files_of_one_that_was_killed(
    taking: TakingCluster, tmp_path: Path
) -> None:
    """The first driver is killed after its tasks, the second while it publishes."""
    parts = of(list(range(100))), of(list(range(100, 200)))
    job = job_of(taking, tmp_path)
    handed_on(job, *parts)
    left = [Take(stores=3, code=None)]
    none = Take(stores=0, code=None)
    taking.take = lambda r: (left.pop() if left else none) if r["extFields"]["b"] == "T" else None
    second = job_of(taking, tmp_path)
    with pytest.raises(PublicationError):
        publish(second, handed_on(second, *parts))
    assert len(files(tmp_path)) == 4
    taking.take = lambda _: None
    third = job_of(taking, tmp_path)
    done = publish(third, handed_on(third, *parts[::-1]))
    assert (done.messages, done.found) == (200, 3)
    assert Counter(taking.all_bodies("T")) == {b"%d" % n: 1 for n in range(200)}
    assert files(tmp_path) == []


def test_a_stream_s_batch_finds_its_own_files_and_removes_what_was_left_a_day_ago(
    taking: TakingCluster, tmp_path: Path
) -> None:
    more = {"txn_app_id": None, "txn_version": None, "staging_path": str(tmp_path)}
    settings = settings_for(taking, inline_bytes=LIMIT, **more)
    planned = prepare(settings, of([1]).schema, is_stream=True)
    for batch_id in (7, 8):
        handed_on(of_batch(planned, "query", batch_id), of(list(range(100))))
    old, fresh = sorted(tmp_path.iterdir())
    before = time.time() - 25 * 3600
    for path in (old, *old.iterdir()):
        os.utime(path, (before, before))
    job = of_batch(planned, "query", 1)
    assert publish(job, handed_on(job, of([1]))).messages == 1
    assert list(tmp_path.iterdir()) == [fresh]


def test_a_job_that_is_aborted_leaves_no_file(taking: TakingCluster, tmp_path: Path) -> None:
    folder = tmp_path / "staged"
    job = job_of(taking, folder)
    reports = handed_on(job, of(list(range(100))))
    assert len(files(folder)) == 1
    withdraw(job, reports)
    assert not folder.exists()


def test_a_task_that_fails_leaves_no_file(taking: TakingCluster, tmp_path: Path) -> None:
    part = rows(20_001, body=[b"%d" % n for n in range(20_000)] + [None])
    job = prepare(settings_for(taking, staging_path=str(tmp_path), inline_bytes=LIMIT), part.schema)
    with pytest.raises(InvalidMessageError):
        hand_on(job, halves(part), partition=0, attempt=1)
    assert files(tmp_path) == []


def test_a_file_that_the_commit_does_not_see_or_that_changed_sends_nothing(
    taking: TakingCluster, tmp_path: Path
) -> None:
    job = job_of(taking, tmp_path)
    reports = handed_on(job, of(list(range(100))))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    for place in range(0, len(data), 997):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CorruptStagingError, match="not the bytes that its task wrote"):
            publish(job, reports)
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptStagingError, match="its task wrote"):
        publish(job, reports)
    path.unlink()
    with pytest.raises(StagingNotSharedError, match="set stagingPath to one they do"):
        publish(job, reports)
    assert taking.sends() == []


def test_a_publisher_holds_a_piece_of_the_messages_at_a_time(
    taking: TakingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed, "_PIECE_BYTES", 500_000)
    job = job_of(taking, tmp_path)
    body = b"x" * 1_000
    parts = [rows(4_000, body=[b"%d %d " % (t, n) + body for n in range(4_000)]) for t in range(4)]
    reports = [hand_on(job, part_slices(part), partition=n, attempt=1)
               for n, part in enumerate(parts)]  # fmt: skip
    del parts
    before = pa.total_allocated_bytes()
    found = HandedRows.of(job, [report.handed for report in reports])
    count = most = 0
    for parcel in found.parcels(frozenset()):
        count += parcel.count
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 16_000
    assert most < 8_000_000, "of 17,000,000 bytes"


def part_slices(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (part.slice(first, 250) for first in range(0, part.num_rows, 250))

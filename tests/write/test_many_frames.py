"""A commit of many frames: each damaged, changed later, or the last that a kill lets be written."""

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.check import check
from mqstore.files.base import durable
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.txn import segment
from mqstore.files.txn.errors import CorruptStagingError
from mqstore.format.staged import FRAME
from mqstore.read.directory import take
from mqstore.write.apply import Application
from mqstore.write.commit import commit
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from mqstore.write.stage import task
from mqstore.write.stage.job import Manifest, WriteJob
from support import soak
from support.writing import SMALL, append, files, held, prepared, rows, staged

FRAMES, ROWS = 6, 8
PARTITIONS = 2


@pytest.fixture(autouse=True)
def many_small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each batch become a frame."""
    monkeypatch.setattr(task, "CHUNK_ROWS", ROWS)


def batches() -> list[Any]:
    """Rows of 200 to 340 bytes, so that some frames cross the end of a log file of 8 KiB."""
    bodies = [[b"%d " % n + b"x" * (n * 20) for n in range(ROWS)] for _ in range(FRAMES)]
    return [rows(ROWS, body=some, keys="k") for some in bodies]


def a_job(root: Path, partitions: int = PARTITIONS) -> tuple[WriteJob, list[Manifest]]:
    append(root, rows(3), **SMALL)
    job = prepared(root, batches()[0].schema, fsync="none")
    return job, staged(job, *[batches()] * partitions)


def test_the_lock_is_looked_at_before_the_records_of_each_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, manifests = a_job(tmp_path / "s")
    events: list[str] = []
    for owner, name in ((StoreHold, "check"), (Application, "_write")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, real=real, name=name: (events.append(name), real(*a))[1]
        )
    commit(job, manifests)
    writes = [n for n, event in enumerate(events) if event == "_write"]
    assert len(writes) == FRAMES * PARTITIONS
    assert all(events[n - 1] == "check" for n in writes)


def seen_in(root: Path) -> int:
    return sum(queue.high - queue.low for queue in take(root).queues)


def frames_of(job: WriteJob, manifest: Manifest) -> list[dict[str, int]]:
    """Return for each frame of a staged file the positions of a byte of each of its parts."""
    assert manifest.segment is not None
    found = segment.read_frames(job.target.staging, manifest.segment, with_records=True)
    places, end = [], segment.FILE_HEADER.itemsize
    for frame in found:
        head, end_of_tables = end, frame.records_at
        end = frame.records_at + len(frame.records)
        parts = {
            "head": head,
            "topics": head + FRAME.itemsize,
            "table": end_of_tables - 1,
            "records": (end_of_tables + end) // 2,
            "last": end - 1,
        }
        places.append(parts)
    return places


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def path_of(job: WriteJob, manifest: Manifest) -> Path:
    assert manifest.segment is not None
    return Path(job.target.staging) / manifest.segment.name


@pytest.mark.parametrize("part", ["head", "topics", "table", "records", "last"])
def test_a_byte_that_changed_in_any_frame_is_an_error_before_the_decision(
    tmp_path: Path, part: str
) -> None:
    root = tmp_path / "s"
    job, manifests = a_job(root)
    aside = tmp_path / "aside"
    shutil.copytree(job.target.staging, aside)
    before = dict(files(root))
    for places in frames_of(job, manifests[1]):
        shutil.rmtree(job.target.staging, ignore_errors=True)
        shutil.copytree(aside, job.target.staging)
        flip(path_of(job, manifests[1]), places[part])
        with pytest.raises(CorruptStagingError):
            commit(job, manifests)
        assert dict(files(root)) == before


@pytest.mark.parametrize("part", ["head", "topics", "table", "records", "last"])
def test_a_byte_that_changed_after_it_was_verified_is_never_published(
    tmp_path: Path, part: str
) -> None:
    """Frames before it are written, invisible; once the byte is right, the commit is finished."""
    root = tmp_path / "s"
    for number in (0, 1, FRAMES - 1):
        job, manifests = a_job(root)
        path, place = path_of(job, manifests[0]), frames_of(job, manifests[0])[number][part]
        flip_later = partial(flip, path, place)
        assert frames_written(job, manifests, flip_later) == number
        assert seen_in(root) == 3
        flip_later()
        recover(root, RecoverSettings())
        assert len(held(root)) == 3 + FRAMES * ROWS * PARTITIONS
        assert check(root) == []
        shutil.rmtree(root)


def frames_written(job: WriteJob, manifests: list[Manifest], before: Callable[[], object]) -> int:
    """Commit, with ``before`` done after the decision; return how many frames were written."""
    written: list[int] = []
    append_all, write = Application.append, Application._write

    def append_now(one: Application) -> None:
        before()
        append_all(one)

    def write_now(one: Application, pieces: Any) -> None:
        written.append(1)
        write(one, pieces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Application, "append", append_now)
        patch.setattr(Application, "_write", write_now)
        with pytest.raises(CommitInDoubtError) as raised:
            commit(job, manifests)
    assert isinstance(raised.value.__cause__, CorruptStagingError)
    return len(written)


@soak.not_in_check
def test_a_commit_killed_before_any_write_is_finished_or_never_was(
    tmp_path: Path,
) -> None:
    root, ends = tmp_path / "s", []
    for at in itertools.count():
        job, manifests = a_job(root, 1)
        was_killed = killed_at(at, lambda j=job, m=manifests: commit(j, m))  # type: ignore[misc]
        recover(root, RecoverSettings())
        ends.append(len(held(root)) - 3)
        assert check(root) == []
        shutil.rmtree(root)
        if not was_killed:
            break
    assert sorted(ends) == ends
    assert {*ends} == {0, FRAMES * ROWS}
    assert ends.count(FRAMES * ROWS) > FRAMES


def killed_at(at: int, work: Callable[[], object]) -> bool:
    """Do ``work`` in a child that is killed before write ``at``; tell whether it came so far."""
    child = os.fork()
    if child:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in {0, -signal.SIGKILL}
        return ended != 0
    try:
        signal.alarm(30)
        real, numbers = durable.write_at, itertools.count()

        def write_at(*given: Any) -> None:
            if next(numbers) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            real(*given)

        durable.write_at = write_at
        work()
        os._exit(0)
    finally:
        os._exit(1)

"""Written back while the next is made ready: a hint, told for every byte, and never a sync."""

import os
from pathlib import Path

import pytest

from mqstore.files.base import durable
from support.writing import SMALL, append, held, rows

SYNCED = {**SMALL, "mapped_file_size_commit_log": 1 << 16, "fsync": "commit"}
ONLY_BEGIN = 2  # SYNC_FILE_RANGE_WRITE: with a bit that waits, the kernel would clear an error.


class Told:
    """Stands in for the call, and does it; keeps the file of each hint and its range."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[str, int, int]] = []
        self._call = durable._SYNC_FILE_RANGE
        patch.setattr(durable, "_SYNC_FILE_RANGE", self)

    def __call__(self, fd: int, start: int, size: int, flags: int) -> int:
        assert flags == ONLY_BEGIN
        self.ranges.append((str(Path(f"/proc/self/fd/{fd}").readlink()), start, start + size))
        assert self._call is not None
        found = self._call(fd, start, size, flags)
        assert found == 0
        return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    if durable._SYNC_FILE_RANGE is None:
        pytest.skip("this system has no sync_file_range")
    return Told(monkeypatch)


def test_every_step_is_told_once_and_what_is_left_is_less_than_one(
    tmp_path: Path, told: Told
) -> None:
    fd = durable.create(str(tmp_path / "file"))
    back, step = durable.WriteBack(), durable.WriteBack.STEP
    for start in range(0, 3 * step, step // 4):
        back.wrote(fd, start, step // 4)
    back.wrote(fd, 3 * step, step - 1)
    assert [edges for _, *edges in told.ranges] == [[n * step, (n + 1) * step] for n in range(3)]
    # Not next to what came before: the two are not told as one.
    back.wrote(fd, 9 * step, step + 5)
    assert told.ranges[3:] == [(str(tmp_path / "file"), 9 * step, 10 * step + 5)]
    os.close(fd)


def test_records_and_staged_files_are_written_back_as_they_grow(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable.WriteBack, "STEP", 1)
    batches = [rows(50, body=[bytes([n]) * 100 for n in range(50)])] * 3
    append(tmp_path / "s", batches, **SYNCED)
    folders = {path.split("/")[-2] for path, *_ in told.ranges}
    assert "commitlog" in folders
    assert any(path.endswith(".mqb") for path, *_ in told.ranges)
    records = sorted(edges for path, *edges in told.ranges if "/commitlog/" in path)
    assert records[0][0] == 0
    assert sum(end - start for start, end in records) == sum(m.size for m in held(tmp_path / "s"))


def test_a_store_that_is_not_to_be_synced_is_not_written_back_either(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable.WriteBack, "STEP", 1)
    append(tmp_path / "s", rows(5), **SMALL)
    assert told.ranges == []
    assert len(held(tmp_path / "s")) == 5


def test_a_system_without_the_call_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_SYNC_FILE_RANGE", None)
    monkeypatch.setattr(durable.WriteBack, "STEP", 1)
    append(tmp_path / "s", rows(5), **SYNCED)
    assert len(held(tmp_path / "s")) == 5


def test_staged_records_do_not_stay_in_memory_once_they_are_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        os,
        "posix_fadvise",
        lambda fd, at, size, advice: forgotten.append((advice, os.pread(fd, size, at))),
    )
    append(tmp_path / "none", [rows(5)] * 2, **SMALL)
    assert forgotten == []  # What was not synced would be written by it.
    append(tmp_path / "s", [rows(5)] * 2, **SYNCED)
    assert {advice for advice, _ in forgotten} == {os.POSIX_FADV_DONTNEED}
    assert sum(len(data) for _, data in forgotten) == sum(m.size for m in held(tmp_path / "s"))
    # Records alone, from the first byte on: what stands before them is read again.
    assert all(data[4:8] == bytes.fromhex("daa320a7") for _, data in forgotten)

"""writeMode=mmap: the same bytes, through a mapping of files whose blocks are reserved."""

import errno
import os
from pathlib import Path

import pytest

from mqstore.check import check
from mqstore.errors import InvalidOptionError, UnsupportedStoreError
from mqstore.files.base import durable
from mqstore.files.lock.file_system import file_system, keeps_reservations
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support.writing import SMALL, append, files, held, prepared, rows

MAPPED = {**SMALL, "write_mode": "mmap"}


@pytest.fixture
def root(on_disk: Path) -> Path:
    if not keeps_reservations(file_system(str(on_disk))):
        pytest.skip("needs temporary files on ext4 or tmpfs")
    return on_disk / "s"


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the positions of writes through mappings."""
    positions: list[int] = []
    real = durable.WriteMapping.write_at

    def noted(self: durable.WriteMapping, data: memoryview, position: int) -> None:
        positions.append(position)
        real(self, data, position)

    monkeypatch.setattr(durable.WriteMapping, "write_at", noted)
    return positions


def test_records_are_written_through_the_mapping_and_over_the_ends_of_files(
    root: Path, mapped: list[int]
) -> None:
    append(root, rows(1), **SMALL)
    assert not mapped, "pwrite is the default"
    for number in range(3):
        append(root, rows(40, keys="k", body=bytes(300 + number)), write_mode="mmap")
    assert len(mapped) > 3
    assert len([*(root / "commitlog").iterdir()]) > 4
    assert len(held(root)) == 121
    assert check(root) == []


def test_both_modes_leave_the_same_files(root: Path) -> None:
    moments = {"storeTimestamp": 1_700_000_000_000, "bornTimestamp": 1_700_000_000_000}
    batch = rows(60, keys="k", tags="a", body=bytes(200), **moments)
    given = {"timestamps": "preserve", "uniq_key": "none", "store_host": "10.0.0.1"}
    contents = []
    for name, mode in (("one", "pwrite"), ("two", "mmap")):
        store = root.parent / name
        append(store, batch, **SMALL, **given, born_host="10.0.0.2:5", write_mode=mode)
        parts = ("commitlog", "consumequeue")
        contents.append({k: v for k, v in files(store) if k.startswith(parts)})
    assert contents[0] == contents[1]


def test_a_mapped_write_is_refused_where_blocks_are_not_sure_to_be_there() -> None:
    with pytest.raises(InvalidOptionError, match=r"writeMode=.*mmap.* is on proc: use pwrite"):
        prepared(Path("/proc/store"), rows(1).schema, **MAPPED)


def test_a_file_system_that_reserves_nothing_is_refused_before_anything_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(root, rows(3), **SMALL)
    before = [*files(root)]

    def unable(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", unable)
    with pytest.raises(UnsupportedStoreError, match=r"FILE_SYSTEM.*writeMode=mmap needs"):
        append(root, rows(3), write_mode="mmap")
    assert [*files(root)] == before
    append(root, rows(3), write_mode="pwrite")


def test_a_page_that_is_not_there_leaves_a_commit_that_the_next_write_finishes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that fails answers the copy into the mapping with an error."""
    append(root, rows(3), **SMALL)

    def gone(*_: object) -> None:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    with monkeypatch.context() as patch:
        patch.setattr(durable.WriteMapping, "write_at", gone)
        with pytest.raises(CommitInDoubtError, match="Bad address"):
            append(root, rows(5), write_mode="mmap")
    recover(root, RecoverSettings())
    assert len(held(root)) == 8
    assert check(root) == []

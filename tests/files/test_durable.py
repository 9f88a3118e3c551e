"""The seam: what each durable call promises."""

import errno
import os
from pathlib import Path

import pytest

from mqstore.errors import NoSpaceError, UnsafePathError
from mqstore.files import durable
from mqstore.files.new_file import NewFile, reserve_in, wipe
from mqstore.files.store_dir import StoreDir
from mqstore.files.store_writer import StoreWriter
from mqstore.files.undo import Undo
from support.writing import SIZES


def test_what_is_no_plain_file_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "second").hardlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "second", "folder", "pipe"):
        with pytest.raises(UnsafePathError):
            durable.open_for_write(str(tmp_path / name))


def test_a_disk_that_cannot_reserve_says_so_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoSpaceError, match="no room for 5 bytes"):
        reserve_in(str(path), 0, 5, file_size=10)

    def unable(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", unable)
    reserve_in(str(path), 0, 5, file_size=10)


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:3], at))
    fd = durable.create(str(tmp_path / "file"))
    durable.write_at(fd, b"0123456789", 2)
    durable.write_zeros(fd, 4, 2)
    durable.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\x0001\0\x00456789"


def test_new_files_are_for_their_owner_and_group_alone(tmp_path: Path) -> None:
    durable.make_directory(str(tmp_path / "folder"))
    durable.close(durable.create(str(tmp_path / "folder" / "file")))
    assert (tmp_path / "folder").stat().st_mode & 0o777 & ~0o750 == 0
    assert (tmp_path / "folder" / "file").stat().st_mode & 0o777 & ~0o640 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_owner_of_its_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 4321)
    durable.make_directory(str(tmp_path / "folder"))
    durable.close(durable.create(str(tmp_path / "folder" / "file")))
    for name in ("folder", "folder/file"):
        status = (tmp_path / name).stat()
        assert (status.st_uid, status.st_gid) == (1234, 4321)


def test_a_new_file_appears_whole_and_can_be_taken_back(tmp_path: Path) -> None:
    undo = Undo()
    writer = StoreWriter(StoreDir(str(tmp_path), ()), str(tmp_path / "new"), SIZES, undo)
    writer.make_directories("new")
    writer.make_directories("a/b")
    new = NewFile(writer, 100)
    new.write(b"unit", 20)
    target = tmp_path / "a" / "b" / "0"
    assert not target.exists()
    new.put(str(target))
    assert target.read_bytes() == bytes(20) + b"unit" + bytes(76)
    assert list((tmp_path / "new").iterdir()) == []
    wipe(str(target), 20, 4)
    assert target.read_bytes() == bytes(100)
    assert undo.run() == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_taken_back(tmp_path: Path) -> None:
    undo = Undo()
    writer = StoreWriter(StoreDir(str(tmp_path), ()), str(tmp_path / "new"), SIZES, undo)
    writer.make_directories("new")
    target = tmp_path / "0"
    target.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        NewFile(writer, 100).put(str(target))
    undo.run()
    assert target.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_undo_goes_on_behind_a_step_that_fails() -> None:
    done = []

    def fail() -> None:
        raise OSError("no")

    undo = Undo()
    undo.remember(lambda: done.append(1))
    undo.remember(fail)
    undo.remember(lambda: done.append(2))
    assert [str(p) for p in undo.run()] == ["no"]
    assert done == [2, 1]
    assert undo.run() == []

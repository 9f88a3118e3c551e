"""The seam: what each durable call promises."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.errors import NoSpaceError, UnsafePathError
from mqstore.files.base import durable
from mqstore.files.base.new_file import NewFile, reserve_in, wipe
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.base.undo import Undo
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
    assert not reserve_in(str(path), 0, 5, file_size=10)


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:3], at))
    fd = durable.create(str(tmp_path / "file"))
    durable.write_at(fd, b"0123456789", 2)
    durable.write_zeros(fd, 4, 2)
    durable.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\x0001\0\x00456789"


def test_what_is_written_through_a_mapping_is_in_the_file(tmp_path: Path) -> None:
    """Also more than one piece, and at places that are no page's."""
    data = bytes(range(256)) * 2000
    (tmp_path / "file").write_bytes(bytes(len(data) + 100))
    fd = durable.open_for_write(str(tmp_path / "file"))
    mapping = durable.WriteMapping(fd)
    mapping.write_at(data, 77)
    mapping.write_at(b"end", 97 + len(data))
    mapping.write_at(b"", 5)
    durable.fsync(fd)
    mapping.close()
    durable.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(77) + data + bytes(20) + b"end"


@pytest.mark.parametrize("cut_to", [0, 4096])
def test_a_page_that_a_mapping_has_not_got_is_an_error_and_no_signal(
    tmp_path: Path, cut_to: int
) -> None:
    """In a process of its own, which a SIGBUS would end."""
    code = f"""
import os, sys
from mqstore.files.base import durable
fd = durable.create(sys.argv[1])
durable.truncate(fd, 16384)
mapping = durable.WriteMapping(fd)
os.ftruncate(fd, {cut_to})
try:
    mapping.write_at(bytes(10000), 1)
except OSError as error:
    print(error.strerror)
mapping.close()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "Bad address\n"), done.stderr
    assert (tmp_path / "file").stat().st_size == cut_to


def test_nothing_is_written_behind_the_end_of_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    fd = durable.open_for_write(str(tmp_path / "file"))
    mapping = durable.WriteMapping(fd)
    with pytest.raises(OSError, match="Bad address"):
        mapping.write_at(b"0123456789", 95)
    mapping.close()
    durable.close(fd)
    assert (tmp_path / "file").stat().st_size == 100


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
    writer = StoreWriter(StoreDir.at(tmp_path), str(tmp_path / "new"), SIZES, undo)
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
    writer = StoreWriter(StoreDir.at(tmp_path), str(tmp_path / "new"), SIZES, undo)
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

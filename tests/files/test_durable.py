"""The seam: what each durable call promises, and the broker's lock."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.errors import NoSpaceError, StoreLockedError, UnsafePathError
from mqstore.files import durable
from mqstore.files.aside import AsideFile, reserve_in, wipe
from mqstore.files.undo import Undo, make_directories

# Takes the lock as java.nio's FileChannel.tryLock(0, 1, false) does, and says whether it could.
JAVA_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
    print("taken", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.read()
"""


def test_the_lock_keeps_a_broker_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with durable.StoreLock(str(path), timeout_ms=0):
        assert path.read_bytes() == b"lock"
        assert java_says(path) == "refused"
    assert java_says(path) == "taken"


def test_a_broker_keeps_the_lock_from_us(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    broker = subprocess.Popen(
        [sys.executable, "-c", JAVA_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    assert broker.stdout.readline() == "taken\n"
    with pytest.raises(StoreLockedError), durable.StoreLock(str(path), timeout_ms=60):
        pass
    broker.communicate()
    with durable.StoreLock(str(path), timeout_ms=0):
        pass


def java_says(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", JAVA_LOCK, str(path)],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="this kernel has no such locks")
def test_closing_another_descriptor_does_not_lose_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with durable.StoreLock(str(path), timeout_ms=0):
        path.read_bytes()
        assert java_says(path) == "refused"


def test_a_kernel_without_locks_of_open_files_uses_those_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    path = tmp_path / "lock"
    with durable.StoreLock(str(path), timeout_ms=0):
        assert java_says(path) == "refused"


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


def test_a_file_made_aside_appears_whole_and_can_be_taken_back(tmp_path: Path) -> None:
    undo = Undo()
    make_directories(str(tmp_path), "aside", undo)
    make_directories(str(tmp_path), "a/b", undo)
    new = AsideFile(str(tmp_path / "aside"), 100, undo)
    new.write(b"unit", 20)
    target = tmp_path / "a" / "b" / "0"
    assert not target.exists()
    new.put(str(target), fsync=True)
    assert target.read_bytes() == bytes(20) + b"unit" + bytes(76)
    assert list((tmp_path / "aside").iterdir()) == []
    wipe(str(target), 20, 4)
    assert target.read_bytes() == bytes(100)
    assert undo.run() == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_taken_back(tmp_path: Path) -> None:
    undo = Undo()
    make_directories(str(tmp_path), "aside", undo)
    target = tmp_path / "0"
    target.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        AsideFile(str(tmp_path / "aside"), 100, undo).put(str(target), fsync=False)
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

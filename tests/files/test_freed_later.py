"""Large files that are removed: their names go at once, their blocks without a wait."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.files import freed_later
from mqstore.files.lock import file_system
from mqstore.files.txn import staging

WAIT_S = 30
LARGE = 100


class Closes:
    """Stands in for os.close, and makes it wait until it may go on, as the freeing of blocks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.may_go_on = threading.Event()
        self._close = os.close
        patch.setattr(freed_later.os, "close", self)  # type: ignore[attr-defined]

    def __call__(self, fd: int) -> None:
        if "(deleted)" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            self.threads.append(threading.get_ident())
            assert self.may_go_on.wait(WAIT_S)
        self._close(fd)


@pytest.fixture
def closes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Closes]:
    monkeypatch.setattr(freed_later, "_SLOW_BYTES", LARGE)
    found = Closes(monkeypatch)
    yield found
    found.may_go_on.set()
    freed_later._wait()
    assert not freed_later._FREEING


def job(home: Path) -> Path:
    folder = home / "job"
    folder.mkdir()
    (folder / "large").write_bytes(bytes(LARGE))
    (folder / "small").write_bytes(bytes(LARGE - 1))
    (folder / "link").symlink_to(home / "kept")
    (home / "kept").write_bytes(bytes(LARGE))
    return folder


def remove(folder: Path) -> None:
    with freed_later.freed_later(str(folder)):
        staging.remove(str(folder))
        assert not folder.exists()
        assert not freed_later._FREEING  # What else is removed here does not wait behind it.


def test_names_are_gone_before_the_blocks_of_large_files_are_freed(
    tmp_path: Path, closes: Closes
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as many as are open
    folder = job(tmp_path)
    remove(folder)
    assert not folder.exists()
    assert (tmp_path / "kept").exists()
    assert len(freed_later._FREEING) == 1
    closes.may_go_on.set()
    freed_later._wait()
    assert len(closes.threads) == 1
    assert closes.threads != [threading.get_ident()]
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208


def test_a_child_that_is_forked_meanwhile_does_not_keep_the_files(
    tmp_path: Path, closes: Closes
) -> None:
    remove(job(tmp_path))
    threading.Timer(0.05, closes.may_go_on.set).start()  # fork waits for it.
    child = os.fork()
    if not child:
        ended = 1
        try:
            signal.alarm(WAIT_S)
            paths = [
                str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3, 200) if is_open(fd)
            ]
            ended = int(any(f"{tmp_path}/job" in path for path in paths))
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").is_symlink()


def test_files_are_removed_where_no_thread_can_be_had(
    tmp_path: Path, closes: Closes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    closes.may_go_on.set()
    folder = job(tmp_path)
    remove(folder)
    assert not folder.exists()
    assert closes.threads == [threading.get_ident()]


def test_small_files_need_no_thread(tmp_path: Path, closes: Closes) -> None:
    folder = job(tmp_path)
    (folder / "large").unlink()
    remove(folder)
    assert not folder.exists()
    assert not freed_later._FREEING


def test_of_very_many_files_few_are_open(
    tmp_path: Path, closes: Closes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freed_later, "_MOST_OPEN", 2)
    folder = tmp_path / "job"
    folder.mkdir()
    for number in range(5):
        (folder / str(number)).write_bytes(bytes(LARGE))
    closes.may_go_on.set()
    remove(folder)
    freed_later._wait()
    assert not folder.exists()
    assert len(closes.threads) == 2


def test_no_file_of_a_network_is_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS renames it to .nfs…, and its folder could not be removed."""
    monkeypatch.setattr(freed_later, "_SLOW_BYTES", LARGE)
    monkeypatch.setattr(file_system, "file_system", lambda _path: "nfs4")
    held: list[str] = []
    monkeypatch.setattr(freed_later, "_hold", lambda _folder, name, _held: held.append(name))
    folder = job(tmp_path)
    remove(folder)
    assert held == []
    assert not folder.exists()

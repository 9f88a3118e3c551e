"""Rebuilds of a test's stores, a process that dies at any call of the seam, and damage."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.rebuild import Rebuilt, rebuild
from mqstore.files import durable
from mqstore.files.file_sizes import FileSizes, find_sizes
from mqstore.files.store_dir import open_dir
from support.stores import UNIT_BYTES, Layout

_CHANGES = (
    "create",
    "write_at",
    "write_zeros",
    "reserve",
    "truncate",
    "fsync",
    "fsync_directory",
    "link",
    "replace",
    "unlink",
    "make_directory",
    "remove_directory",
)


def sizes_of(layout: Layout) -> FileSizes:
    return FileSizes(
        commit_log=layout.commit_log_bytes,
        consume_queue=layout.queue_units * UNIT_BYTES,
        max_hash_slot_num=layout.index_slots,
        max_index_num=layout.index_units,
    )


def own_sizes(root: Path) -> FileSizes:
    found = find_sizes(open_dir(root))
    assert found.commit_log
    assert found.consume_queue
    assert found.max_hash_slot_num
    assert found.max_index_num
    return FileSizes(
        found.commit_log, found.consume_queue, found.max_hash_slot_num, found.max_index_num
    )


def rebuilt(
    root: Path,
    sizes: FileSizes,
    start: int = 0,
    *,
    with_index: bool = True,
    fsync: bool = False,
) -> Rebuilt:
    temp_dir = root / ".mqlog" / "tmp" / "rebuild"
    shutil.rmtree(temp_dir, ignore_errors=True)  # As whoever holds the store does before.
    temp_dir.mkdir(parents=True)
    with durable.synced(wanted=fsync):
        return rebuild(
            open_dir(root),
            start,
            sizes=sizes,
            temp_dir=str(temp_dir),
            behind=BeyondLogEnd.ANY,
            with_index=with_index,
        )


def derived(root: Path, folder: str) -> dict[str, bytes]:
    """Return every file below a folder of the store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


class KilledError(BaseException):
    """The process is gone: nothing after this point runs."""


class Calls:
    """Counts the calls that change the file system; at the k-th, and after it, nothing works."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.count = 0
        self._at = at
        self._after = after

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number < self._at:
                return call(*args, **kwargs)
            if number == self._at and self._after:
                call(*args, **kwargs)
            raise KilledError

        return counted


@contextmanager
def killed(at: int, *, after: bool = False, syncs: bool = True) -> Iterator[Calls]:
    """Let the process die at change number ``at``, just before it or just after it.

    Syncs count as changes, unless they are not to.
    """
    calls = Calls(at, after=after)
    with pytest.MonkeyPatch.context() as patch:
        for name in (n for n in _CHANGES if syncs or not n.startswith("fsync")):
            patch.setattr(durable, name, calls.counted(getattr(durable, name)))
        try:
            yield calls
        except KilledError:
            return

"""Removes large files without a wait for their blocks: another thread frees them.

unlink(2) of the last name frees a file's blocks before it returns. Where the file system tells the
disk of each of them (mount option ``discard``), that took 0.2 s for 1 GiB, most of it waiting. A
file that is open loses its name at once, and its blocks when the last descriptor is closed; what is
removed meanwhile waits for the disk behind them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from mqstore.errors import UnsafePathError
from mqstore.files.base.directory import Directory, descriptor
from mqstore.files.lock.file_system import is_remote

_SLOW_BYTES: Final = 16 << 20  # Fewer are freed in a few milliseconds.
_MOST_OPEN: Final = 64  # The blocks of further files are freed by unlink.
_FREEING: Final[set[threading.Thread]] = set()


@contextmanager
def freed_later(folder: str) -> Iterator[None]:
    """Let the blocks of the folder's large files that are removed in the block be freed after it.

    Names are removed, durably or not, as without it. The process does not end before the blocks
    are freed, and a fork(2) after the block waits for it, as a child would keep the files open. A
    child that is forked inside the block does keep them. A network's file system gives a file that
    is removed while it is open another name in its folder: there none is held.
    """
    held: list[int] = []
    try:
        with suppress(OSError, UnsafePathError):
            names = [] if is_remote(folder) else Directory(*os.path.split(folder)).names()
            for name in names:
                if len(held) < _MOST_OPEN:
                    _hold(folder, name, held)
        yield
    finally:
        if held:
            _close_later(held)


def _hold(folder: str, name: str, held: list[int]) -> None:
    with suppress(OSError, UnsafePathError):
        if os.lstat(f"{folder}/{name}").st_size >= _SLOW_BYTES:
            held.append(descriptor(Directory(*os.path.split(folder)), name))


def _close_later(descriptors: list[int]) -> None:
    thread = threading.Thread(target=_close, args=(descriptors,), name="free blocks")
    _FREEING.add(thread)
    try:
        thread.start()
    except RuntimeError:  # No thread can be had.
        _FREEING.discard(thread)
        _close(descriptors)


def _close(descriptors: list[int]) -> None:
    try:
        for descriptor in descriptors:
            os.close(descriptor)
    finally:
        _FREEING.discard(threading.current_thread())


def _wait() -> None:
    for thread in list(_FREEING):
        thread.join()


os.register_at_fork(before=_wait)

"""Whether a write of ours is appending to a store just now.

A commit keeps new files in ``.mqlog/tmp/<job>`` while it holds the store's lock, and can take
back what it did until it lets go. The lock is looked up in the kernel's list, never opened: the
system tells a holder of a lease of every open. A folder that a killed writer left holds no lock.

Reference: proc_locks(5). Where there is no such list, nobody is seen.
"""

import os
from pathlib import Path
from typing import Final, TypeAlias

from mqstore.files.aside import FOLDER
from mqstore.files.safe_open import list_names
from mqstore.format import names

Mark: TypeAlias = tuple[int, ...]

_LOCKS: Final = Path("/proc/locks")
_INODE: Final = 5  # the field maj:min:inode


def mark(root: str) -> Mark:
    """Return what a commit changes as it begins and as it ends: times of its folders."""
    places = (root, f"{root}/{names.OURS}", f"{root}/{names.OURS}/{FOLDER}")
    return tuple(map(_changed_ns, places))


def is_under_way(root: str) -> bool:
    """Tell whether a commit of ours is at work on the store."""
    return bool(list_names(root, f"{names.OURS}/{FOLDER}")) and is_locked(f"{root}/{names.LOCK}")


def is_locked(path: str) -> bool:
    """Tell whether anybody holds a lock or a lease on the file ``path``."""
    try:
        inode = str(os.stat(path).st_ino)  # noqa: PTH116 - strings, as everywhere in a store
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return False
    fields = (line.split() for line in lines if "->" not in line)  # Who waits holds nothing.
    return any(f[_INODE].rpartition(":")[2] == inode for f in fields if len(f) > _INODE)


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0

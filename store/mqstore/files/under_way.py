"""Whether anybody holds a lock or a lease on a file, looked up without opening it.

The system tells a holder of a lease of every open, so a reader must not open what it asks about.

Reference: proc_locks(5). Where there is no such list, nobody is seen.
"""

import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_INODE: Final = 5  # the field maj:min:inode


def is_locked(path: str) -> bool:
    """Tell whether anybody holds a lock or a lease on the file ``path``."""
    try:
        inode = str(os.stat(path).st_ino)  # noqa: PTH116 - strings, as everywhere in a store
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return False
    fields = (line.split() for line in lines if "->" not in line)  # Who waits holds nothing.
    return any(f[_INODE].rpartition(":")[2] == inode for f in fields if len(f) > _INODE)

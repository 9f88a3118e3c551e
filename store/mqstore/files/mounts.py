"""Which file system a path is on, as the kernel tells: a mapping of a remote file may fault.

A file that another machine cuts short, or a server that goes away, is a short read or an
OSError to ``pread``; to a mapping it is a SIGBUS, which no program outlives.

Reference: proc(5), /proc/pid/mountinfo.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "gpfs", "lustre"}
    | {"beegfs", "ocfs2", "gfs2", "orangefs"}
)
_USER_SPACE: Final = ("fuse", "virtiofs")


def is_remote(path: str) -> bool:
    """Tell whether ``path`` is on a network's or a user's file system.

    False where the kernel does not tell: not Linux, or a path that is not there.
    """
    try:
        device = os.stat(path).st_dev  # noqa: PTH116 - a text is enough
        with _MOUNTS.open(encoding="utf-8", errors="replace") as mounts:
            return mounted_remotely(mounts, f"{os.major(device)}:{os.minor(device)}")
    except OSError:
        return False


def mounted_remotely(mounts: Iterable[str], device: str) -> bool:
    """Tell whether the line of ``major:minor`` in mountinfo has such a file system's type.

    A line is ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``.
    """
    for line in mounts:
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [device]:
            kind = after.partition(" ")[0]
            return kind in _REMOTE or kind.startswith(_USER_SPACE)
    return False

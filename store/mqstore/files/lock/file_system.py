"""The file system of a path, by the list of mounts: locks, leases and mappings differ.

Where another machine cuts a file short, or a server goes away, ``pread`` reads less or raises
OSError, and an access to a mapping is a SIGBUS, which ends the process. A lock or a lease on such
a file system is known to this kernel at most: a broker on another machine does not see it.

Reference: proc(5), /proc/pid/mountinfo and /proc/pid/fdinfo.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_DESCRIPTORS: Final = Path("/proc/self/fdinfo")
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "gpfs", "lustre"}
    | {"beegfs", "ocfs2", "gfs2", "orangefs"}
)
_USER_SPACE: Final = ("fuse", "virtiofs")
# Tried: locks that keep a broker out, leases, files linked in whole, directories made durable.
_FOR_WRITING: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay"})
# A block that is reserved is written in place. Where it may be shared with a copy of the file (xfs,
# btrfs), or belong to a file system below (overlay), a write may need another one.
_RESERVING: Final = frozenset({"ext4", "tmpfs"})
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def is_remote(path: str) -> bool:
    """Tell whether ``path`` is on a network's or a user's file system.

    False where the kernel does not tell: not Linux, or a path that is not there.
    """
    kind = file_system(path)
    return kind in _REMOTE or kind.startswith(_USER_SPACE)


def is_in_memory(path: str) -> bool:
    """Tell whether files at ``path`` are gone after a power cut, whatever was synced."""
    return file_system(path) in _IN_MEMORY


def keeps_reservations(kind: str) -> bool:
    """Tell whether blocks reserved on a file system of that type are there for any write."""
    return kind in _RESERVING


def is_for_writing(kind: str) -> bool:
    """Tell whether a commit keeps its promises on a file system of that type."""
    return kind in _FOR_WRITING


def file_system(path: str) -> str:
    """Return the type of the file system that ``path`` is on, as mount(8) names it.

    Empty where the kernel does not tell: not Linux, or a path that is not there.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return ""
    try:
        fields = (_DESCRIPTORS / str(fd)).read_text(encoding="utf-8").splitlines()
        mount_id = next((line.split()[1] for line in fields if line.startswith("mnt_id:")), "")
        with _MOUNTS.open(encoding="utf-8", errors="replace") as mounts:
            return type_of_mount(mounts, mount_id)
    except OSError:
        return ""
    finally:
        os.close(fd)


def type_of_mount(mounts: Iterable[str], mount_id: str) -> str:
    """Return the type that the line of that mount has in mountinfo, or nothing.

    A line is ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``. The id it
    begins with tells a mount; the device does not, where subvolumes have numbers of their own.
    """
    for line in mounts:
        before, _, after = line.partition(" - ")
        if after and before.partition(" ")[0] == mount_id:
            return after.partition(" ")[0]
    return ""

"""The CommitLog's files of a store in a directory, as its broker's retention sees them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.store import Store
from mqstore.read.retention import DiskUse, LogState

_FILES_LOOKED_AT: Final = 12
"""Files whose times are read: the rate of writing is that of the last ones."""


def log_state(store: Store) -> LogState | None:
    """Return the CommitLog's files, when the last were filled, and their disk; None without one.

    A broker makes the next file before it needs it: files without a record are left out. Raises
    OSError.
    """
    files = list(store.log.files.files)
    while len(files) > 1 and not any(store.log.read(files[-1].start, 4)):
        files.pop()
    if not files:
        return None
    full = files[:-1]
    filled = tuple((file.end, _written_ms(file)) for file in full[-_FILES_LOOKED_AT:])
    end = full[-1].end if full else files[0].start
    disk = _disk(files)
    bounds = files[0].start, end, files[0].size, files[-1].start
    return LogState(*bounds, disk, is_here=True, filled=filled)


def file_written_ms(store: Store, physical_offset: int) -> int | None:
    """Return when the file that holds a byte was last written (epoch ms); None: it is gone."""
    file = store.log.files.find(physical_offset)
    return None if file is None else _written_ms(file)


def _written_ms(file: MappedFile) -> int:
    return Path(file.name).stat().st_mtime_ns // 1_000_000


def _disk(files: Sequence[MappedFile]) -> DiskUse | None:
    """Return the disk with the most room, as UtilAll#getDiskPartitionSpaceUsedPercent counts it."""
    found = []
    for folder in {str(file.folder) for file in files}:
        told = os.statvfs(folder)
        used = (told.f_blocks - told.f_bfree) * told.f_frsize
        found.append(DiskUse(used + told.f_bavail * told.f_frsize, used))
    return min(found, key=lambda disk: disk.used / max(disk.size, 1), default=None)

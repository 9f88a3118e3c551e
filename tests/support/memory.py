"""Folders in memory, for tests that make thousands of stores and are not about the disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")
_LEAST_BYTES = 2 << 30
"""A container may have a few megabytes there, which are soon full."""


@contextmanager
def folder_in_memory(otherwise: Path | None = None) -> Iterator[Path]:
    """Give a folder in memory, which is removed in the end.

    Without a large file system in memory it is ``otherwise``, or a temporary folder.
    """
    is_there = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _LEAST_BYTES
    if otherwise is not None and not is_there:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(
        prefix="mqlog-tests-", dir=_MEMORY if is_there else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)

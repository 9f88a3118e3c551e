"""Folders in memory, for tests that make thousands of stores and are not about the disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
_LEAST_BYTES = 2 << 30
"""A container may have a few megabytes there, which are soon full."""


def has_memory() -> bool:
    """Tell whether there is a large file system in memory that we may write to."""
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= _LEAST_BYTES


@contextmanager
def folder_in_memory(otherwise: Path | None = None) -> Iterator[Path]:
    """Give a folder in memory, which is removed in the end.

    Without a large file system in memory it is ``otherwise``, or a temporary folder.
    """
    is_there = has_memory()
    if otherwise is not None and not is_there:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(
        prefix="mqlog-tests-", dir=MEMORY if is_there else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)

"""The files that a damaged CommitLog left: those with their names, and others beside them."""

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.base import durable
from mqstore.files.base.directory import descriptor
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import StoreDir
from mqstore.format.message import FILE_SIZE
from mqstore.format.names import INTERLOCK, parse_mapped_file_name

MOST_FILES_APART: Final = 1_024  # of a log of which some files were lost
FILE_SIZE_FLAG: Final = "--file-size"
_CANDIDATES: Final = 32
_MOST_MAPPED_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A plain file among those of the CommitLog; ``start`` is None without a believable name."""

    folder: Folder
    path: str
    start: int | None
    size: int

    @property
    def name(self) -> str:
        """The full path."""
        return f"{self.folder}/{self.path}"

    def open(self) -> int:
        """Return a descriptor for reading. Raises OSError."""
        return descriptor(self.folder, self.path)

    def read(self, fd: int, position: int, size: int) -> bytes:
        """Return bytes of ``open`` that were there. Raises CorruptStoreError, OSError."""
        data = os.pread(fd, size, position)
        self._check_whole(position, len(data), size)
        return data

    def copy(self, fd: int, to_fd: int, position: int, size: int) -> None:
        """Copy bytes that were there to the same position of ``to_fd``. Raises as ``read``."""
        self._check_whole(position, durable.copy_range(fd, to_fd, position, size), size)

    def _check_whole(self, position: int, done: int, size: int) -> None:
        if done < size:
            reason = "the file was cut short while it was read"
            raise CorruptStoreError(self.name, position + done, reason)


@dataclass(frozen=True, slots=True)
class Sources:
    """The files, those with names first, by name; and the size that the log's files had."""

    files: tuple[SourceFile, ...]
    file_size: int
    path: str
    """The CommitLog's folder, or the first of several, as errors name it."""


def find_sources(place: StoreDir, file_size: int | None = None) -> Sources:
    """Return what lies in the CommitLog's folders; links and special files are passed over.

    ``file_size`` is mappedFileSizeCommitLog; None: what most names and sizes say. Raises
    InvalidOptionError for a size that no file of a broker has.
    """
    if file_size is not None and not 0 < file_size <= _MOST_MAPPED_BYTES:
        reason = f"must be 1 to {_MOST_MAPPED_BYTES}: a broker maps each file as a whole"
        raise InvalidOptionError(FILE_SIZE_FLAG, file_size, reason)
    found = [
        (folder, name, size)
        for folder in place.commit_log
        for name, kind, size in folder.survey()
        if kind == "file" and name != INTERLOCK
    ]
    starts = [(parse_mapped_file_name(name), size) for _, name, size in found]
    usual = file_size or _usual_size(starts)
    remainders = Counter(start % usual for start, _ in starts if start is not None)
    expected = max(remainders, key=lambda one: (remainders[one], -one), default=0)
    aligned = {start for start, _ in starts if start is not None and start % usual == expected}
    believed = _together(sorted(aligned), MOST_FILES_APART * usual)
    files = []
    for (folder, name, size), (start, _) in zip(found, starts, strict=True):
        known = start if start in believed else None
        believed -= {start}
        files.append(SourceFile(folder, name, known, size))
    files.sort(key=lambda file: (file.start is None, file.start or 0, file.name))
    return Sources(tuple(files), usual, str(place.commit_log[0]))


def _together(starts: Sequence[int], apart: int) -> set[int]:
    """Return most of these, those that lie together: names may be anything."""
    edges = [n for n in range(1, len(starts)) if starts[n] - starts[n - 1] > apart]
    groups = [starts[a:b] for a, b in pairwise([0, *edges, len(starts)])]
    return set(sorted(groups, key=len)[-1])


def _usual_size(files: Sequence[tuple[int | None, int]]) -> int:
    """Return the size that most names are multiples of, and most files have, with names or not."""
    named = [start for start, _ in files if start is not None]
    sizes = [size for _, size in files]
    steps = [b - a for a, b in pairwise(sorted(named))]
    told = [sizes, steps, sorted(named)[:_CANDIDATES]]
    usual = [one for each in told for one, _ in Counter(each).most_common(_CANDIDATES)]
    candidates = {one for one in usual if 0 < one <= _MOST_MAPPED_BYTES} | {FILE_SIZE}
    candidates |= {math.gcd(*named)} if 0 < math.gcd(*named) <= _MOST_MAPPED_BYTES else set()

    def score(candidate: int) -> tuple[int, int]:
        fit = sum(start % candidate == 0 for start in named)
        same = sum((s or 0) % candidate == 0 and size == candidate for s, size in files)
        return fit + 2 * same - sum(size > candidate for size in sizes), candidate

    return max(candidates, key=score)

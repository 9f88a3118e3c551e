"""Which bytes of a log are read at once: runs of records that lie near one another.

A run is read by one request, gaps included: a gap costs less than another request, up to a width.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from mqstore.format.arrays import Int64s

Run = tuple[int, int, memoryview]
"""The number of a file, where in the log the bytes begin, and where they go."""
# One more read costs what copying 8 KiB does; of small records, no more than 4 for each wanted.
_MIN_GAP_BYTES, _MAX_GAP_BYTES = 512, 8192
_GAP_RECORDS = 4
# Far away, one more request costs what a MiB does: gaps are read as long as all of them are not
# more than twice the records; and several requests of a MiB are under way at a time.
_FAR_GAP_BYTES: Final = 1 << 20
_FAR_GAPS: Final = 2


def pieces(size: int, ends: Int64s, start: int) -> Iterator[tuple[int, int]]:
    """Cut records that end at ``ends`` into pieces of at most ``size`` bytes or one record."""
    first = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + size, side="right")), first + 1)
        yield first, last
        first, start = last, int(ends[last - 1])


def is_ascending(starts: Int64s, ends: Int64s) -> bool:
    """Tell whether no record begins before the end of the one before it."""
    return bool((starts[1:] >= ends[:-1]).all())


def runs_of(
    index: Int64s, starts: Int64s, ends: Int64s, *, is_far: bool = False
) -> tuple[Int64s, Int64s]:
    """Return the first and last record of each run that one read fetches.

    A run breaks at a file's end, at a wide gap, and wherever records go
    back or overlap, so that in the buffer they never do.
    """
    gaps = starts[1:] - ends[:-1]
    elsewhere = (gaps < 0) | (index[1:] != index[:-1])
    total = int((ends - starts).sum())
    mean = total // len(starts) if len(starts) else 0
    widest = max(_MIN_GAP_BYTES, min(_GAP_RECORDS * mean, _MAX_GAP_BYTES))
    if is_far:
        widest = max(widest, _widest_far(gaps[~elsewhere], total))
    breaks = np.flatnonzero(elsewhere | (gaps > widest)) + 1
    first = np.concatenate(([0], breaks)) if len(starts) else breaks
    last = np.concatenate((breaks - 1, [len(starts) - 1])) if len(starts) else breaks
    return first, last


def _widest_far(gaps: Int64s, total: int) -> int:
    """Return the widest gap that is read; ``total`` are the bytes of the records."""
    narrow = np.sort(gaps[gaps <= _FAR_GAP_BYTES])
    taken = int(np.searchsorted(np.cumsum(narrow), _FAR_GAPS * total, side="right"))
    # All gaps of one width are read or none, so that no more is read than that.
    while 0 < taken < len(narrow) and narrow[taken] == narrow[taken - 1]:
        taken = int(np.searchsorted(narrow, narrow[taken]))
    return int(narrow[taken - 1]) if taken else 0


def of_few_files(runs: Iterable[Run], most_files: int) -> Iterator[list[Run]]:
    """Yield the runs in lists, each of at most so many files."""
    some: list[Run] = []
    files: set[int] = set()
    for run in runs:
        if run[0] not in files and len(files) == most_files:
            yield some
            some, files = [], set()
        some.append(run)
        files.add(run[0])
    yield some

"""Messages of a replica whose places its IndexFiles pass by without naming them.

A replica that is stopped cleanly has records behind the end of its queues: those that its group has
not agreed on yet. When it starts it enters them all but the first one, and a broker puts no keys of
a record before the last one that an IndexFile names. So that record stays out of the index, and
nothing else on the disk tells it: the places in queues are compared with those in the index.

Reference: CommitLog#recoverNormally (records at places greater than the end of the queues, seen on
5.5.1); IndexService#buildIndex.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mqstore.files.index.index_file import IndexFile, read_units
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s, Span
from mqstore.read.source import QueueSlice

_UNITS_AT_ONCE: Final = 1 << 22
"""Of an IndexFile: 80 MiB."""
_PLACES_AT_ONCE: Final = 1 << 16
_MOST_GAPS: Final = 10_000
"""Of one slice: more are read as one range from the first to the last."""


def divide_by_index(
    store: Store, pieces: Sequence[QueueSlice], spans: Sequence[tuple[IndexFile, Span]]
) -> tuple[list[QueueSlice], list[QueueSlice]]:
    """Return the parts of ``pieces`` that the index names, and those that it passes by.

    ``spans`` are IndexFiles with the physical offsets [low, high) that each should cover. Reads all
    of their units, and those of the pieces. Raises CorruptStoreError, FileNotFoundError.
    """
    runs: list[list[Span]] = [[] for _ in pieces]
    for file, span in spans:
        for (low, high), places in _sections(file, span):
            for number, piece in enumerate(pieces):
                runs[number] += _unnamed(store, piece, low, high, places)
    inside: list[QueueSlice] = []
    outside: list[QueueSlice] = []
    for gaps, piece in zip(runs, pieces, strict=True):
        start = piece.start
        for first, end in gaps if len(gaps) <= _MOST_GAPS else [(gaps[0][0], gaps[-1][1])]:
            inside.append(replace(piece, start=start, end=first))
            outside.append(replace(piece, start=first, end=end))
            start = end
        inside.append(replace(piece, start=start))
    return [piece for piece in inside if piece.end > piece.start], outside


def _sections(file: IndexFile, span: Span) -> Iterator[tuple[Span, Int64s]]:
    """Yield stretches of a span, each with the places that units name there, ascending."""
    layout, (low, high) = file.layout, span
    if layout is None:
        return
    places = np.empty(0, np.int64)
    for first, units in read_units(file, layout, _UNITS_AT_ONCE):
        places = np.unique(units["physical_offset"].astype(np.int64))
        is_last = first + len(units) >= min(file.count, layout.units)
        end = high if is_last else min(high, max(low, int(places[-1]) + 1))
        if low < end:
            yield (low, end), places
        low = end


def _unnamed(
    store: Store, piece: QueueSlice, low: int, high: int, places: Int64s
) -> Iterator[Span]:
    """Yield queue offsets [start, end) whose records lie in [low, high) and not at ``places``."""
    queue = store.queue(piece.topic, piece.queue_id)
    first = queue.first_behind(piece.start, piece.end, low)
    last = queue.first_behind(first, piece.end, high)
    for start in range(first, last, _PLACES_AT_ONCE):
        units = queue.read(start, min(last, start + _PLACES_AT_ONCE))
        theirs = units["physical_offset"].astype(np.int64)
        rows = np.minimum(np.searchsorted(places, theirs), len(places) - 1)
        edges = np.flatnonzero(np.diff(places[rows] != theirs, prepend=False, append=False))
        yield from ((start + int(a), start + int(b)) for a, b in edges.reshape(-1, 2).tolist())

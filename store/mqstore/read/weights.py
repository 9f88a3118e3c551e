"""Estimates the bytes that a range of a queue has in the CommitLog, from the sizes in its units."""

import itertools
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s
from mqstore.read.source import QueueSlice, Weighed
from mqstore.read.units import read_units, shared_bytes

_FEW_BYTES: Final = 64 * 1024
_EXACT_UNITS: Final = 1 << 20
_ALL_UNITS: Final = 1 << 26  # of all slices: 1.3 GB of ConsumeQueues
_LEAST_WEIGHED_UNITS: Final = 1 << 14
_EDGES: Final = 4096
_UNITS_OF_EDGE: Final = 64
_SAMPLES: Final = 256
_SAMPLE_UNITS: Final = 1024


def weigh_slice(store: Store, piece: QueueSlice, *, strict: bool = True, among: int = 1) -> Weighed:
    """Return the slice with its bytes, from the sizes in its ConsumeQueue.

    Exact up to a million messages; of more, 256 evenly spread stretches stand for the rest.
    ``among`` more than 64 slices that are weighed together, both are fewer: of 64 million messages
    in all the sizes are read, but of 16,384 of each slice in any case.
    With ``strict``, a ConsumeQueue file that is missing or short is a CorruptStoreError; without
    it such messages weigh nothing, and the scan reports them.
    """
    known = piece.weight
    whole = known is not None and (known.start, known.end) == (piece.start, piece.end)
    if known is not None and whole and known.bytes <= _FEW_BYTES:
        edges, places = np.array([piece.start, piece.end]), np.array([known.place, known.place])
        again = partial(weigh_slice, store, replace(piece, weight=None), strict=strict)
        return Weighed(piece, edges, np.array([0, known.bytes]), places, again)
    queue = store.queue(piece.topic, piece.queue_id)
    count = piece.end - piece.start
    most = min(_EXACT_UNITS, max(_LEAST_WEIGHED_UNITS, _ALL_UNITS // among))
    if count <= most:
        sizes, places = _units(queue, piece.start, piece.end, strict)
        grown = np.concatenate(([0], np.cumsum(sizes)))
        marks = np.arange(count + 1)
        most_edges = min(_EDGES, most // _UNITS_OF_EDGE)
        if count > most_edges:
            marks = np.linspace(0, count, most_edges + 1).astype(np.int64)
        at = places[np.minimum(marks, count - 1)] if count else marks
        return Weighed(piece, piece.start + marks, grown[marks], np.maximum.accumulate(at))
    samples = min(_SAMPLES, most // _SAMPLE_UNITS)
    marks = np.linspace(piece.start, piece.end, samples + 1).astype(np.int64)
    looks = [_sample(queue, int(a), int(b), strict) for a, b in itertools.pairwise(marks)]
    means, at = np.array(looks).T
    grown = np.concatenate(([0], np.cumsum(means * np.diff(marks)))).astype(np.int64)
    at = np.maximum.accumulate(np.append(at, at[-1])).astype(np.int64)
    return Weighed(piece, marks, grown, at)


def _units(queue: Units, start: int, end: int, strict: bool) -> tuple[Int64s, Int64s]:
    """Return the record bytes of each unit of [start, end), and where the records lie."""
    if strict:
        with suppress(FileNotFoundError):  # It expired: the scan says so.
            read = queue.read(start, end)
            places = read["physical_offset"].astype(np.int64)
            sizes = np.maximum(read["size"].astype(np.int64), 0)
            return shared_bytes(places, sizes, read["tags_code"].astype(np.int64)), places
    sizes, places = np.zeros((2, end - start), np.int64)
    for batch in read_units(queue, (start, end), report=_raise_damage if strict else None):
        rows, units = slice(batch.start - start, batch.end - start), batch.believable()
        sizes[rows] = units.record_bytes
        places[rows] = np.where(units.sizes, units.physical_offsets, 0)
    return sizes, places


def _raise_damage(_start: int, _end: int, error: CorruptStoreError | FileNotFoundError) -> None:
    if isinstance(error, CorruptStoreError):
        raise error


def _sample(queue: Units, start: int, end: int, strict: bool) -> tuple[float, int]:
    """Return the mean record bytes of units amid [start, end), and where the first of them lies."""
    first = start + max(0, (end - start - _SAMPLE_UNITS) // 2)
    sizes, places = _units(queue, first, min(end, first + _SAMPLE_UNITS), strict)
    return float(sizes.mean()), int(places[0])

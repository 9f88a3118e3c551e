"""Slices of queues to record batches: the hot path of every read.

A source gives checked records; here rows are chosen, bodies are checked and decompressed, and
columns are made.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from mqstore.codec.bodies import Plain, decompress_bodies
from mqstore.codec.checksum import broken
from mqstore.codec.decode import COLUMN_OF, QueuePositions, Records, decode
from mqstore.codec.gather import RecordHeaders
from mqstore.derive.records import FetchedRecords
from mqstore.read.change_rows import ChangeRows
from mqstore.read.corrupt import Damage, rescued
from mqstore.read.fused import FusedDecode
from mqstore.read.row_filter import RowFilter
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched, QueueSlice, RecordSource
from mqstore.read.typed_bodies import TypedBodies
from mqstore.read.units import UnitBatch

Made = TypeVar("Made")
Taken: TypeAlias = Callable[[Fetched], Generator[Made, None, UnitBatch]]
_NEEDS_BODY: Final = frozenset({"body", "value", "crcOk"})


def scan(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``slices``, in order, as ``typed_schema(settings, columns)``.

    With ``settings.changes`` it yields their changes, as ``changes_schema_of(settings, columns)``.
    With ``settings.merged`` only those of each queue are in order.

    Raises CorruptStoreError at a broken record unless ``on_corrupt`` says otherwise, and
    DataLossError at messages that expired since the slices were planned; the messages before it in
    its queue are yielded first. The error of a record has its ``physical_offset``. CorruptBodyError
    at a bad body with ``bodyMode=FAILFAST``.
    """
    typed = ChangeRows(settings) if settings.changes else TypedBodies.of(settings)
    if typed is None:
        yield from scan_otherwise(slices, settings, None)
    else:
        yield from typed.batches(scan_otherwise(slices, typed.stored, None))


def scan_otherwise(
    slices: Sequence[QueueSlice], settings: ScanSettings, taken: Taken[Made] | None
) -> Iterator[pa.RecordBatch | Made]:
    """As ``scan``, but what ``taken`` makes stands for the batches of the units that it takes.

    It yields what it makes, and returns the units that it leaves: all of a batch, or none.
    """
    settings = replace(settings, first_rows=min(settings.first_rows, settings.batch_rows))
    for origin, group in groupby(slices, key=lambda piece: piece.origin):
        with closing(origin.records(settings.read_mode)) as source:
            yield from _Scan(source, settings).run(list(group), taken)
        settings = replace(settings, first_rows=settings.batch_rows)


class _Scan:
    """One pass over slices of one origin."""

    def __init__(self, source: RecordSource, settings: ScanSettings) -> None:
        self._source = source
        self._settings = settings
        self._filter = RowFilter.of(settings)
        self._damage = Damage(settings.on_corrupt)
        # Which messages are left out must not depend on the columns that are read.
        is_skipping = settings.on_corrupt == "skip"
        needs_body = is_skipping or not _NEEDS_BODY.isdisjoint(settings.columns)
        self._checks_crc = "crcOk" in settings.columns or (settings.verify_crc and needs_body)
        self._plains = settings.decompress and needs_body
        self._fused = FusedDecode.of(
            settings, self._filter, check_crc=self._checks_crc, plain=self._plains
        )

    def run(
        self, slices: Sequence[QueueSlice], taken: Taken[Made] | None
    ) -> Iterator[pa.RecordBatch | Made]:
        for fetched in self._source.fetched(slices, self._settings, self._damage.add):
            if taken is not None and not len((yield from taken(fetched))):
                continue
            for batch in self._batches(fetched):
                if batch.num_rows:
                    yield batch
        self._damage.report()

    def _batches(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """Yield messages by the compiled kernel, and what it leaves by numpy."""
        left = fetched.units
        if self._fused:
            left = yield from self._fused.batches(fetched, self._filter)
        if len(left):
            for units, records in fetched.checked(left):
                yield from self._checked(fetched, units, records)

    def _checked(
        self, fetched: Fetched, units: UnitBatch, records: FetchedRecords
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records; where damage is an error, those before it, then raise."""
        problems = sorted(records.problems.items())
        positions = units.positions.take(records.rows)
        if problems and self._damage.is_error:
            first = int(np.searchsorted(records.rows, problems[0][0]))
            before = np.arange(first)
            yield from self._decode(records.headers.take(before), positions.take(before))
        for row, reason in problems:
            self._lose(int(units.physical_offsets[row]), reason)
        if problems and self._settings.on_corrupt == "rescue":
            lost = units.take(np.array([row for row, _ in problems]))
            for some, raw in fetched.raw(lost, self._settings.batch_bytes):
                yield rescued(some, raw, self._settings.columns)
        yield from self._decode(records.headers, positions)

    def _lose(self, physical_offset: int, reason: str) -> None:
        error = self._source.corrupt(physical_offset, reason)
        error.physical_offset = physical_offset
        self._damage.add(error)

    def _decode(self, headers: RecordHeaders, source: QueuePositions) -> Iterator[pa.RecordBatch]:
        records = Records(headers, source)
        kept = self._filter.matches(lambda name: COLUMN_OF[name](records))
        if kept is not None:
            headers, source = headers.take(kept), source.take(kept)
        while len(headers):
            records, count, lost = self._finish(headers, source)
            yield decode(records, self._settings.columns)
            for place, reason in lost:
                self._lose(place, reason)
            if count == len(headers):
                return
            rest = np.arange(count, len(headers))
            headers, source = headers.take(rest), source.take(rest)

    def _finish(
        self, headers: RecordHeaders, source: QueuePositions
    ) -> tuple[Records, int, list[tuple[int, str]]]:
        """Check and decompress bodies.

        Return the records to show, how many were seen, and those that are lost: their places, and
        why. Where damage is an error, the records are those before the first lost one.
        """
        plain, count = None, len(headers)
        if self._plains:
            plain = self._decompress(headers)
            count = plain.count
        if count < len(headers):
            head = np.arange(count)
            headers, source = headers.take(head), source.take(head)
        bad = broken(headers) if self._checks_crc else np.zeros(count, np.bool_)
        reasons = dict.fromkeys(np.flatnonzero(bad).tolist(), "the checksum does not hold")
        reasons |= plain.broken if plain else {}
        bad[list(reasons)] = True
        if not self._settings.verify_crc and plain:
            reasons = dict(plain.broken)
        elif not self._settings.verify_crc:
            reasons = {}
        places = headers.field("physical_offset") if reasons else ()
        lost = [(int(places[row]), reason) for row, reason in sorted(reasons.items())]
        records = Records(headers, source, plain, bad)
        if lost and self._damage.is_error:
            records = _without(records, range(min(reasons), count))
        elif lost and self._settings.on_corrupt == "skip":
            records = _without(records, reasons)
        return records, count, lost

    def _decompress(self, headers: RecordHeaders) -> Plain:
        limit = self._settings.max_decompressed_bytes
        return decompress_bodies(headers, limit, self._settings.batch_bytes)


def _without(records: Records, rows: Iterable[int]) -> Records:
    kept = np.setdiff1d(np.arange(len(records.headers)), np.fromiter(rows, np.int64))
    plain = records.plain
    if plain is not None:
        place = {int(row): index for index, row in enumerate(kept)}
        both = [(place[r], b) for r, b in zip(plain.rows, plain.bodies, strict=True) if r in place]
        plain = Plain([row for row, _ in both], [body for _, body in both], {}, len(kept))
    return Records(
        records.headers.take(kept), records.source.take(kept), plain, records.broken[kept]
    )

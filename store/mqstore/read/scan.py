"""Slices of queues to record batches: the hot path of every read.

A source gives checked records; here rows are chosen, bodies are checked and decompressed, and
columns are made.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.bodies import Plain, decompress_bodies
from mqstore.codec.checksum import broken
from mqstore.codec.decode import COLUMN_OF, QueuePositions, Records, decode
from mqstore.codec.gather import RecordHeaders
from mqstore.derive.records import FetchedRecords
from mqstore.read.corrupt import Damage, rescued
from mqstore.read.fused import FusedDecode
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, RecordSource
from mqstore.read.tags import RowFilter
from mqstore.read.units import UnitBatch

_NEEDS_BODY: Final = frozenset({"body", "value", "crcOk"})


def scan(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``slices``, in order, as ``message_schema(settings.columns)``.

    With ``settings.merged`` only those of each queue are in order.

    Raises CorruptStoreError at a broken record unless ``on_corrupt`` says otherwise, and
    DataLossError at messages that expired since the slices were planned.
    """
    settings = replace(settings, first_rows=min(settings.first_rows, settings.batch_rows))
    for origin, group in groupby(slices, key=lambda piece: piece.origin):
        with closing(origin.records(settings.read_mode)) as source:
            yield from _Scan(source, settings).run(list(group))
        settings = replace(settings, first_rows=settings.batch_rows)


class _Scan:
    """One pass over slices of one origin."""

    def __init__(self, source: RecordSource, settings: ScanSettings) -> None:
        self._source = source
        self._settings = settings
        self._filter = RowFilter.of(settings)
        self._damage = Damage(settings.on_corrupt)
        needs_body = not _NEEDS_BODY.isdisjoint(settings.columns)
        self._checks_crc = "crcOk" in settings.columns or (settings.verify_crc and needs_body)
        self._plains = settings.decompress and needs_body
        self._fused = FusedDecode.of(
            source, settings, self._filter, check_crc=self._checks_crc, plain=self._plains
        )

    def run(self, slices: Sequence[QueueSlice]) -> Iterator[pa.RecordBatch]:
        for batch in self._fast(slices) if self._fused else self._plain(slices):
            if batch.num_rows:
                yield batch
        self._damage.report()

    def _plain(self, slices: Sequence[QueueSlice]) -> Iterator[pa.RecordBatch]:
        for units, records in self._source.read(slices, self._settings, self._damage.add):
            yield from self._checked(units, records)

    def _fast(self, slices: Sequence[QueueSlice]) -> Iterator[pa.RecordBatch]:
        """As ``_plain``, by the compiled kernel; what it leaves goes the same way as all there."""
        fused = self._fused
        assert fused is not None
        for units in fused.source.unit_batches(slices, self._settings, self._damage.add):
            left = yield from fused.batches(units, self._filter)
            if len(left):
                for checked in fused.source.checked(left):
                    yield from self._checked(*checked)

    def _checked(self, units: UnitBatch, records: FetchedRecords) -> Iterator[pa.RecordBatch]:
        for row, reason in sorted(records.problems.items()):
            self._lose(int(units.physical_offsets[row]), reason)
        if records.problems and self._settings.on_corrupt == "rescue":
            yield from self._rescue(units.take(np.array(sorted(records.problems))))
        yield from self._decode(records.headers, units.positions.take(records.rows))

    def _lose(self, physical_offset: int, reason: str) -> None:
        self._damage.add(self._source.corrupt(physical_offset, reason))

    def _rescue(self, lost: UnitBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows for records that are lost, of about ``batch_bytes`` each."""
        for units, raw in self._source.raw(lost, self._settings.batch_bytes):
            yield rescued(units, raw, self._settings.columns)

    def _decode(self, headers: RecordHeaders, source: QueuePositions) -> Iterator[pa.RecordBatch]:
        records = Records(headers, source)
        kept = self._filter.matches(lambda name: COLUMN_OF[name](records))
        if kept is not None:
            headers, source = headers.take(kept), source.take(kept)
        while len(headers):
            records, count = self._finish(headers, source)
            yield decode(records, self._settings.columns)
            if count == len(headers):
                return
            rest = np.arange(count, len(headers))
            headers, source = headers.take(rest), source.take(rest)

    def _finish(self, headers: RecordHeaders, source: QueuePositions) -> tuple[Records, int]:
        """Check and decompress bodies; return the records that are good, and how many were seen."""
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
        for row, reason in sorted(reasons.items()):
            self._lose(int(places[row]), reason)
        if reasons and self._settings.on_corrupt == "skip":
            return _without(Records(headers, source, plain, bad), reasons), count
        return Records(headers, source, plain, bad), count

    def _decompress(self, headers: RecordHeaders) -> Plain:
        limit = self._settings.max_decompressed_bytes
        return decompress_bodies(headers, limit, self._settings.batch_bytes)


def _without(records: Records, rows: dict[int, str]) -> Records:
    kept = np.setdiff1d(np.arange(len(records.headers)), np.fromiter(rows, np.int64))
    plain = records.plain
    if plain is not None:
        place = {int(row): index for index, row in enumerate(kept)}
        both = [(place[r], b) for r, b in zip(plain.rows, plain.bodies, strict=True) if r in place]
        plain = Plain([row for row, _ in both], [body for _, body in both], {}, len(kept))
    return Records(
        records.headers.take(kept), records.source.take(kept), plain, records.broken[kept]
    )

"""Slices of queues to record batches: the hot path of every read.

Units are read block by block, those that the tag hash excludes are dropped before any record
is touched, and records are gathered and decoded chunk by chunk. A chunk ends at ``batch_rows``
rows or ``batch_bytes`` record bytes, whichever comes first, so memory does not depend on the
size of a queue; only a single message may be larger than the bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.bodies import Plain, decompress_bodies
from mqstore.codec.checksum import broken
from mqstore.codec.decode import COLUMN_OF, QueuePositions, Records, decode
from mqstore.codec.gather import RecordHeaders
from mqstore.derive.records import LARGE_BYTES, RecordChecks, fetch
from mqstore.files.log.commit_log import CommitLog, Scratch
from mqstore.format.message import HARD_RECORD_BYTES
from mqstore.read.chunks import Units, fits
from mqstore.read.corrupt import Damage
from mqstore.read.fused import FusedDecode
from mqstore.read.log_order import UnitBatch
from mqstore.read.matching import RowFilter
from mqstore.read.plan import QueueSlice
from mqstore.read.settings import ScanSettings

_NEEDS_BODY: Final = frozenset({"body", "value", "crcOk"})


def scan(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``slices``, in order, as ``message_schema(settings.columns)``.

    With ``settings.merged`` only those of each queue are in order.

    Raises CorruptStoreError at a broken record unless ``on_corrupt`` says otherwise, and
    DataLossError at messages that expired since the slices were planned.
    """
    settings = replace(settings, first_rows=min(settings.first_rows, settings.batch_rows))
    for log_folders, group in groupby(slices, key=lambda piece: piece.commit_log):
        with CommitLog(log_folders, settings.read_mode) as log:
            yield from _Scan(log, settings).run(list(group))
        settings = replace(settings, first_rows=settings.batch_rows)


class _Scan:
    """One pass over slices of one store."""

    def __init__(self, log: CommitLog, settings: ScanSettings) -> None:
        self._log = log
        self._settings = settings
        self._filter = RowFilter.of(settings.tags, settings.keys, settings.msg_ids)
        self._scratch = Scratch()
        self._damage = Damage(log, settings.on_corrupt)
        needs_body = not _NEEDS_BODY.isdisjoint(settings.columns)
        self._checks_crc = "crcOk" in settings.columns or (settings.verify_crc and needs_body)
        self._plains = settings.decompress and needs_body
        self._fused = FusedDecode.of(
            log, settings, self._filter, check_crc=self._checks_crc, plain=self._plains
        )

    def run(self, slices: Sequence[QueueSlice]) -> Iterator[pa.RecordBatch]:
        units = Units(slices, self._log, self._filter.tags, self._damage, self._settings)
        for chunk in units.chunks():
            for batch in self._batches(chunk):
                if batch.num_rows:
                    yield batch
        self._damage.report()

    def _batches(self, chunk: UnitBatch) -> Iterator[pa.RecordBatch]:
        if self._fused is not None:
            chunk = yield from self._fused.batches(chunk, self._filter)
            if not len(chunk):
                return
        checks = RecordChecks(positions=chunk.source)
        places, sizes = chunk.physical_offsets, chunk.sizes
        found = fetch(self._log, places, sizes, checks, self._scratch)
        for row, reason in sorted(found.problems.items()):
            self._damage.add(int(places[row]), reason)
        if found.problems and self._settings.on_corrupt == "rescue":
            yield from self._rescue(chunk.take(np.array(sorted(found.problems))))
        yield from self._decode(found.headers, chunk.source.take(found.rows))

    def _rescue(self, lost: UnitBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows for records that are lost, of about ``batch_bytes`` each."""
        # A size that the log cannot hold says nothing: the first bytes there are enough.
        held = self._log.holds(lost.physical_offsets, lost.sizes)
        shown = np.clip(lost.sizes, 0, np.where(held, HARD_RECORD_BYTES, LARGE_BYTES))
        start = 0
        while start < len(shown):
            count = fits(shown[start:], self._settings.batch_bytes, first=True)
            rows = np.arange(start, start + count)
            told = (lost.physical_offsets[rows], lost.sizes[rows], shown[rows])
            yield self._damage.rescue(lost.source.take(rows), *told, self._settings.columns)
            start += count

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
        for row, reason in sorted(reasons.items()):
            self._damage.add_at(headers, row, reason)
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

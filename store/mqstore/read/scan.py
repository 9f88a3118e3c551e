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

from mqstore.arrays import Int64s
from mqstore.codec.bodies import Plain, decompress_bodies
from mqstore.codec.checksum import broken
from mqstore.codec.decode import COLUMN_OF, QueuePositions, Records, decode
from mqstore.codec.gather import RecordHeaders
from mqstore.files.log.commit_log import CommitLog, Scratch
from mqstore.format.message import HARD_RECORD_BYTES
from mqstore.format.names import LMQ_PREFIX
from mqstore.read.chunks import Units, fits
from mqstore.read.corrupt import Damage, whose_frame
from mqstore.read.fused import FusedDecode
from mqstore.read.log_order import UnitBatch
from mqstore.read.matching import RowFilter
from mqstore.read.plan import QueueSlice
from mqstore.read.settings import ScanSettings

_LARGE_BYTES: Final = 64 * 1024
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
        if self._fused is not None and not self._out_of_reach(chunk):
            chunk = yield from self._fused.batches(chunk, self._filter)
            if not len(chunk):
                return
        rows, headers, problems = self._sound(chunk)
        for row, reason in sorted(problems.items()):
            self._damage.add(int(chunk.physical_offsets[row]), reason)
        if problems and self._settings.on_corrupt == "rescue":
            yield from self._rescue(chunk.take(np.array(sorted(problems))))
        yield from self._decode(headers, chunk.source.take(rows))

    def _rescue(self, lost: UnitBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows for records that are lost, of about ``batch_bytes`` each."""
        # A size that the log cannot hold says nothing: the first bytes there are enough.
        held = self._log.holds(lost.physical_offsets, lost.sizes)
        shown = np.clip(lost.sizes, 0, np.where(held, HARD_RECORD_BYTES, _LARGE_BYTES))
        start = 0
        while start < len(shown):
            count = fits(shown[start:], self._settings.batch_bytes, first=True)
            rows = np.arange(start, start + count)
            told = (lost.physical_offsets[rows], lost.sizes[rows], shown[rows])
            yield self._damage.rescue(lost.source.take(rows), *told, self._settings.columns)
            start += count

    def _sound(self, chunk: UnitBatch) -> tuple[Int64s, RecordHeaders, dict[int, str]]:
        """Return the rows whose record is whole and theirs, its headers, and what the rest are."""
        problems = self._out_of_reach(chunk)
        within = np.ones(len(chunk), np.bool_)
        within[list(problems)] = False
        rows = np.flatnonzero(within)
        gathered = self._log.gather(chunk.physical_offsets[rows], chunk.sizes[rows], self._scratch)
        headers = RecordHeaders(gathered.buffer, gathered.starts, chunk.sizes[rows])
        for find in (_frames, whose_frame):
            found = find(headers, chunk.source.take(rows), chunk.physical_offsets[rows])
            if found:
                problems |= {int(rows[row]): reason for row, reason in found.items()}
                sound = np.setdiff1d(np.arange(len(rows)), np.fromiter(found, np.int64))
                rows, headers = rows[sound], headers.take(sound)
        return rows, headers, problems

    def _out_of_reach(self, chunk: UnitBatch) -> dict[int, str]:
        """Return the rows that no record can be fetched for: row → why."""
        held = self._log.holds(chunk.physical_offsets, chunk.sizes)
        outside = "the ConsumeQueue unit points outside the CommitLog"
        problems = dict.fromkeys(np.flatnonzero(~held).tolist(), outside)
        # A size is only a claim: before much is read for it, the record must say the same.
        for row in np.flatnonzero(held & (chunk.sizes > _LARGE_BYTES)).tolist():
            if not self._is_claimed(chunk, row):
                problems[row] = "no record of that size and queue offset starts here"
        return problems

    def _is_claimed(self, chunk: UnitBatch, row: int) -> bool:
        physical_offset = int(chunk.physical_offsets[row])
        header = self._log.header(physical_offset)
        if header is None:
            return False
        source = chunk.source
        light = source.queues[int(source.queue[row])][0].startswith(LMQ_PREFIX)
        same_place = light or int(header["queue_offset"]) == int(source.queue_offsets[row])
        itself = (int(header["total_size"]), int(header["physical_offset"]))
        return same_place and itself == (int(chunk.sizes[row]), physical_offset)

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


def _frames(
    headers: RecordHeaders, _source: QueuePositions, _physical_offsets: Int64s
) -> dict[int, str]:
    return headers.problems()


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

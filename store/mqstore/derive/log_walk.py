"""Walk a CommitLog from record to record, over blank records and into the next files.

A check reports what is wrong with the records and goes on for as long as TOTALSIZE leads on. For
a recovery the log ends at the first record that is not sound: bad magic, lengths that do not add
up, a checksum that differs. More than for a broker, a record must also say that it lies where it
lies: bytes that a broker once cut off say something else.

Of a DLedger log the entries are walked, up to the last that is committed.

Reference: CommitLog#recoverAbnormally, #checkMessageAndReturnSize; DLedgerMmapFileStore#recover.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.codec.checksum import broken
from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.entries import broken_rules, follow_entries
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import BLANK_RECORD, CUT, Walked, follow
from mqstore.derive.records import WHOLE, verify
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Mask, Structs
from mqstore.format.dledger import BODY_OFFSET
from mqstore.format.message import HARD_RECORD_BYTES

_FIRST_WINDOW_BYTES: Final = 1 << 16
_WINDOW_BYTES: Final = 1 << 22


@dataclass(frozen=True)
class LogChunk:
    """Records that follow each other in one file, and what comes behind them."""

    records: DispatchRecords
    """Those whose lengths add up; any other field of a record may be wrong."""
    problems: dict[int, str]
    """Physical offset of each record whose lengths do not, and the rule that it breaks."""
    end: int
    """Physical offset behind the last record."""
    why: str
    """What lies at ``end`` (see codec.walk): CUT for the next chunk, or for the file's end."""
    file: MappedFile
    heads: Structs | None = None
    """ENTRY of each record, also of those in ``problems``; None of a plain CommitLog."""

    @property
    def next_start(self) -> int:
        """Where the next record lies or may lie: behind a blank record, the next file's start."""
        return self.file.end if self.why == BLANK_RECORD else self.end

    @cached_property
    def broken_checksums(self) -> Mask:
        """Which of ``records`` fail a checksum."""
        return broken(self.records.headers)

    @cached_property
    def misplaced(self) -> Mask:
        """Which of ``records`` say another physical offset than their own."""
        said = self.records.headers.field("physical_offset")
        return np.asarray(said != self.records.physical_offsets, np.bool_)

    def sound_records(self) -> DispatchRecords:
        """Return the records before the first that is not sound."""
        records = self.records
        wrong = self.broken_checksums | self.misplaced
        if self.problems:
            wrong |= records.physical_offsets > min(self.problems)
        return records.first(int(np.argmax(wrong))) if wrong.any() else records


def log_chunks(log: CommitLog, start: int) -> Iterator[LogChunk]:
    """Yield the records from ``start`` on, where a record or a file starts, in log order.

    The walk ends where no record follows, also where the next file is missing or the file is not
    closed by a blank record.
    """
    position, window = start, _FIRST_WINDOW_BYTES
    file, before = log.files.find(start), None
    while file is not None:
        room = file.end - position
        if log.committed_end is not None:
            room = max(0, min(room, log.committed_end - position))
        data = log.read(position, min(window, room))
        if log.head_bytes(file):
            chunk, before = _entries(data, position, file, before)
        else:
            chunk = _chunk(follow(data), position, file)
        yield chunk
        moved = chunk.end - position
        is_last = window >= room or (window >= HARD_RECORD_BYTES and not moved)
        position = chunk.next_start
        if chunk.why == BLANK_RECORD:
            following = log.files.find(position)
            file = following if following and following.start == position else None
        elif chunk.why != CUT or is_last:
            return
        window = _WINDOW_BYTES if moved and window >= _WINDOW_BYTES else 4 * window


def _chunk(walked: Walked, position: int, file: MappedFile) -> LogChunk:
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    places = position + walked.starts
    found = verify(headers, places, WHOLE)
    return LogChunk(
        DispatchRecords(found.headers, places[found.rows]),
        problems={int(places[row]): reason for row, reason in found.problems.items()},
        end=position + walked.end,
        why=walked.why,
        file=file,
    )


def _entries(
    data: bytes, position: int, file: MappedFile, before: tuple[int, int] | None
) -> tuple[LogChunk, tuple[int, int] | None]:
    """Return the records of the entries in ``data``, and index and term of the last one.

    A record whose entry breaks a rule is among the problems only.
    """
    found = follow_entries(data)
    chunk = _chunk(found.walked, position, file)
    places = position + found.walked.starts
    broken_heads = broken_rules(found.heads, places - BODY_OFFSET, before)
    if broken_heads:
        wrong = places[list(broken_heads)]
        kept = np.flatnonzero(~np.isin(chunk.records.physical_offsets, wrong))
        records = DispatchRecords(
            chunk.records.headers.take(kept), chunk.records.physical_offsets[kept]
        )
        problems = {int(places[row]): reason for row, reason in broken_heads.items()}
        chunk = replace(chunk, records=records, problems=chunk.problems | problems)
    if len(found.heads):
        before = int(found.heads["index"][-1]), int(found.heads["term"][-1])
    return replace(chunk, heads=found.heads), before


class LogWalk:
    """Walks once over the sound records from ``start`` on, up to where the log ends."""

    def __init__(self, log: CommitLog, start: int) -> None:
        """``start`` is where a record or a file starts."""
        self._log = log
        self.tail = start
        """Behind the last record, as ``LogChunk.next_start``."""
        self.count = 0
        """Records walked so far."""
        self.last_store_timestamp_ms = 0
        """Of the last record; 0 if there was none."""
        self.last_physical_offset = -1
        """Where the last record starts; -1 if there was none."""

    def records(self) -> Iterator[DispatchRecords]:
        """Yield the records in log order, those of some MiB at a time."""
        for chunk in log_chunks(self._log, self.tail):
            records = chunk.sound_records()
            if len(records):
                self.last_physical_offset = int(records.physical_offsets[-1])
                moments = records.headers.field("store_timestamp_ms")
                self.last_store_timestamp_ms = int(moments[-1])
                self.tail = self.last_physical_offset + int(records.headers.sizes[-1])
                self.count += len(records)
                yield records
            if chunk.problems or len(records) < len(chunk.records):
                return
            self.tail = chunk.next_start

    def to_end(self) -> "LogWalk":
        """Walk over all records; return the walk."""
        for _ in self.records():
            pass
        return self

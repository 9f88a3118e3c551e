"""Check the CommitLog: walk every file, check every record, and hand the records on.

At most one chunk of records is in memory.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.arrays import Bytes, Int64s, Mask
from mqstore.check.finding import Findings, Place
from mqstore.codec.checksum import broken
from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import BLANK_RECORD, CUT, ZERO, follow
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import data_behind
from mqstore.files.mapped_file_queue import MappedFile
from mqstore.format.message import HARD_RECORD_BYTES

_CHUNK_BYTES: Final = 4 * 1024 * 1024


class LogCheck:
    """Walks the CommitLog once. ``end`` and ``last_ms`` are known when the walk is over.

    From physical offset ``unfinished`` on, where a commit is under way, anything may lie.
    """

    def __init__(
        self, root: str, log: CommitLog, findings: Findings, *, unfinished: int | None = None
    ) -> None:
        self._unfinished = unfinished
        self._root = root
        self._log = log
        self._findings = findings
        self.end = log.low
        self.last_start = -1
        self.last_ms = 0
        self._is_closed = False  # the file just walked ends with a blank record

    def records(self) -> Iterator[DispatchRecords]:
        """Yield the sound records of all files, in log order, and report what is wrong."""
        files = self._log.files.files
        ended = False
        for index, file in enumerate(files):
            if index and files[index - 1].end != file.start:
                self._findings.error(self._at(file.start), "the file before this one is missing")
            if ended:
                self._check_unused(file)
                continue
            yield from self._walk(file)
            ended = not self._is_closed
            if self.end == self._unfinished:
                return
            if ended:
                self._check_behind(file, last=index == len(files) - 1)

    def _walk(self, file: MappedFile) -> Iterator[DispatchRecords]:
        at, window = file.start, _CHUNK_BYTES
        self._is_closed = False
        while at < file.end:
            data = self._log.read(at, window)
            walked = follow(data)
            if len(walked.starts):
                yield self._check(walked.buffer, walked.starts, walked.sizes, at)
            at += walked.end
            self.end = at
            more = walked.why == CUT and at + len(data) - walked.end < file.end
            if more and window < HARD_RECORD_BYTES:
                window = _CHUNK_BYTES if walked.end else window * 4
                continue
            self._check_stop(walked.why, at, file)
            return

    def _check_stop(self, why: str, at: int, file: MappedFile) -> None:
        if why == BLANK_RECORD:
            size = int.from_bytes(self._log.read(at, 4), "big", signed=True)
            self._is_closed = True
            if size != file.end - at:
                problem = f"blank record of {size} bytes where {file.end - at} are left"
                self._findings.error(self._at(at), problem)
        elif why != ZERO and at != self._unfinished:
            problem = "no record starts here, and the log does not end here either"
            self._findings.error(self._at(at), problem)

    def _check(self, buffer: Bytes, starts: Int64s, sizes: Int64s, at: int) -> DispatchRecords:
        headers = RecordHeaders(buffer, starts, sizes)
        problems = headers.problems()
        for row, problem in problems.items():
            self._findings.error(self._at(at + int(starts[row])), problem)
        if problems:
            sound = np.ones(len(starts), np.bool_)
            sound[list(problems)] = False
            headers = headers.take(sound)
        places = at + headers.starts
        self._report(broken(headers), places, "CRC-32 of body or record differs")
        told = headers.field("physical_offset").astype(np.int64)
        self._report(told != places, places, "PHYSICALOFFSET is not the record's own place")
        records = DispatchRecords(headers, places)
        self._check_times(records)
        return records

    def _check_times(self, records: DispatchRecords) -> None:
        moments = records.store_timestamps_ms
        if not len(moments):
            return
        before = np.append(self.last_ms, moments[:-1])
        for mask, problem in (
            (moments <= 0, "STORETIMESTAMP is not after 1970"),
            (moments < before, "STORETIMESTAMP goes back"),
        ):
            for row in np.flatnonzero(mask).tolist():
                place = self._at(int(records.physical_offsets[row]))
                self._findings.warning(place, problem)
        self.last_ms = int(moments[-1])
        self.last_start = int(records.physical_offsets[-1])

    def _report(self, mask: Mask, places: Int64s, problem: str) -> None:
        for place in places[mask].tolist():
            self._findings.error(self._at(place), problem)

    def _check_behind(self, file: MappedFile, *, last: bool) -> None:
        """Check that nothing lies behind the log's end, in the file it ends in."""
        used = self._first_used(self.end, file)
        if used is not None:
            problem = "bytes behind the end of the log: records cut off may come back to life"
            self._findings.warning(self._at(used), problem)
        following = [f for f in self._log.files.files if f.start >= file.end]
        if not last and any(self._first_used(f.start, f) is not None for f in following):
            problem = (
                "the log ends here without a blank record, but later files have records: a "
                "broker would delete them"
            )
            self._findings.error(self._at(self.end), problem)

    def _check_unused(self, file: MappedFile) -> None:
        used = self._first_used(file.start, file)
        if used is not None:
            self._findings.error(self._at(used), "records behind the end of the log")

    def _first_used(self, start: int, file: MappedFile) -> int | None:
        for position, chunk in data_behind(self._log, start):
            if position >= file.end:
                return None
            used = np.flatnonzero(chunk)
            if len(used):
                return position + int(used[0])
        return None

    def _at(self, physical_offset: int) -> Place:
        path, position = self._log.where(min(physical_offset, max(self._log.high - 1, 0)))
        return Place(path.removeprefix(f"{self._root}/"), position)

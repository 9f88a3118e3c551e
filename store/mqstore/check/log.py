"""Check the CommitLog: every file and every record, which are handed on to the other checks.

At most one chunk of records is in memory.
"""

from collections.abc import Generator, Iterator

import numpy as np

from mqstore.check.causes import Causes
from mqstore.check.entries import EntryCheck
from mqstore.check.finding import ERROR, WARNING, FindingPlace, Findings
from mqstore.codec.bodies import broken_bodies
from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.walk import BLANK_RECORD, ZERO
from mqstore.derive.log_walk import LogChunk, log_chunks
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.log_end import data_behind
from mqstore.files.store import Store


class LogCheck:
    """Walks the CommitLog once; its attributes are final when the walk is over.

    From physical offset ``unfinished`` on, where a commit is under way, anything may lie.
    """

    def __init__(
        self, store: Store, findings: Findings, causes: Causes, *, unfinished: int | None = None
    ) -> None:
        self._unfinished = unfinished
        self._store = store
        self._log = store.log
        self._entries = EntryCheck(store, findings)
        self._findings = findings
        self._causes = causes
        self.end = store.log.low
        """Behind the last record."""
        self.last_physical_offset = -1
        """Where the last record starts; -1 if there is none."""
        self.last_store_timestamp_ms = 0

    def records(self) -> Iterator[DispatchRecords]:
        """Yield the records whose lengths add up, in log order, and report what is wrong."""
        files = self._log.files.files
        ended_in: MappedFile | None = None
        for number, file in enumerate(files):
            follows = number > 0 and files[number - 1].end == file.start
            if number and not follows:
                self._report_gap(files[number - 1].end, file.start)
            if ended_in is None and not follows:
                ended_in = yield from self._walk(file.start)
                if self.end == self._unfinished:
                    return
                if ended_in is not None:
                    self._check_behind(ended_in)
            elif ended_in is not None and file.start > ended_in.start:
                self._check_unused(file)

    def _walk(self, start: int) -> Generator[DispatchRecords, None, MappedFile | None]:
        """Walk over files that follow each other; return the file that the log ends in.

        None if a blank record closes the last of them.
        """
        for chunk in log_chunks(self._log, start):
            self._report_problems(chunk)
            self.end = chunk.end
            if len(chunk.records):
                yield chunk.records
            is_closed = chunk.why == BLANK_RECORD
            if is_closed:
                self._check_blank(chunk)
                if self.end == self._unfinished:
                    return None
        if not is_closed and chunk.why != ZERO and self.end != self._unfinished:
            problem = "no record starts here, and the log does not end here either"
            self._causes.add(self._at(self.end), problem, self._rest)
        return None if is_closed else chunk.file

    @property
    def _rest(self) -> tuple[int, int]:
        """All that lies behind the last record, in the files that there are."""
        return self.end, max(self._log.high, self.end + 1)

    def _report_gap(self, start: int, end: int) -> None:
        place, problem = self._at(end), "the file before this one is missing"
        if self._is_explained(start):
            self._findings.error(place, problem)
        else:
            self._causes.add(place, problem, (start, end))

    def _check_blank(self, chunk: LogChunk) -> None:
        # A blank entry begins with its magic, a blank record with its size.
        at = chunk.end if chunk.heads is None else chunk.end + 4
        size = int.from_bytes(self._log.read(at, 4), "big", signed=True)
        room = chunk.file.end - chunk.end
        if size != room:
            problem = f"blank record of {size} bytes where {room} are left"
            self._findings.error(self._at(chunk.end), problem)

    def _report_problems(self, chunk: LogChunk) -> None:
        self._entries.feed(chunk.heads)
        for place, problem in chunk.problems.items():
            self._causes.add(self._at(place), problem, (place, place + 1))
        places = chunk.records.physical_offsets
        for wrong, problem in (
            (chunk.broken_checksums, "CRC-32 of body or record differs"),
            (chunk.misplaced, "PHYSICALOFFSET is not the record's own place"),
        ):
            for place in places[wrong].tolist():
                self._findings.error(self._at(place), problem)
        whole = np.flatnonzero(~chunk.broken_checksums)
        for row, problem in broken_bodies(chunk.records.headers.take(whole)).items():
            self._findings.error(self._at(int(places[whole[row]])), problem)
        self._check_times(chunk.records)

    def _check_times(self, records: DispatchRecords) -> None:
        moments = records.store_timestamps_ms
        if not len(moments):
            return
        before = np.append(self.last_store_timestamp_ms, moments[:-1])
        for mask, problem in (
            (moments <= 0, "STORETIMESTAMP is not after 1970"),
            (moments < before, "STORETIMESTAMP goes back"),
        ):
            for row in np.flatnonzero(mask).tolist():
                place = self._at(int(records.physical_offsets[row]))
                self._findings.warning(place, problem)
        self.last_store_timestamp_ms = int(moments[-1])
        self.last_physical_offset = int(records.physical_offsets[-1])

    def _check_behind(self, file: MappedFile) -> None:
        """Check that nothing lies behind the log's end, in the file it ends in."""
        following = [f for f in self._log.files.files if f.start >= file.end]
        behind = next((u for f in following if (u := self._first_used(f.start, f)) is not None), -1)
        if behind >= 0 and not self._explain(behind):
            problem = (
                "the log ends here without a blank record, but later files have records: a "
                "broker would delete them"
            )
            self._causes.add(self._at(self.end), problem, self._rest)
        used = self._first_used(self.end, file)
        if used is not None and not self._explain(used, WARNING):
            problem = "bytes behind the end of the log: records cut off may come back to life"
            self._causes.add(self._at(used), problem, self._rest, WARNING)

    def _check_unused(self, file: MappedFile) -> None:
        used = self._first_used(file.start, file)
        if used is not None and not self._explain(used):
            self._findings.error(self._at(used), "records behind the end of the log")

    def _is_explained(self, physical_offset: int) -> bool:
        return bool(self._causes.covers(np.array([physical_offset]))[0])

    def _explain(self, physical_offset: int, severity: str = ERROR) -> bool:
        return self._causes.explain(np.array([physical_offset]), severity) > 0

    def _first_used(self, start: int, file: MappedFile) -> int | None:
        for position, chunk in data_behind(self._log, start):
            if position >= file.end:
                return None
            used = np.flatnonzero(chunk)
            if len(used):
                return position + int(used[0])
        return None

    def _at(self, physical_offset: int) -> FindingPlace:
        return log_place(self._store, min(physical_offset, max(self._log.high - 1, 0)))


def log_place(
    store: Store, physical_offset: int, message: tuple[str, int, int] | None = None
) -> FindingPlace:
    """Return the file of the CommitLog and the position in it; of a record, its ``message``.

    That is topic, queueId and queue offset.
    """
    path, position = store.log.where(physical_offset)
    topic, queue_id, queue_offset = message or (None, None, None)
    inside = path.removeprefix(f"{store.root}/")
    return FindingPlace(inside, position, topic, queue_id, queue_offset)

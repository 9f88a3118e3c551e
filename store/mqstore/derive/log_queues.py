"""The queues of a store by its CommitLog alone: units that its records imply, by topic and queue.

Each log file is walked once, several side by side, and what it implies is kept as sections in a
cache directory. A log file is known by its place in the log, its size, inode and times: a later
read walks only files that are new or have changed, and looks behind the end of those that
may still grow. Memory holds what sections have of each queue, and a few batches of units.

The offset of a message is the queueOffset of its record. Where two records of a queue have the same
one, both are units of it, in log order; where none has it, the queue has a gap.
"""

import hashlib
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.codec.dispatch import Queue
from mqstore.derive.log_sections import FileWalk, LogDamage, LogUnits
from mqstore.derive.records import IN_PLACE, fetch_at
from mqstore.derive.section_files import (
    SECTION_BATCH_ROWS,
    FileEnd,
    QueueTotals,
    SectionFile,
    private_folder,
    section_name,
    write_section,
)
from mqstore.errors import CorruptStoreError, NoSpaceError, UnsupportedStoreError
from mqstore.files.entry_log import open_log
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.files.mapped_file_queue import MappedFile
from mqstore.files.queue.consume_queue import MOST_QUEUES
from mqstore.files.safe_open import real_path
from mqstore.files.store_dir import StoreDir
from mqstore.format.names import mapped_file_name

_SIDE_BY_SIDE: Final = 4
_BATCHES: Final = 32  # 20 MB
_OPEN_SECTIONS: Final = 16
_MOST_SECTIONS: Final = 4_096  # of one log file: 2 GiB of the smallest records have 50
_OLD_S: Final = 86_400
_NO_END: Final = 2**62


def cache_of(place: StoreDir, cache: str) -> str:
    """Return the directory below ``cache`` for the sections of one store's CommitLog."""
    folders = "\0".join(map(real_path, place.commit_log))
    return f"{cache}/{hashlib.sha256(os.fsencode(folders)).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log, walked: its key, its sections, and how its walk ended."""

    file: MappedFile
    key: str
    sections: tuple[SectionFile, ...]
    end: FileEnd


class LogQueues:
    """The units of all queues that a CommitLog implies. ``close`` it."""

    def __init__(self, files: Sequence[LogFile]) -> None:
        """Take walked files. Raises UnsupportedStoreError for more than a million queues."""
        self.files = tuple(files)
        self._held: dict[Queue, list[tuple[SectionFile, QueueTotals]]] = {}
        for file in files:
            for section in file.sections:
                for queue, totals in section.queues.items():
                    self._held.setdefault(queue, []).append((section, totals))
        if len(self._held) > MOST_QUEUES:
            where = files[0].file.folder
            raise UnsupportedStoreError(where, "TOO_LARGE", f"more than {MOST_QUEUES} queues")
        self._batches: OrderedDict[tuple[str, int], LogUnits] = OrderedDict()
        self._open: OrderedDict[str, SectionFile] = OrderedDict()

    def close(self) -> None:
        """Close what is open; a later read opens it again."""
        while self._open:
            self._open.popitem()[1].close()
        self._batches.clear()

    @property
    def queues(self) -> list[Queue]:
        """The queues, sorted."""
        return sorted(self._held)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the log files that are not closed: they change when a broker appends."""
        return tuple(file.key for file in self.files if not file.end.is_closed)

    def totals(self, queue: Queue) -> list[QueueTotals]:
        """Return what each section has of a queue, in log order; nothing of an unknown one."""
        return [totals for _, totals in self._held.get(queue, ())]

    def damages(self) -> Iterator[LogDamage]:
        """Yield damage of the log, in its order: of each file the first hundred."""
        for number, file in enumerate(self.files):
            yield from file.end.damages
            follows = any(section.rows for f in self.files[number + 1 :] for section in f.sections)
            if not file.end.is_closed and follows:
                reason = "no blank record ends this file, and later ones have records"
                yield LogDamage(file.end.end, file.file.end, reason)

    @property
    def damaged(self) -> int:
        """How many damages there are."""
        return sum(file.end.damaged for file in self.files)

    def units(
        self, queue: Queue, start: int, end: int, most: int = SECTION_BATCH_ROWS
    ) -> Iterator[LogUnits]:
        """Yield the units of queue offsets [start, end), in their order, at most ``most`` at once.

        Raises CorruptStoreError where a section was damaged meanwhile; OSError.
        """
        for group in _overlapping(self._held.get(queue, ())):
            if len(group) == 1:
                yield from self._rows(*group[0], start, end, most)
            else:
                low = max(start, min(totals.low for _, totals in group))
                high = min(end, max(totals.high for _, totals in group) + 1)
                yield from self._merged(group, low, high, most)

    def first_at(self, queue: Queue, start: int, end: int, ms: int) -> int:
        """Return the first queue offset in [start, end) stored at or after a time; else ``end``."""
        found = end
        for section, totals in self._held.get(queue, ()):
            if totals.last_ms < ms or totals.low >= found:
                continue
            for units in self._rows(section, totals, start, found, SECTION_BATCH_ROWS):
                late = np.flatnonzero(units.store_timestamps_ms >= ms)
                if len(late):
                    found = int(units.queue_offsets[late[0]])
                    break
        return found

    def count_gaps(self, queue: Queue) -> "GapsAndDoubles":
        """Return what ``gaps_and_doubles`` does, by reading all units of a queue."""
        missing = doubled = 0
        first_gap = first_double = last = -1
        for units in self.units(queue, 0, _NO_END):
            numbers = units.queue_offsets
            before = np.append(last if last >= 0 else int(numbers[0]) - 1, numbers[:-1])
            steps = numbers - before
            last = int(numbers[-1])
            missing += int((steps[steps > 1] - 1).sum())
            doubled += int((steps == 0).sum())
            if first_gap < 0 and missing:
                first_gap = int(before[np.argmax(steps > 1)]) + 1
            if first_double < 0 and doubled:
                first_double = int(numbers[np.argmax(steps == 0)])
        return missing, first_gap, doubled, first_double

    def _merged(self, group: "_Group", start: int, end: int, most: int) -> Iterator[LogUnits]:
        """Yield units of sections whose queue offsets overlap: halved until they are few."""
        spans = [(section, *self._span(section, totals, start, end)) for section, totals in group]
        spans = [span for span in spans if span[1] < span[2]]
        if len(spans) <= 1 or end - start <= 1:
            for span in spans:
                yield from self._pieces(*span, most)
        elif sum(last - first for _, first, last in spans) <= most:
            parts = [units for span in spans for units in self._pieces(*span, most)]
            joined = LogUnits.joined(parts)
            yield joined.take(np.argsort(joined.queue_offsets, kind="stable"))
        else:
            middle = start + (end - start) // 2
            yield from self._merged(group, start, middle, most)
            yield from self._merged(group, middle, end, most)

    def _rows(
        self, section: SectionFile, totals: QueueTotals, start: int, end: int, most: int
    ) -> Iterator[LogUnits]:
        yield from self._pieces(section, *self._span(section, totals, start, end), most)

    def _span(
        self, section: SectionFile, totals: QueueTotals, start: int, end: int
    ) -> tuple[int, int]:
        """Return the rows of a section that have queue offsets [start, end) of a queue."""
        first, last = totals.first, totals.first + totals.rows
        if totals.distinct == totals.rows == totals.high - totals.low + 1:
            low = min(max(start - totals.low, 0), totals.rows)
            return first + low, first + min(max(end - totals.low, low), totals.rows)

        def number(row: int) -> int:
            batch, place = divmod(row, SECTION_BATCH_ROWS)
            return int(self._batch(section, batch).queue_offsets[place])

        rows = range(first, last)
        low = first if start <= totals.low else first + bisect_left(rows, start, key=number)
        high = last if end > totals.high else first + bisect_left(rows, end, key=number)
        return low, max(low, high)

    def _pieces(self, section: SectionFile, first: int, last: int, most: int) -> Iterator[LogUnits]:
        while first < last:
            number, place = divmod(first, SECTION_BATCH_ROWS)
            stop = min(place + last - first, place + most, SECTION_BATCH_ROWS)
            yield self._batch(section, number).take(slice(place, stop))
            first += stop - place

    def _batch(self, section: SectionFile, number: int) -> LogUnits:
        key = section.path, number
        found = self._batches.pop(key, None)
        if found is None:
            self._open.pop(section.path, None)
            if len(self._open) >= _OPEN_SECTIONS:
                self._open.popitem(last=False)[1].close()
            self._open[section.path] = section
            found = section.batch(number)
            if len(self._batches) >= _BATCHES:
                self._batches.popitem(last=False)
        self._batches[key] = found
        return found


_Group = Sequence[tuple[SectionFile, QueueTotals]]


def _overlapping(held: "_Group") -> Iterator["_Group"]:
    """Yield sections in the order of their queue offsets; those that overlap together."""
    order = sorted(range(len(held)), key=lambda number: held[number][1].low)
    group: list[int] = []
    reach = -1
    for number in order:
        if group and held[number][1].low > reach:
            yield [held[one] for one in sorted(group)]
            group = []
        group.append(number)
        reach = max(reach, held[number][1].high)
    if group:
        yield [held[one] for one in sorted(group)]


def open_log_queues(
    place: StoreDir,
    cache: str,
    known: Sequence[str] = (),
    limit: int | None = None,
    start: int = 0,
) -> LogQueues:
    """Return the queues of a store's CommitLog; walk what the directory ``cache`` does not have.

    ``known`` are keys of files as a read was planned with: their sections are taken, if they
    are there, though the file has grown since. Records from physical offset ``limit`` on, of a
    commit under way, are left out, and so is what lies before the record at ``start``.
    Raises FileNotFoundError; NoSpaceError or CorruptStoreError
    where sections cannot be kept; OSError.
    """
    folder = cache_of(place, cache)
    try:
        private_folder(cache)
        private_folder(folder)
    except OSError as error:
        raise _not_kept(folder, error) from error
    with open_log(place) as log:
        if not known and log.committed_end is not None:
            log.check_committed()
            limit = log.committed_end if limit is None else min(limit, log.committed_end)
        last = _NO_END if limit is None else limit
        files = [file for file in log.files.files if file.end > start and file.start < last]
        by_start = {key.partition("-")[0]: key for key in known}
    opened = partial(_opened, place, log, (folder, by_start), (start, limit))
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, os.cpu_count() or 1)) as workers:
        found = list(workers.map(opened, files))
    if not known and not start:
        _remove_old(folder, [file.key for file in found])
    return LogQueues(found)


def _opened(
    place: StoreDir,
    like: CommitLog,
    cached: tuple[str, Mapping[str, str]],
    span: tuple[int, int | None],
    file: MappedFile,
) -> LogFile:
    """Return one log file's sections, of records in ``span``: those that are kept, or new ones."""
    (folder, known), (start, limit) = cached, span
    with open_log(place, known=like) as log:
        planned = known.get(mapped_file_name(file.start))
        if planned is not None:
            kept = _kept(folder, planned, file)
            if kept is not None:
                return kept
        key = _key(file, start, limit)
        kept = _kept(folder, key, file)
        if kept is not None and not _has_grown(log, kept, limit):
            return kept
        walk = FileWalk(log, file, limit, start)
        try:
            _keep(folder, key, walk)
        except OSError as error:
            raise _not_kept(folder, error) from error
    made = _kept(folder, key, file)
    if made is None:
        reason = "sections of a log's queues that were just written are not there: is it shared?"
        raise CorruptStoreError(folder, 0, reason)
    return made


def _keep(folder: str, key: str, walk: FileWalk) -> None:
    """Walk over a file and write its sections; each when the next one, or the end, is known."""
    number, waiting = 0, None
    for section in walk.sections():
        if waiting is not None:
            write_section(folder, key, number, waiting, None)
            number += 1
        waiting = section
    end = FileEnd(walk.end, walk.is_closed, walk.has_rest, tuple(walk.damages), walk.damaged)
    write_section(folder, key, number, waiting or walk.nothing(), end)


def _kept(folder: str, key: str, file: MappedFile) -> LogFile | None:
    """Return the sections of a file that are there; None if one is missing or not believable."""
    sections = []
    for number in range(_MOST_SECTIONS):
        try:
            section = SectionFile(folder, section_name(key, number), key, number)
        except (OSError, CorruptStoreError):
            return None
        sections.append(section)
        end = section.end
        if end is not None:
            is_inside = file.start <= end.end <= file.end
            return LogFile(file, key, tuple(sections), end) if is_inside else None
    return None


def _has_grown(log: CommitLog, kept: LogFile, limit: int | None) -> bool:
    """Tell whether a record follows where the walk ended: a mapped file's times show no change."""
    if kept.end.is_closed or (limit is not None and kept.end.end >= limit):
        return False
    place = kept.end.end
    return fetch_at(log, place, IN_PLACE) is not None or after_blank(log, place) != place


def _key(file: MappedFile, start: int, limit: int | None) -> str:
    """Return what a log file is known by."""
    opened = file.open()
    try:
        parts = [*opened.version()]
    finally:
        opened.close()
    if limit is not None and limit < file.end:
        parts.append(limit)
    begun = [f"from{start:x}"] if start > file.start else []
    return "-".join([mapped_file_name(file.start), *(f"{part:x}" for part in parts), *begun])


def _remove_old(folder: str, keys: Sequence[str]) -> None:
    """Remove what no read of this log takes any more, once it is a day old."""
    current = set(keys)
    with suppress(OSError), os.scandir(folder) as entries:
        newest = os.stat(folder).st_mtime  # noqa: PTH116
        for entry in entries:
            if entry.name.partition(".")[0] not in current:
                with suppress(OSError):
                    if newest - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                        os.unlink(entry.path)  # noqa: PTH108


def _not_kept(folder: str, error: OSError) -> NoSpaceError:
    return NoSpaceError(
        f"{folder}: the queues of the log cannot be kept here ({error}); name another directory "
        "in the option cacheDir, or in XDG_CACHE_HOME"
    )


GapsAndDoubles = tuple[int, int, int, int]


def gaps_and_doubles(totals: Sequence[QueueTotals]) -> GapsAndDoubles | None:
    """Return what is missing and double: a count and the first queue offset of each, or -1.

    Double are units behind the first with the same queue offset. None where sections overlap: then
    their totals do not tell.
    """
    order = sorted(totals, key=lambda one: one.low)
    if any(a.high >= b.low for a, b in pairwise(order)):
        return None
    distinct = sum(one.distinct for one in order)
    missing = order[-1].high + 1 - order[0].low - distinct
    between = (a.high + 1 for a, b in pairwise(order) if b.low > a.high + 1)
    first_gap = min([*(one.gap for one in order if one.gap >= 0), *between], default=-1)
    doubled = sum(one.rows for one in order) - distinct
    first_double = min((one.double for one in order if one.double >= 0), default=-1)
    return missing, first_gap, doubled, first_double

"""Repair of IndexFiles: they get the keys of every record, once, in log order.

While the records come, the units that are there already are followed along with them. At the
first record that they do not agree about, all from it on is cut off and put again; so an index
that is right is only read.

Reference: CommitLogDispatcherBuildIndex, IndexService#buildIndex, #load (which deletes whole
files after a crash, and their older keys with them).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.codec.dispatch import DispatchRecords, RecordKeys, record_keys
from mqstore.derive.index_chains import INDEX_CHUNK_UNITS, IndexUnits, sound_parts
from mqstore.derive.index_keys import AlignedUnits, IndexUnitStream, has_keys
from mqstore.derive.records import WHOLE, fetch_at
from mqstore.derive.sound_record import read_record
from mqstore.files.base import durable
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.index.index_append import IndexAppender, IndexKeys, next_name
from mqstore.files.index.index_file import list_index_files
from mqstore.files.index.index_repair import (
    cut_back,
    first_behind,
    place_of,
    remove,
    remove_empty,
    sync,
    units_of,
)
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Int64s
from mqstore.format.index_file import FIRST_UNIT
from mqstore.format.names import INDEX

_TRIED_UNITS: Final = 200


class IndexRebuild:
    """Repairs the index: ``begin``, ``feed`` it all records from ``start`` on, then ``finish``.

    Nothing is changed before ``begin``.
    """

    def __init__(self, writer: StoreWriter, log: CommitLog, start: int) -> None:
        """``start`` may turn out to lie further back: where units can still be believed."""
        self._writer = writer
        self._root = writer.root
        self._log = log
        self._layout = writer.sizes.index
        self._parts = sound_parts(list_index_files(self._writer.place), self._layout, start)
        self.start = self._start_of(start)
        self.keys_put = 0
        self._has_tags: bool | None = None
        self._doubtful: IndexKeys | None = None
        self._appender: IndexAppender | None = None
        self._units = IndexUnitStream(self._read_from(self.start))

    def begin(self) -> None:
        """Remove files without a byte."""
        remove_empty(self._writer.place)

    def feed(self, records: DispatchRecords) -> None:
        """Take the next records. Raises NoSpaceError, CorruptStoreError, OSError."""
        keys = record_keys(records)
        if self._appender is None:
            row = self._follow(records, keys)
            if row == len(records):
                return
            self._appender = self._begin(int(records.physical_offsets[row]))
            keys = _from_row(keys, row)
        indexed = ~keys.is_tag | bool(self._has_tags)
        self._put(self._appender, _index_keys(records, keys.take(indexed)))

    def finish(self, tail: int) -> None:
        """Cut off keys of no record, and make all durable; the log ends at ``tail``."""
        appender = self._appender
        if appender is None and self._doubtful is not None:
            appender = self._begin(tail)
        if appender is not None:
            appender.close()
        elif next(self._units.before(2**63 - 1), None) or not all(f.is_whole for f in self._parts):
            self._cut(tail)
        if self._parts:
            self._sync()

    def _sync(self) -> None:
        """Make all units that were followed durable: their writer may have been killed before."""
        names = {found.file.name for found in self._parts}
        for file in list_index_files(self._writer.place):
            if file.name in names:
                sync(file)
        durable.fsync_directory(f"{self._root}/{INDEX}")

    def _start_of(self, start: int) -> int:
        """Return where to begin: ``start``, or the last record before a unit that is wrong."""
        for number, part in enumerate(self._parts):
            if part.is_whole:
                continue
            if part.count > FIRST_UNIT:
                last = place_of(part.file, self._layout, part.count - 1)
            elif number:
                before = self._parts[number - 1]
                last = place_of(before.file, self._layout, before.count - 1)
            else:
                last = self._log.low
            is_record = read_record(self._log, last) is not None
            return min(start, last if is_record else self._log.low)
        return start

    def _follow(self, records: DispatchRecords, keys: RecordKeys) -> int:
        """Return the first row whose units are not those of its keys; the row count if none."""
        parts = self._units.before(int(records.physical_offsets[-1]) + 1)
        aligned = [AlignedUnits(part, records) for part in parts]
        rows = np.concatenate([_NO_OFFSETS, *(units.rows for units in aligned)])
        hashes = np.concatenate([_NO_OFFSETS, *(units.hashes for units in aligned)])
        wrong = [_first_wrong(units) for units in aligned]
        count = len(records)
        there = np.bincount(rows, minlength=count)[:count]
        whole = np.bincount(keys.rows, minlength=count)
        plain = np.bincount(keys.rows[~keys.is_tag], minlength=count)
        differ = np.flatnonzero((there != whole) & (there != plain))
        wrong += differ[:1].tolist()
        limit = min(wrong, default=count)
        expected = (keys.rows < limit) & (~keys.is_tag | (there == whole)[keys.rows])
        same = hashes[rows < limit] == keys.hashes[expected]
        if not same.all():
            limit = int(keys.rows[expected][np.argmin(same)])
        self._note_tags(records, keys, there[:limit], plain[:limit])
        return limit

    def _note_tags(
        self, records: DispatchRecords, keys: RecordKeys, there: Int64s, plain: Int64s
    ) -> None:
        """Note whether tags have keys, and of the last record if it alone lacks its own.

        A file may have ended just before it: then it is put again.
        """
        whole = np.bincount(keys.rows, minlength=len(records))[: len(there)]
        keyed, tagged = np.flatnonzero(whole), np.flatnonzero(whole != plain)
        if not len(keyed):
            return
        self._doubtful = None
        if not len(tagged):
            return
        had = self._has_tags if len(tagged) == 1 else bool((there == whole)[tagged[-2]])
        self._has_tags = bool((there == whole)[tagged[-1]])
        if tagged[-1] == keyed[-1] and had and not self._has_tags:
            self._has_tags = True
            self._doubtful = _index_keys(records, keys.take(keys.rows == keyed[-1]))

    def _begin(self, physical_offset: int) -> IndexAppender:
        """Cut off what lies at that place and behind it, and be ready to put keys there."""
        again = self._doubtful
        self._cut(physical_offset if again is None else int(again.physical_offsets[0]))
        appender = self._open()
        if again is not None:
            self._put(appender, again)
        return appender

    def _put(self, appender: IndexAppender, new: IndexKeys) -> None:
        appender.reserve(len(new))
        appender.append(new, lambda: next_name(appender.last_name))
        self.keys_put += len(new)

    def _cut(self, physical_offset: int) -> None:
        """Leave the units of records before that place only."""
        ends = [
            first_behind(part.file, self._layout, part.count, physical_offset)
            for part in self._parts
        ]
        cut = [
            end < part.file.count or not part.is_whole
            for part, end in zip(self._parts, ends, strict=True)
        ]
        for number in reversed(range(len(ends))):
            part, end = self._parts[number], ends[number]
            if end == FIRST_UNIT and any(cut[: number + 1]):
                remove(part.file)
            elif cut[number]:
                cut_back(part.file, self._layout, end, self._log)

    def _open(self) -> IndexAppender:
        if self._has_tags is None:
            self._has_tags = self._had_tags()
        appender = IndexAppender(self._writer)
        if self._is_behind_gap(appender.last_physical_offset):
            appender.end_file()
        return appender

    def _is_behind_gap(self, last: int | None) -> bool:
        """Tell whether records between the index's last one and the walk have keys.

        An IndexFile is taken to have all keys between its first record and its last.
        """
        return last is not None and has_keys(self._log, last, self.start, with_tags=False)

    def _had_tags(self) -> bool:
        """Tell whether the newest units left have keys of tags, as brokers of 5.5.0 put them.

        True where no unit shows it: other brokers never look for keys of tags.
        """
        files = list_index_files(self._writer.place)
        if not files or files[-1].count <= FIRST_UNIT:
            return True
        count = files[-1].count
        units = units_of(files[-1], self._layout, max(FIRST_UNIT, count - _TRIED_UNITS), count)
        for place in np.unique(units["physical_offset"].astype(np.int64))[::-1].tolist():
            headers = fetch_at(self._log, place, WHOLE)
            if headers is None:
                continue
            keys = record_keys(DispatchRecords(headers, np.array([place])))
            if keys.is_tag.any():
                found = units["key_hash"][units["physical_offset"] == place]
                return bool(np.isin(keys.hashes[keys.is_tag], found).all())
        return True

    def _read_from(self, physical_offset: int) -> Iterator[IndexUnits]:
        """Yield the units of records from there on, up to the first that cannot be believed."""
        for part in self._parts:
            file, layout = part.file, self._layout
            first = first_behind(file, layout, part.count, physical_offset)
            for start in range(first, part.count, INDEX_CHUNK_UNITS):
                end = min(part.count, start + INDEX_CHUNK_UNITS)
                yield IndexUnits(file, start, units_of(file, layout, start, end))
            if not part.is_whole and part.count < file.count:
                return


_NO_OFFSETS: Final = np.zeros(0, np.int64)


def _first_wrong(aligned: AlignedUnits) -> int:
    """Return the first record whose units are of no record or say another time; many if none."""
    part = aligned.part
    wrong = ~aligned.has_record | aligned.has_wrong_seconds
    for _, row, _ in aligned.wrong_edges():
        wrong[row] = True
    if part.first == FIRST_UNIT:
        wrong[0] |= int(part.file.header["begin_physical_offset"]) != aligned.places[0]
    return int(aligned.rows[np.argmax(wrong)]) if wrong.any() else len(aligned.records)


def _from_row(keys: RecordKeys, row: int) -> RecordKeys:
    return keys.take(keys.rows >= row)


def _index_keys(records: DispatchRecords, keys: RecordKeys) -> IndexKeys:
    return IndexKeys(
        keys.hashes,
        records.physical_offsets[keys.rows],
        records.store_timestamps_ms[keys.rows],
    )

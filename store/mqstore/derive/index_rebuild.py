"""IndexFiles that have the keys of every record, once, in log order.

While the records come, the units that are there already are followed along with them. At the
first record that they do not agree about, all from it on is cut off and put again; so an index
that is right is only read.

Reference: CommitLogDispatcherBuildIndex, IndexService#buildIndex, #load (which deletes whole
files after a crash, and their older keys with them).
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np

from mqstore.arrays import Int64s, Structs
from mqstore.codec.dispatch import DispatchRecords, RecordKeys, record_keys
from mqstore.codec.gather import RecordHeaders
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.survey import read_record
from mqstore.errors import CorruptStoreError
from mqstore.files import durable
from mqstore.files.index.index_append import IndexAppender, IndexKeys, next_name
from mqstore.files.index.index_file import IndexFile, Layout, list_index_files
from mqstore.files.index.index_repair import (
    Examined,
    cut_back,
    examine,
    first_behind,
    place_of,
    remove,
    remove_empty,
    sync,
    units_of,
)
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.undo import Undo
from mqstore.format.index_file import FIRST_UNIT, file_size
from mqstore.format.names import INDEX

Piece: TypeAlias = tuple[Examined, int, Structs]

_CHUNK_UNITS: Final = 50_000
_MAX_SECONDS: Final = 2**31 - 1
_ASKED: Final = 200


def has_keys(log: CommitLog, after: int, before: int, *, with_tags: bool) -> bool:
    """Tell whether records between those two places have keys, or might: where none can be read.

    With ``with_tags`` tags are keys, as brokers since 5.5.0 put them.
    """
    if after >= before:
        return False
    walk = LogWalk(log, max(after, log.low))
    for records in walk.records():
        keys = record_keys(records)
        places = records.physical_offsets[keys.rows[~keys.is_tag | with_tags]]
        if ((places > after) & (places < before)).any():
            return True
        if walk.tail >= before:
            return False
    return walk.tail < before


class IndexRebuild:
    """Feed it all records from ``start`` on, then ``finish``."""

    def __init__(
        self, root: str, log: CommitLog, start: int, layout: Layout, *, temp_dir: str, fsync: bool
    ) -> None:
        """``start`` may turn out to lie further back: where units can still be believed."""
        self._root = root
        self._log = log
        self._layout = layout
        self._temp_dir = temp_dir
        self._fsync = fsync
        remove_empty(root, fsync=fsync)
        self._found = _examined(root, layout, start)
        self.start = self._start_of(start)
        self.keys_put = 0
        self._has_tags: bool | None = None
        self._doubtful: IndexKeys | None = None
        self._appender: IndexAppender | None = None
        self._held: list[Piece] = []
        self._stream = self._read_from(self.start)

    def feed(self, records: DispatchRecords) -> None:
        """Take the next records. Raises NoSpaceError, CorruptStoreError, OSError."""
        keys = record_keys(records)
        if self._appender is None:
            row = self._follow(records, keys)
            if row == len(records):
                return
            self._appender = self._begin(int(records.physical_offsets[row]))
            keys = _from_row(keys, row)
        kept = ~keys.is_tag | bool(self._has_tags)
        self._put(self._appender, _index_keys(records, keys.take(kept)))

    def finish(self, tail: int) -> None:
        """Cut off keys of no record, and make all durable; the log ends at ``tail``."""
        appender = self._appender
        if appender is None and self._doubtful is not None:
            appender = self._begin(tail)
        if appender is not None:
            appender.close()
        elif next(self._until(2**63 - 1), None) or not all(f.is_right for f in self._found):
            self._cut(tail)
        if self._fsync and self._found:
            self._sync()

    def _sync(self) -> None:
        """Make all that was followed durable: whoever wrote it may have been killed before."""
        names = {found.file.name for found in self._found}
        for file in list_index_files(self._root):
            if file.name in names:
                sync(file)
        durable.fsync_directory(f"{self._root}/{INDEX}")

    def _start_of(self, start: int) -> int:
        """Return where to begin: ``start``, or the last record before a unit that is wrong."""
        for number, found in enumerate(self._found):
            if found.is_right:
                continue
            if found.count > FIRST_UNIT:
                last = place_of(found.file, self._layout, found.count - 1)
            elif number:
                before = self._found[number - 1]
                last = place_of(before.file, self._layout, before.count - 1)
            else:
                last = self._log.low
            is_record = read_record(self._log, last) is not None
            return min(start, last if is_record else self._log.low)
        return start

    def _follow(self, records: DispatchRecords, keys: RecordKeys) -> int:
        """Return the first row whose units are not those of its keys; the row count if none."""
        pieces = list(self._until(int(records.physical_offsets[-1]) + 1))
        joined = [piece[2] for piece in pieces]
        places = np.concatenate([u["physical_offset"].astype(np.int64) for u in joined] or [_NONE])
        hashes = np.concatenate([u["key_hash"].astype(np.int64) for u in joined] or [_NONE])
        count = len(records)
        rows = np.searchsorted(records.physical_offsets, places)
        strays = rows[records.physical_offsets[np.minimum(rows, count - 1)] != places]
        wrong = [int(strays.min())] if len(strays) else []
        there = np.bincount(rows, minlength=count)[:count]
        whole = np.bincount(keys.rows, minlength=count)
        plain = np.bincount(keys.rows[~keys.is_tag], minlength=count)
        differ = np.flatnonzero((there != whole) & (there != plain))
        wrong += differ[:1].tolist()
        wrong += self._wrong_times(records, pieces)
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

    def _wrong_times(self, records: DispatchRecords, pieces: list[Piece]) -> list[int]:
        """Return the first row whose units tell another time than its own, if there is one."""
        for found, first, units in pieces:
            header = found.file.header
            begin = int(header["begin_timestamp_ms"])
            rows = np.searchsorted(records.physical_offsets, units["physical_offset"])
            moments = records.store_timestamps_ms[np.minimum(rows, len(records) - 1)]
            told = np.clip((moments - begin) // 1000, 0, _MAX_SECONDS) if begin > 0 else 0
            numbers = np.arange(first, first + len(units))
            # The first unit of a file is measured from the end of the file before it.
            wrong = (units["time_diff_s"] != told) & (numbers > FIRST_UNIT)
            if first == FIRST_UNIT:
                wrong[0] = moments[0] != begin
                wrong[0] |= int(header["begin_physical_offset"]) != units["physical_offset"][0]
            last = numbers == found.file.count - 1
            wrong |= last & (moments != int(header["end_timestamp_ms"]))
            if wrong.any():
                return [int(rows[np.argmax(wrong)])]
        return []

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
        ends = [first_behind(found, self._layout, physical_offset) for found in self._found]
        cut = [
            end < found.file.count or not found.is_right
            for found, end in zip(self._found, ends, strict=True)
        ]
        for number in reversed(range(len(ends))):
            found, end = self._found[number], ends[number]
            if end == FIRST_UNIT and any(cut[: number + 1]):
                remove(found.file, fsync=self._fsync)
            elif cut[number]:
                cut_back(found.file, self._layout, end, self._log, fsync=self._fsync)

    def _open(self) -> IndexAppender:
        if self._has_tags is None:
            self._has_tags = self._had_tags()
        appender = IndexAppender(
            self._root, self._temp_dir, self._layout, fsync=self._fsync, undo=Undo()
        )
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

        Where nothing tells they are put: other brokers never look for them.
        """
        files = list_index_files(self._root)
        if not files or files[-1].count <= FIRST_UNIT:
            return True
        count = files[-1].count
        units = units_of(files[-1], self._layout, max(FIRST_UNIT, count - _ASKED), count)
        for place in np.unique(units["physical_offset"].astype(np.int64))[::-1].tolist():
            size = np.array([_size_at(self._log, place)], np.int64)
            if not self._log.holds(np.array([place]), size)[0]:
                continue
            gathered = self._log.gather(np.array([place]), size)
            headers = RecordHeaders(gathered.buffer, gathered.starts, size)
            if headers.problems():
                continue
            keys = record_keys(DispatchRecords(headers, np.array([place])))
            if keys.is_tag.any():
                found = units["key_hash"][units["physical_offset"] == place]
                return bool(np.isin(keys.hashes[keys.is_tag], found).all())
        return True

    def _until(self, high: int) -> Iterator[Piece]:
        """Yield the units not yet seen whose records lie before ``high``, as they lie."""
        while True:
            held = self._held.pop() if self._held else next(self._stream, None)
            if held is None:
                return
            found, first, units = held
            beyond = np.flatnonzero(units["physical_offset"].astype(np.int64) >= high)
            count = int(beyond[0]) if len(beyond) else len(units)
            if count < len(units):
                self._held.append((found, first + count, units[count:]))
            if count:
                yield found, first, units[:count]
            if count < len(units):
                return

    def _read_from(self, physical_offset: int) -> Iterator[Piece]:
        """Yield the units of records from there on, up to the first that cannot be believed."""
        for found in self._found:
            first = first_behind(found, self._layout, physical_offset)
            for start in range(first, found.count, _CHUNK_UNITS):
                end = min(found.count, start + _CHUNK_UNITS)
                yield found, start, units_of(found.file, self._layout, start, end)
            if not found.is_right and found.count < found.file.count:
                return


_NONE: Final = np.zeros(0, np.int64)


def _examined(root: str, layout: Layout, start: int) -> list[Examined]:
    """Examine the files that have units of records from ``start`` on, and the one before them.

    Those that lie behind a wrong unit have none that can be believed. Raises CorruptStoreError
    where no file is of that layout.
    """
    files = list_index_files(root)
    if files and not any(_has_size(file, layout) for file in files):
        reason = (
            f"not an IndexFile of {layout.slots} slots and {layout.units} units: give "
            "maxHashSlotNum and maxIndexNum as in broker.conf, or set buildIndex=false"
        )
        raise CorruptStoreError(f"{root}/{INDEX}/{files[-1].name}", 0, reason)
    found: list[Examined] = []
    for file in reversed(files):
        one = examine(file, layout)
        if one.count < file.count:
            found = [Examined(later.file, FIRST_UNIT, is_right=False) for later in found]
        found.insert(0, one)
        if one.count > FIRST_UNIT and place_of(file, layout, FIRST_UNIT) < start:
            break
    return _in_order(found, layout)


def _in_order(found: list[Examined], layout: Layout) -> list[Examined]:
    """Believe no file whose first record is before the last of the file before."""
    last = -1
    for number, one in enumerate(found):
        if one.count > FIRST_UNIT:
            if place_of(one.file, layout, FIRST_UNIT) < last:
                doubted = found[number:]
                none = [Examined(later.file, FIRST_UNIT, is_right=False) for later in doubted]
                return [*found[:number], *none]
            last = place_of(one.file, layout, one.count - 1)
    return found


def _has_size(file: IndexFile, layout: Layout) -> bool:
    return file.size == file_size(layout.slots, layout.units)


def _size_at(log: CommitLog, physical_offset: int) -> int:
    header = log.header(physical_offset)
    return int(header["total_size"]) if header is not None else 0


def _from_row(keys: RecordKeys, row: int) -> RecordKeys:
    return keys.take(keys.rows >= row)


def _index_keys(records: DispatchRecords, keys: RecordKeys) -> IndexKeys:
    return IndexKeys(
        keys.hashes,
        records.physical_offsets[keys.rows],
        records.store_timestamps_ms[keys.rows],
    )

"""Samples of offsets in a directory of Parquet files, which ``mqlog record`` writes.

    FILE.parquet/samples-<first>-<last>.parquet    samples taken in these epoch ms, 13 digits each
    FILE.parquet/.samples.new                      a file that is being written

A sample is a file that appears whole, by a rename. When there are ``_MOST_SINGLE`` of one sample,
they become one file, which has its name before theirs are deleted: a file whose times lie within
those of another is a repeat, left out here and deleted by the next recording. Every other reader of
Parquet takes the directory too.
"""

import fcntl
import io
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.audit.errors import CorruptTableError
from mqstore.codec import compute as pc
from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import InvalidOptionError
from mqstore.files.base import durable
from mqstore.tables.columns import US, Columns, schema
from mqstore.verdicts.rates import LEAST_SPAN_MS

_LOG: Final = logging.getLogger(__name__)
SAMPLE_COLUMNS: Final[Columns] = (
    ("asOf", TIMESTAMP, False, "when the offsets were read"),
    ("brokerName", pa.string(), False, "name of the store's broker"),
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("minOffset", pa.int64(), False, "queue offset of the first message held"),
    ("brokerOffset", pa.int64(), False, "queue offset of the next message to come"),
    ("consumerOffset", pa.int64(), True, "next queue offset to consume; null: never committed"),
    ("lag", pa.int64(), False, "messages held and not consumed; of a POP group not acknowledged"),
    ("consumers", pa.int32(), True, "consumers that are connected; null: a store"),
    ("logEnd", pa.int64(), True, "where the broker's CommitLog ends; null: a store"),
    ("diskUsed", pa.int64(), True, "bytes in use on its disk; null: not known"),
)
SAMPLE_SCHEMA: Final = schema(SAMPLE_COLUMNS)
_READ_COLUMNS: Final = (
    "asOf", "brokerName", "group", "topic", "queueId", "brokerOffset", "consumerOffset", "logEnd",
    "diskUsed",
)  # fmt: skip
OPTION: Final = "samples"
FILE: Final = "FILE"
T = TypeVar("T")
_NAME: Final = re.compile(r"samples-([0-9]{13})-([0-9]{13})\.parquet")
_UNFINISHED: Final = ".samples.new"
_ATTEMPTS: Final = 5
_NO_PARQUET: Final = "magic bytes"
"""pyarrow says so of a file that was never one of Parquet."""
_MOST_SINGLE: Final = 60
_MERGED_ROWS: Final = 100_000
_MOST_SAMPLED_ROWS: Final = 2_000_000
"""Rows that are read of samples: newer ones first."""
_LEAST_GAPS: Final = 3
_LONG_GAP: Final = 10
"""A gap is long that has so many times the median of all gaps, and LEAST_SPAN_MS."""
_OF_A_GAP: Final = (
    "%s: no sample is of between %s and %s, and others follow each other in about %d s. Nothing "
    "was recorded then, or the clock was set ahead: in that case rates over this time are too low"
)


@dataclass(frozen=True, slots=True, order=True)
class SampleFile:
    """A file of samples taken from ``first_ms`` to ``last_ms`` (epoch)."""

    first_ms: int
    last_ms: int
    path: str

    @property
    def is_single(self) -> bool:
        """Whether it has one sample."""
        return self.first_ms == self.last_ms


def sample_files(folder: str | Path) -> tuple[list[SampleFile], list[SampleFile]]:
    """Return the files of samples, ascending by time, and those that only repeat others.

    Raises OSError.
    """
    found = []
    for path in Path(folder).iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            found.append(SampleFile(int(match[1]), int(match[2]), str(path)))
    kept: list[SampleFile] = []
    repeats: list[SampleFile] = []
    for one in sorted(found, key=lambda f: (f.first_ms, -f.last_ms)):
        within = kept and kept[-1].first_ms <= one.first_ms and one.last_ms <= kept[-1].last_ms
        (repeats if within else kept).append(one)
    return kept, repeats


def read_samples(
    path: str, window: tuple[int, int], most: int, is_wanted: Callable[[str], object]
) -> list[pa.Table]:
    """Return the last ``most`` samples taken in [start, end) (epoch ms), ascending by time.

    ``path`` is a directory of samples, or one Parquet file with their columns; the rows are those
    of wanted groups, of the newest samples where they were more than two million. Raises
    InvalidOptionError for what is neither.
    """
    return from_samples(path, lambda: _newest(path, window, most, is_wanted))


def lags_at(
    path: str, choose: Callable[[list[int]], Collection[int]], is_wanted: Callable[[str], object]
) -> dict[str, dict[int, int]]:
    """Return the lag of each wanted group at some times (epoch ms), summed over its queues.

    ``choose`` is given the times of all samples, ascending, and returns those that are read. A
    group that a sample does not have is not there at its time. Holds one row group in memory, and
    the sums. Raises as ``read_samples``.
    """
    return from_samples(path, lambda: _lags_at(path, choose, is_wanted))


def _lags_at(
    path: str, choose: Callable[[list[int]], Collection[int]], is_wanted: Callable[[str], object]
) -> dict[str, dict[int, int]]:
    paths = _paths(path, (0, 0))
    everyone = [part for one in paths for part in _times_of(one)]
    chosen = set(choose(sorted({us // US for times in everyone for us in times})))
    found: dict[str, dict[int, int]] = {}
    for one in paths:
        for part in _parts(one, is_wanted, ("asOf", "group", "lag"), chosen):
            sums = part.group_by(["group", "asOf"]).aggregate([("lag", "sum")])
            times = pc.cast(sums["asOf"], pa.int64()).to_pylist()
            for group, us, lag in zip(
                sums["group"].to_pylist(), times, sums["lag_sum"].to_pylist(), strict=True
            ):
                lags = found.setdefault(group, {})
                lags[us // US] = lags.get(us // US, 0) + lag
    return found


def _times_of(path: str) -> Iterator[list[int]]:
    with pq.ParquetFile(path) as file:
        _check_columns(file, ("asOf",))
        for number in range(file.num_row_groups):
            times = file.read_row_group(number, ["asOf"])["asOf"].cast(TIMESTAMP)
            found: list[int] = pc.unique(pc.cast(times, pa.int64())).to_pylist()
            yield found


def from_samples(path: str, read: Callable[[], T]) -> T:
    """Return what is read of samples; again where files became one meanwhile.

    Raises InvalidOptionError for what has no samples, CorruptTableError where they are damaged.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            if not Path(path).exists():
                expected = "is not there: mqlog record PLACE --every 30s FILE.parquet writes it"
                raise InvalidOptionError(OPTION, path, expected) from None
            if attempt + 1 == _ATTEMPTS:  # Else files became one while they were read.
                raise
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if isinstance(error, _NoSamplesError) or _NO_PARQUET in reason:
                raise InvalidOptionError(OPTION, path, f"has no samples: {reason}") from None
            raise CorruptTableError(path, f"its samples cannot be read: {reason}") from error
    raise AssertionError(path)


def _paths(path: str, window: tuple[int, int]) -> list[str]:
    """Return the files that may have samples of the window, the newest first."""
    if not Path(path).is_dir():
        return [path]
    files, _ = sample_files(path)
    if not files:
        raise InvalidOptionError(OPTION, path, "is a directory without samples")
    return [f.path for f in reversed(files) if f.last_ms >= window[0]]


def _newest(
    path: str, window: tuple[int, int], most: int, is_wanted: Callable[[str], object]
) -> list[pa.Table]:
    found: dict[int, list[pa.Table]] = {}
    rows, ahead = 0, set[int]()
    now_us = time.time_ns() // 1000
    for one in _paths(path, window):
        for part in _parts(one, is_wanted):
            times = pc.cast(part["asOf"], pa.int64())
            for us in pc.unique(times).to_pylist():
                if us > now_us and us // US >= window[1]:
                    ahead.add(us)
                if window[0] <= us // US < window[1]:
                    found.setdefault(us, []).append(part.filter(pc.equal(times, us)))
                    rows += found[us][-1].num_rows
            if rows >= _MOST_SAMPLED_ROWS:
                break
        if len(found) >= most or rows >= _MOST_SAMPLED_ROWS:
            break
    _warn_of_ahead(path, ahead)
    newest = sorted(found)[-most:]
    _warn_of_gap(path, newest)
    return [pa.concat_tables(found[us]) for us in newest]


def _warn_of_gap(path: str, times_us: Sequence[int]) -> None:
    """Warn of a long time without a sample, between others that follow each other soon."""
    gaps = sorted((after - before, before) for before, after in pairwise(times_us))
    if len(gaps) < _LEAST_GAPS:
        return
    longest_us, before_us = gaps[-1]
    usual_us = gaps[len(gaps) // 2][0]
    if longest_us > max(_LONG_GAP * usual_us, LEAST_SPAN_MS * US):
        begin, end = (_moment(us // US) for us in (before_us, before_us + longest_us))
        _LOG.warning(_OF_A_GAP, path, begin, end, round(usual_us / US / 1000))


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _warn_of_ahead(path: str, ahead: Collection[int]) -> None:
    """Warn of samples (us since the epoch) that a clock took which was ahead."""
    if ahead:
        text = "%s: %d samples are of later than now, the last of %s, and are left out"
        _LOG.warning(text, path, len(ahead), _moment(max(ahead) // US))


def _parts(
    path: str,
    is_wanted: Callable[[str], object],
    columns: Sequence[str] = _READ_COLUMNS,
    times_ms: Collection[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield the row groups of a file, the last first: the columns and the groups that are read.

    ``times_ms``: of samples taken then; None: of all.
    """
    with pq.ParquetFile(path) as file:
        _check_columns(file, columns)
        of = pa.schema([SAMPLE_SCHEMA.field(name) for name in columns])
        for number in reversed(range(file.num_row_groups)):
            table = file.read_row_group(number, list(columns)).cast(of)
            if times_ms is not None:
                taken = pc.cast(table["asOf"], pa.int64())
                them = [us for us in pc.unique(taken).to_pylist() if us // US in times_ms]
                table = table.filter(pc.is_in(taken, pa.array(them, pa.int64())))
            names = [name for name in pc.unique(table["group"]).to_pylist() if is_wanted(name)]
            yield table.filter(pc.is_in(table["group"], pa.array(names, pa.string())))


def _check_columns(file: pq.ParquetFile, columns: Iterable[str]) -> None:
    absent = [name for name in columns if name not in file.schema_arrow.names]
    if absent:
        raise _NoSamplesError(f"no column {absent[0]}")


class _NoSamplesError(ValueError):
    """A Parquet file that is no file of samples."""


class Recording:
    """A directory of samples that this process adds to. ``close`` it."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        """Make the directory, or take one that has samples; remove what a killed one left.

        ``most_bytes`` are those of all files: beyond them the oldest files go. Raises
        InvalidOptionError for another directory, and where another process records; OSError.
        """
        self._folder, self._most_bytes = folder, most_bytes
        path = Path(folder)
        if path.exists() and not path.is_dir():
            expected = "is a file: name a directory for samples, which may be new"
            raise InvalidOptionError(FILE, folder, expected)
        if not path.exists():
            durable.make_directory(folder)
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take(path)
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self, path: Path) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = "is recorded to by another process"
            raise InvalidOptionError(FILE, self._folder, expected) from None
        self._files, repeats = sample_files(path)
        if not self._files and {one.name for one in path.iterdir()} - {_UNFINISHED}:
            expected = "is a directory with other files: name another one, or a new one"
            raise InvalidOptionError(FILE, self._folder, expected)
        durable.unlink(str(path / _UNFINISHED))
        for one in repeats:
            durable.unlink(one.path)

    def close(self) -> None:
        """Let another process record."""
        os.close(self._lock)

    @property
    def last_ms(self) -> int:
        """When the last sample was taken (epoch ms); 0 without one."""
        return self._files[-1].last_ms if self._files else 0

    def add(self, rows: pa.Table, as_of_ms: int) -> None:
        """Add a sample, later than the last one. Raises OSError, NoSpaceError."""
        assert as_of_ms > self.last_ms
        self._write([rows], as_of_ms, as_of_ms)
        singles = [one for one in self._files if one.is_single]
        if len(singles) >= _MOST_SINGLE:
            self._merge(singles)
        self._drop_oldest()

    def _write(self, tables: Iterable[pa.Table], first_ms: int, last_ms: int) -> None:
        new = str(Path(self._folder) / _UNFINISHED)
        durable.unlink(new)
        fd = durable.create(new)
        try:
            with pq.ParquetWriter(_Sink(fd), SAMPLE_SCHEMA, compression="zstd") as writer:
                for table in tables:
                    writer.write_table(table)
            durable.fsync(fd)
        finally:
            durable.close(fd)
        name = f"samples-{first_ms:013}-{last_ms:013}.parquet"
        path = str(Path(self._folder) / name)
        durable.replace(new, path)
        durable.fsync_directory(self._folder)
        self._files.append(SampleFile(first_ms, last_ms, path))

    def _merge(self, singles: Sequence[SampleFile]) -> None:
        """Make one file of these, which are the last ones, and delete them."""
        self._write(_together(singles), singles[0].first_ms, singles[-1].last_ms)
        for one in singles:
            durable.unlink(one.path)
            self._files.remove(one)

    def _drop_oldest(self) -> None:
        sizes = [Path(one.path).stat().st_size for one in self._files]
        total = sum(sizes)
        while total > self._most_bytes and len(self._files) > 1:
            durable.unlink(self._files.pop(0).path)
            total -= sizes.pop(0)


class _Sink(io.RawIOBase):
    """What a Parquet writer writes to, by the seam of all writes."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd, self._at = fd, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        durable.write_at(self._fd, view, self._at)
        self._at += len(view)
        return len(view)


def _together(files: Sequence[SampleFile]) -> Iterator[pa.Table]:
    """Yield the rows of files in their order, some samples at a time."""
    pending: list[pa.Table] = []
    for one in files:
        pending.append(pq.read_table(one.path, schema=SAMPLE_SCHEMA))
        if sum(table.num_rows for table in pending) >= _MERGED_ROWS:
            yield pa.concat_tables(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.concat_tables(pending).combine_chunks()

"""The records of one broker of a cluster, for a scan: what was pulled, as units and headers.

A broker's answer tells the queue and the queue offset of a record; where it lies in the CommitLog
only the record itself tells. So a record that cannot be parsed has no place: -1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.derive.records import FetchedRecords
from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.format.names import LMQ_PREFIX, SCHEDULE_TOPIC
from mqstore.live.cluster import Cluster
from mqstore.live.pull import LiveSlice, PullReader
from mqstore.live.records import BrokenRecord, PulledRecords, PullSettings, read
from mqstore.live.requests import ALL_TAGS
from mqstore.read.heads import LocatedRecord
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.tags import SEPARATOR, parse_tags
from mqstore.read.units import CHUNK_UNITS, UnitBatch, cut, join, units_at

NO_PLACE: Final = -1


class ClusterRecords:
    """A RecordSource over one broker. What only tables ask of a store is refused by name."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        """``name`` is what errors call the broker."""
        self._name = name
        self._cluster = cluster
        self._broken: dict[tuple[str, int, int], BrokenRecord] = {}

    @property
    def low(self) -> int:
        """0: which bytes of the CommitLog have expired is not asked."""
        return 0

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def read(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield the records of ``slices``, in their order; the broker leaves out other tags."""
        expression = parse_tags(settings.tags)
        tags = ALL_TAGS if expression is None else SEPARATOR.join(sorted(expression.tags))
        wanted = PullSettings(
            fail_on_data_loss=settings.fail_on_data_loss,
            with_tags_codes="tagsCode" in settings.columns,
            batch_rows=settings.batch_rows,
            batch_bytes=settings.batch_bytes,
            first_rows=settings.first_rows,
        )
        for whole in (False, True):
            chosen = [_live(piece) for piece in slices if _is_unhashed(piece.topic) is whole]
            reader = PullReader(
                self._cluster,
                chosen,
                tags=ALL_TAGS if whole else tags,
                fail_on_data_loss=settings.fail_on_data_loss,
            )
            for pulled in read(reader, wanted):
                yield from self._batches(pulled, settings.batch_rows)

    def raw(self, units: UnitBatch, most: int) -> Iterator[tuple[UnitBatch, list[bytes]]]:
        """Yield units of the last batch that are broken, with at most 64 KiB of each."""
        names, positions = units.positions.queues, units.positions
        keys = [
            (*names[number][:2], queue_offset)
            for number, queue_offset in zip(
                positions.queue.tolist(), positions.queue_offsets.tolist(), strict=True
            )
        ]
        data = [self._broken[key].data for key in keys]
        for rows in cut(np.array([len(one) for one in data], np.int64), most):
            yield units.take(rows), data[rows]

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that names the broker and the position in its CommitLog, if known."""
        if physical_offset == NO_PLACE:
            return _UnplacedError(self._name, physical_offset, reason)
        return CorruptStoreError(f"{self._name}, CommitLog", physical_offset, reason)

    def units(
        self, queue: tuple[str, int], start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Raise UnsupportedStoreError: messages are read without their units."""
        del queue, start, end, most
        self._refuse()

    def unit_files(self, queue: tuple[str, int]) -> list[tuple[int, int]]:
        """Raise UnsupportedStoreError: a cluster tells nothing of files."""
        del queue
        self._refuse()

    def store_timestamps(self, units: UnitBatch) -> Int64s:
        """Raise UnsupportedStoreError: units of a cluster have no place to look at."""
        del units
        self._refuse()

    def tags(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.StringArray]]:
        """Raise UnsupportedStoreError: units of a cluster have no place to look at."""
        del units
        self._refuse()

    def locate(self, physical_offsets: Iterable[int]) -> dict[int, LocatedRecord]:
        """Raise UnsupportedStoreError: records are not found by their place alone."""
        del physical_offsets
        self._refuse()

    def places_of_key(self, topic: str, key: str) -> list[int]:
        """Raise UnsupportedStoreError: keys lead to queue offsets (see ClusterBounds.narrow)."""
        del topic, key
        self._refuse()

    def _batches(
        self, pulled: PulledRecords, most: int
    ) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield at most ``most`` sound records at a time, with the first those that are broken."""
        broken = list(pulled.broken)
        self._broken = {
            (one.piece.topic, one.piece.queue_id, one.queue_offset): one for one in broken
        }
        for start in range(0, max(len(pulled.headers), 1 if broken else 0), most):
            rows = np.arange(start, min(start + most, len(pulled.headers)))
            headers, positions = pulled.headers.take(rows), pulled.positions.take(rows)
            places = headers.field("physical_offset").astype(np.int64)
            units = UnitBatch(places, headers.sizes, positions)
            problems = {
                len(rows) + number: f"{one.piece} queue offset {one.queue_offset}: {one.reason}"
                for number, one in enumerate(broken)
            }
            yield (
                join([units, *map(_unit, broken)]),
                FetchedRecords(headers, np.arange(len(rows)), problems),
            )
            broken = []

    def _refuse(self) -> NoReturn:
        raise refused(self._name)


def refused(name: str) -> UnsupportedStoreError:
    """Return the error for what a running cluster does not tell."""
    reason = "a running cluster is read for its messages: give the path of a store for the rest"
    return UnsupportedStoreError(name, "LIVE", reason)


class _UnplacedError(CorruptStoreError):
    """A record that cannot be parsed, of which only the queue and the queue offset are known."""

    def message(self) -> str:
        """Name the broker, the message and the broken rule."""
        name, _, reason = self.args
        return f"{name}: {reason}"


def _is_unhashed(topic: str) -> bool:
    """Tell whether a broker's tags do not choose there: times, or offsets of another queue."""
    return topic == SCHEDULE_TOPIC or topic.startswith(LMQ_PREFIX)


def _live(piece: QueueSlice) -> LiveSlice:
    return LiveSlice(piece.broker_name, piece.topic, piece.queue_id, piece.start, piece.end)


def _unit(broken: BrokenRecord) -> UnitBatch:
    piece = broken.piece
    at, place, size = (
        np.array([n], np.int64) for n in (broken.queue_offset, NO_PLACE, broken.size)
    )
    return units_at((piece.topic, piece.queue_id, piece.broker), at, place, size)

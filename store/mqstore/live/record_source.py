"""The records of one broker of a cluster, for a scan: what was pulled, as units and headers.

A broker's answer tells the queue and the queue offset of a record; where it lies in the CommitLog
only the record itself tells. So a record that cannot be parsed has no place: -1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.derive.records import FetchedRecords
from mqstore.errors import CorruptStoreError
from mqstore.files.log.commit_log import Block
from mqstore.format.arrays import Int64s
from mqstore.format.consume_queue import UNIT
from mqstore.live.answers import header_number
from mqstore.live.cluster import Cluster
from mqstore.live.placed import PlacedRecords, placed, placed_by_headers
from mqstore.live.pull import Answer, LiveSlice, PullReader
from mqstore.live.records import BrokenRecord, PulledRecords, PullSettings, assemble, batches
from mqstore.live.requests import ALL_TAGS, GET_MAX_OFFSET, GET_MIN_OFFSET
from mqstore.live.topics import reading_settings
from mqstore.live.units import (
    NO_PLACE,
    BrokerUnits,
    is_unhashed,
    tag_expression,
    unit_of,
    with_units_codes,
)
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.tags import parse_tags
from mqstore.read.units import UnitBatch, cut, join

_EDGE_REQUESTS: Final = (GET_MIN_OFFSET, GET_MAX_OFFSET)
_DEFAULT_FILE_BYTES: Final = 300_000 * UNIT.itemsize


class ClusterRecords(BrokerUnits):
    """A RecordSource over one broker."""

    def __init__(self, name: str, broker: str, cluster: Cluster) -> None:
        """``name`` is what errors call the broker."""
        super().__init__(broker, cluster)
        self._name = name
        self._broken: dict[tuple[str, int, int], BrokenRecord] = {}
        self._last: _LastBatch | None = None

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
        for pull in self._pulls(slices, settings):
            for answers in batches(pull.reader, pull.settings):
                yield from self._assembled(answers, pull)

    def unit_batches(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[UnitBatch]:
        """Yield the units of what is pulled: those that records tell, where all are as asked."""
        for pull in self._pulls(slices, settings):
            for answers in batches(pull.reader, pull.settings):
                found = pull.placed(answers)
                if found is not None:
                    self._last = _LastBatch(answers, pull, found)
                    yield found.units
                    continue
                for units, records in self._assembled(answers, pull):
                    self._last = _LastBatch(answers, pull, records)
                    yield units

    def blocks(self, units: UnitBatch) -> Callable[[], Iterator[Block]] | None:
        """Return what gives the records of the last batch, as they came over the wire."""
        found = self._last.found if self._last else None
        return found.blocks if isinstance(found, PlacedRecords) else None

    def checked(self, units: UnitBatch) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield rows of the last batch, all or some of which only the bodies are broken."""
        last = self._last
        assert last is not None
        if isinstance(last.found, FetchedRecords):
            yield units, last.found
        elif len(units) == len(last.found.units):
            yield from self._assembled(last.answers, last.pull)
        else:
            yield from self._assembled(last.answers, last.pull, units)

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

    def unit_files(self, queue: tuple[str, int]) -> list[tuple[int, int]]:
        """Return the room of the files that a broker of these settings has for what it holds."""
        room = _file_units(reading_settings(self._cluster, self._broker))
        low, high = (
            header_number(address, answer, "offset")
            for answer, address in self._cluster.ask_all(
                [(self._broker, kind(topic=queue[0], queueId=queue[1])) for kind in _EDGE_REQUESTS]
            )
        )
        return [(start, start + room) for start in range(low - low % room, high, room)]

    def _pulls(self, slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator["_Pulling"]:
        wanted_tags = parse_tags(settings.tags)
        wanted = PullSettings(
            fail_on_data_loss=settings.fail_on_data_loss,
            with_tags_codes="tagsCode" in settings.columns,
            batch_rows=settings.batch_rows,
            batch_bytes=settings.batch_bytes,
            first_rows=settings.first_rows,
        )
        for unhashed in (False, True):
            chosen = [_live(piece) for piece in slices if is_unhashed(piece.topic) is unhashed]
            tags = tag_expression(chosen[0].topic, wanted_tags) if chosen else ALL_TAGS
            reader = PullReader(
                self._cluster,
                chosen,
                tags=tags,
                fail_on_data_loss=settings.fail_on_data_loss,
            )
            yield _Pulling(reader, wanted, unhashed=unhashed)

    def _assembled(
        self, answers: Sequence[Answer], pull: "_Pulling", some: UnitBatch | None = None
    ) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield the records of answers, or those of some of their units."""
        pulled = assemble(answers, pull.reader, pull.settings)
        if some is not None:
            pulled = pulled.take(_rows_of(some.positions, pulled.positions))
        if pull.unhashed and pull.settings.with_tags_codes:
            at = with_units_codes(self._cluster, self._broker, pulled.positions)
            pulled = replace(pulled, positions=at)
        yield from self._batches(pulled, pull.settings.batch_rows)

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
                join([units, *map(unit_of, broken)]),
                FetchedRecords(headers, np.arange(len(rows)), problems),
            )
            broken = []


@dataclass(frozen=True, slots=True)
class _Pulling:
    """A reader of some slices, and how its answers are put together."""

    reader: PullReader
    settings: PullSettings
    unhashed: bool

    def placed(self, answers: Sequence[Answer]) -> PlacedRecords | None:
        """Return the answers for the kernel; None where the units must be asked, or cut."""
        codes = self.settings.with_tags_codes
        if self.unhashed and codes:
            return None
        filtered = self.reader.is_filtered
        if filtered or codes:
            found = placed_by_headers(answers, filtered=filtered, with_tags_codes=codes)
        else:
            found = placed(answers)
        return None if found and len(found.units) > self.settings.batch_rows else found


class _LastBatch(NamedTuple):
    """The batch that was given last."""

    answers: Sequence[Answer]
    pull: _Pulling
    found: PlacedRecords | FetchedRecords


class _UnplacedError(CorruptStoreError):
    """A record that cannot be parsed, of which only the queue and the queue offset are known."""

    def message(self) -> str:
        """Name the broker, the message and the broken rule."""
        name, _, reason = self.args
        return f"{name}: {reason}"


def _rows_of(some: QueuePositions, positions: QueuePositions) -> Int64s:
    """Return the rows that are among ``some``, by queue and queue offset."""
    chosen = np.zeros(len(positions.queue), np.bool_)
    for number, queue in enumerate(positions.queues):
        those = [place for place, other in enumerate(some.queues) if other == queue]
        wanted = some.queue_offsets[np.isin(some.queue, those)]
        chosen |= (positions.queue == number) & np.isin(positions.queue_offsets, wanted)
    return np.flatnonzero(chosen)


def _live(piece: QueueSlice) -> LiveSlice:
    return LiveSlice(piece.broker_name, piece.topic, piece.queue_id, piece.start, piece.end)


def _file_units(settings: Mapping[str, str]) -> int:
    """Return how many units a ConsumeQueue file has: MessageStoreConfig#getMappedFileSizeCons…."""
    digits = settings.get("mappedFileSizeConsumeQueue", "")
    size = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    return max(1, -(-(size or _DEFAULT_FILE_BYTES) // UNIT.itemsize))

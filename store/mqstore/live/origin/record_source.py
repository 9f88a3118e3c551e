"""The records of one broker of a cluster, for a scan: what was pulled, as units and headers.

A broker's answer tells the queue and the queue offset of a record; where it lies in the CommitLog
only the record itself tells. So a record that cannot be parsed has no place: -1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.derive.records import FetchedRecords
from mqstore.errors import CorruptStoreError
from mqstore.files.log.commit_log import Block
from mqstore.format.arrays import Int64s, Span, TopicQueue
from mqstore.format.consume_queue import UNIT
from mqstore.live.origin.bounds import EDGE_REQUESTS
from mqstore.live.origin.placed import PlacedRecords, placed, placed_by_headers
from mqstore.live.origin.pull import Answer, LiveSlice, PullReader
from mqstore.live.origin.records import BrokenRecord, PulledRecords, PullSettings, assemble, batches
from mqstore.live.origin.units import (
    NO_PLACE,
    BrokerUnits,
    is_unhashed,
    tag_expression,
    unit_of,
    with_units_codes,
)
from mqstore.live.remoting.answers import header_number
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.requests import ALL_TAGS
from mqstore.live.remoting.topics import reading_settings
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched, QueueSlice
from mqstore.read.tags import parse_tags
from mqstore.read.units import UnitBatch, cut, join

_DEFAULT_FILE_BYTES: Final = 300_000 * UNIT.itemsize


class ClusterRecords(BrokerUnits):
    """A RecordSource over one broker."""

    def __init__(
        self,
        name: str,
        broker: str,
        cluster: Cluster,
        compacted: frozenset[str] = frozenset(),
    ) -> None:
        """``name`` is what errors call the broker; ``compacted`` are topics with holes."""
        super().__init__(broker, cluster, compacted)
        self._name = name

    @property
    def low(self) -> int:
        """0: which bytes of the CommitLog have expired is not asked."""
        return 0

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def fetched(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[Fetched]:
        """Yield what is pulled of ``slices``, in their order; the broker leaves out other tags."""
        for pull in self._pulls(slices, settings):
            for answers in batches(pull.reader, pull.settings):
                found = pull.placed(answers)
                if found is not None:
                    yield _Placed(found, answers, pull)
                else:
                    yield from pull.assembled(answers)

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that names the broker and the position in its CommitLog, if known."""
        if physical_offset == NO_PLACE:
            return _UnplacedError(self._name, physical_offset, reason)
        return CorruptStoreError(f"{self._name}, CommitLog", physical_offset, reason)

    def unit_files(self, queue: TopicQueue) -> list[Span]:
        """Return the queue offsets [start, end) of each file, from the broker's size of files."""
        room = _file_units(reading_settings(self._cluster, self._broker))
        low, high = (
            header_number(address, answer, "offset")
            for answer, address in self._cluster.ask_all(
                [(self._broker, kind(topic=queue[0], queueId=queue[1])) for kind in EDGE_REQUESTS]
            )
        )
        return [(start, start + room) for start in range(low - low % room, high, room)]

    def _unit_codes(self, positions: QueuePositions) -> QueuePositions:
        return with_units_codes(self._cluster, self._broker, positions)

    def _pulls(self, slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator["_Pulling"]:
        wanted_tags = self._asked_tags(parse_tags(settings.tags))
        wanted = PullSettings(
            fail_on_data_loss=settings.fail_on_data_loss,
            with_tags_codes="tagsCode" in settings.columns,
            batch_rows=settings.batch_rows,
            batch_bytes=settings.batch_bytes,
            first_rows=settings.first_rows,
        )
        of_kinds = [[piece for piece in slices if piece.topic not in self._compacted]]
        of_kinds += [[piece for piece in slices if piece.topic in self._compacted]]
        for pieces, unhashed in ((of_kinds[0], False), (of_kinds[0], True), (of_kinds[1], False)):
            chosen = [_live(piece) for piece in pieces if is_unhashed(piece.topic) is unhashed]
            tags = tag_expression(chosen[0].topic, wanted_tags) if chosen else ALL_TAGS
            reader = PullReader(
                self._cluster,
                chosen,
                tags=tags,
                fail_on_data_loss=settings.fail_on_data_loss,
                is_sparse=pieces is of_kinds[1],
            )
            yield _Pulling(reader, wanted, self._unit_codes if unhashed else None)


@dataclass(frozen=True, slots=True)
class _Pulling:
    """A reader of some slices, and how its answers are put together.

    ``codes`` asks the broker for the tagsCodes of messages whose records do not tell them.
    """

    reader: PullReader
    settings: PullSettings
    codes: Callable[[QueuePositions], QueuePositions] | None

    def placed(self, answers: Sequence[Answer]) -> PlacedRecords | None:
        """Return the answers for the kernel; None where the units must be asked, or cut."""
        codes = self.settings.with_tags_codes
        if self.codes and codes:
            return None
        filtered = self.reader.is_filtered
        if filtered or codes:
            found = placed_by_headers(answers, filtered=filtered, with_tags_codes=codes)
        else:
            found = placed(answers)
        return None if found and len(found.units) > self.settings.batch_rows else found

    def assembled(
        self, answers: Sequence[Answer], some: UnitBatch | None = None
    ) -> Iterator["_Assembled"]:
        """Yield the records of answers, or those of some of their units, in batches of rows."""
        pulled = assemble(answers, self.reader, self.settings)
        if some is not None:
            pulled = pulled.take(_rows_of(some.positions, pulled.positions))
        if self.codes and self.settings.with_tags_codes:
            pulled = replace(pulled, positions=self.codes(pulled.positions))
        count, most = len(pulled.headers), self.settings.batch_rows
        places = [_row_of(one, pulled.positions) for one in pulled.broken]
        for start in range(0, max(count, 1 if places else 0), most):
            end = min(start + most, count)
            is_last = end == count
            here = [n for n, at in enumerate(places) if start <= at and (at < end or is_last)]
            yield _Assembled.of(
                pulled.take(np.arange(start, end)),
                [pulled.broken[number] for number in here],
                [places[number] - start for number in here],
            )


@dataclass(frozen=True, slots=True)
class _Assembled:
    """A Fetched of records that were parsed already; of ``broken`` ones only the bytes came."""

    units: UnitBatch
    records: FetchedRecords
    broken: Mapping[tuple[str, int, int], BrokenRecord]

    @classmethod
    def of(
        cls, pulled: PulledRecords, broken: Sequence[BrokenRecord], rows: Sequence[int]
    ) -> "_Assembled":
        """Return sound records, with each broken one in front of the sound one of that row."""
        headers, count = pulled.headers, len(pulled.headers)
        physical_offsets = headers.field("physical_offset").astype(np.int64)
        sound = UnitBatch(physical_offsets, headers.sizes, pulled.positions)
        keys = np.concatenate((2 * np.arange(count) + 1, 2 * np.array(rows, np.int64)))
        order = np.argsort(keys, kind="stable")
        problems = {}
        for row in np.flatnonzero(order >= count).tolist():
            one = broken[int(order[row]) - count]
            problems[row] = f"{one.piece} queue offset {one.queue_offset}: {one.reason}"
        return cls(
            join([sound, *map(unit_of, broken)]).take(order),
            FetchedRecords(headers, np.flatnonzero(order < count), problems),
            {(one.piece.topic, one.piece.queue_id, one.queue_offset): one for one in broken},
        )

    def blocks(self) -> None:
        """Return None: the records do not lie as in a log."""

    def checked(self, some: UnitBatch) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield all records: whatever decodes blocks took none."""
        yield some, self.records

    def raw(self, lost: UnitBatch, most: int) -> Iterator[tuple[UnitBatch, list[bytes]]]:
        """Yield units that are broken, with at most 64 KiB of each."""
        names, positions = lost.positions.queues, lost.positions
        keys = [
            (*names[number][:2], queue_offset)
            for number, queue_offset in zip(
                positions.queue.tolist(), positions.queue_offsets.tolist(), strict=True
            )
        ]
        data = [self.broken[key].data for key in keys]
        for rows in cut(np.array([len(one) for one in data], np.int64), most):
            yield lost.take(rows), data[rows]


class _Placed:
    """A Fetched of records as they came over the wire, which a kernel decodes."""

    def __init__(self, found: PlacedRecords, answers: Sequence[Answer], pull: _Pulling) -> None:
        self._found, self._answers, self._pull = found, answers, pull
        self._last: _Assembled | None = None

    @property
    def units(self) -> UnitBatch:
        """The units that records tell."""
        return self._found.units

    def blocks(self) -> Callable[[], Iterator[Block]]:
        """Return what gives the records from memory."""
        return self._found.blocks

    def checked(self, some: UnitBatch) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield units, all or some of which only the bodies are broken, with their records."""
        chosen = None if len(some) == len(self.units) else some
        for found in self._pull.assembled(self._answers, chosen):
            self._last = found
            yield found.units, found.records

    def raw(self, lost: UnitBatch, most: int) -> Iterator[tuple[UnitBatch, list[bytes]]]:
        """Yield units that are broken, with at most 64 KiB of each."""
        assert self._last is not None, "no record was checked"
        yield from self._last.raw(lost, most)


class _UnplacedError(CorruptStoreError):
    """A record that cannot be parsed, of which only the queue and the queue offset are known."""

    text = "{path!s}: {reason!s}"


def _rows_of(some: QueuePositions, positions: QueuePositions) -> Int64s:
    """Return the rows that are among ``some``, by queue and queue offset."""
    chosen = np.zeros(len(positions.queue), np.bool_)
    for number, queue in enumerate(positions.queues):
        those = [place for place, other in enumerate(some.queues) if other == queue]
        wanted = some.queue_offsets[np.isin(some.queue, those)]
        chosen |= (positions.queue == number) & np.isin(positions.queue_offsets, wanted)
    return np.flatnonzero(chosen)


def _row_of(one: BrokenRecord, positions: QueuePositions) -> int:
    """Return the row of the first sound record behind a broken one in its queue."""
    piece = one.piece
    name = (piece.topic, piece.queue_id, piece.broker)
    numbers = [number for number, other in enumerate(positions.queues) if other == name]
    of_queue = np.flatnonzero(np.isin(positions.queue, numbers))
    before = int(np.count_nonzero(positions.queue_offsets[of_queue] < one.queue_offset))
    if not len(of_queue):
        return len(positions.queue)
    return int(of_queue[before]) if before < len(of_queue) else int(of_queue[-1]) + 1


def _live(piece: QueueSlice) -> LiveSlice:
    return LiveSlice(piece.broker_name, piece.topic, piece.queue_id, piece.start, piece.end)


def _file_units(settings: Mapping[str, str]) -> int:
    """Return the units of a ConsumeQueue file: MessageStoreConfig#mappedFileSizeConsumeQueue."""
    digits = settings.get("mappedFileSizeConsumeQueue", "")
    size = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    return max(1, -(-(size or _DEFAULT_FILE_BYTES) // UNIT.itemsize))

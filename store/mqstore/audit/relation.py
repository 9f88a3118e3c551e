"""The offset map of a replay as a relation: which message of the source a message of the target is.

Only runs are kept, in which old and new offsets ascend side by side: a queue that was replayed
whole is one of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.arrow_compat import with_column
from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int64s

MAP_OPTION: Final = "offsetMap"
_OLD: Final = ("brokerName", "topic", "queueId", "queueOffset")
_NEW: Final = ("newBrokerName", "newTopic", "newQueueId", "newQueueOffset")
_BETWEEN: Final = "\x00"
_NOT_MAPPED: Final = -1

PlacedQueue: TypeAlias = tuple[str, str, int]
"""Name of a broker, topic, queueId."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of one queue, ascending and apart: int64[n] each.

    Run i maps ``starts[i] + k`` to ``to[i] + k`` of queue number ``queues[i]``, for k below
    ``counts[i]``.
    """

    starts: Int64s
    counts: Int64s
    queues: Int64s
    to: Int64s

    def of(self, queue_offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return for each queue offset the number of a queue, and the offset in it; -1 for none."""
        run = np.searchsorted(self.starts, queue_offsets, side="right") - 1
        found = run >= 0
        run = np.maximum(run, 0)
        beyond = queue_offsets - self.starts[run]
        found &= beyond < self.counts[run]
        number = np.where(found, self.queues[run], _NOT_MAPPED)
        return number, np.where(found, self.to[run] + beyond, _NOT_MAPPED)


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRelation:
    """The relation in both directions, by queue; ``sources`` and ``targets`` are the queues."""

    sources: tuple[PlacedQueue, ...]
    targets: tuple[PlacedQueue, ...]
    by_source: dict[PlacedQueue, Runs]
    by_target: dict[PlacedQueue, Runs]

    def topics(self, sources: Collection[str]) -> frozenset[str]:
        """Return the topics of the target that messages of these topics of the source went to."""
        numbers = {
            number
            for (_, topic, _), runs in self.by_source.items()
            if topic in sources
            for number in np.unique(runs.queues).tolist()
        }
        return frozenset(self.targets[number][1] for number in numbers)


def relation_of(pieces: Iterable[pa.RecordBatch]) -> OffsetRelation:
    """Return the relation of the pieces of an OFFSET_MAP.

    Rows without a new place relate nothing. Raises InvalidOptionError for a row without an old
    place, and for a message of the target that two messages of the source became.
    """
    numbers: tuple[dict[PlacedQueue, int], dict[PlacedQueue, int]] = ({}, {})
    parts: list[Int64s] = []
    for batch in pieces:
        if any(batch.column(name).null_count for name in _OLD):
            raise InvalidOptionError(MAP_OPTION, "", "has a row that names no message of a source")
        known = batch.filter(pc.and_(*(pc.is_valid(batch[name]) for name in _NEW[2:])))
        if len(known):
            old, new = (_numbered(known, *both) for both in zip((_OLD, _NEW), numbers, strict=True))
            parts.append(_joined(np.stack((*new, *old), axis=1)))
    rows = np.concatenate([np.zeros((0, 5), np.int64), *parts])
    sources, targets = (tuple(one) for one in numbers)
    _check_one_each(_joined(rows))
    return OffsetRelation(
        sources,
        targets,
        by_source=_by_queue(_joined(rows[:, (2, 3, 0, 1, 4)]), sources),
        by_target=_by_queue(_joined(rows), targets),
    )


def _numbered(
    batch: pa.RecordBatch, names: tuple[str, ...], numbers: dict[PlacedQueue, int]
) -> tuple[Int64s, Int64s]:
    """Return for each row the number of its queue, and its queue offset."""
    encoded = [batch.column(name).dictionary_encode() for name in names[:3]]
    codes = np.zeros(len(batch), np.int64)
    for column in encoded:
        codes = codes * max(1, len(column.dictionary)) + column.indices.to_numpy(False)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    queues = [tuple(column[row].as_py() for column in encoded) for row in first.tolist()]
    found = np.array([numbers.setdefault(queue, len(numbers)) for queue in queues], np.int64)
    return found[inverse], batch.column(names[3]).to_numpy().astype(np.int64)


def _joined(rows: Int64s) -> Int64s:
    """Return runs (queue, start, other queue, its start, count), sorted, joined where they meet."""
    if rows.shape[1] == 4:
        rows = np.column_stack((rows, np.ones(len(rows), np.int64)))
    rows = rows[np.lexsort((rows[:, 3], rows[:, 2], rows[:, 1], rows[:, 0]))]
    while len(joined := _met(rows)) < len(rows):  # Once more than there are runs within others.
        rows = joined
    return rows


def _met(rows: Int64s) -> Int64s:
    """Return sorted runs, each joined with those behind it that go on where it is."""
    if not len(rows):
        return rows
    before, after = rows[:-1], rows[1:]
    goes_on = (before[:, 0] == after[:, 0]) & (before[:, 2] == after[:, 2])
    goes_on &= after[:, 1] - before[:, 1] == after[:, 3] - before[:, 3]
    goes_on &= after[:, 1] <= before[:, 1] + before[:, 4]
    begins = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    ends = np.maximum.reduceat(rows[:, 1] + rows[:, 4], begins)
    joined = rows[begins]
    joined[:, 4] = ends - joined[:, 1]
    return joined


def _check_one_each(runs: Int64s) -> None:
    """Raise InvalidOptionError if a place in the target has two messages of the source."""
    same = runs[1:, 0] == runs[:-1, 0]
    if (same & (runs[1:, 1] < runs[:-1, 1] + runs[:-1, 4])).any():
        expected = "names two messages of the source for one of the target: is it of two replays?"
        raise InvalidOptionError(MAP_OPTION, "", expected)


def _by_queue(runs: Int64s, names: tuple[PlacedQueue, ...]) -> dict[PlacedQueue, Runs]:
    found = {}
    for number, name in enumerate(names):
        first, end = np.searchsorted(runs[:, 0], [number, number + 1])
        of_it = runs[first:end]
        found[name] = Runs(of_it[:, 1], of_it[:, 4], of_it[:, 2], of_it[:, 3])
    return found


@dataclass(frozen=True, slots=True)
class Naming:
    """Gives messages of one side the names of messages of the source.

    ``brokers`` has for names of brokers of this side those of the map. With ``only_mapped``,
    messages that the map does not name are left out.
    """

    relation: OffsetRelation
    brokers: Mapping[str, str]
    is_target: bool
    only_mapped: bool

    def named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages with their names as ``msgId``."""
        names = np.full(len(batch), None, object)
        kept = np.ones(len(batch), np.bool_)
        places = batch.column("queueOffset").to_numpy()
        known = self.relation.by_target if self.is_target else self.relation.by_source
        for queue, rows in self._queues(batch):
            runs = known.get(queue)
            number, at = (
                (np.full((2, len(rows)), _NOT_MAPPED)) if runs is None else runs.of(places[rows])
            )
            kept[rows[number == _NOT_MAPPED]] = not self.only_mapped
            if self.is_target:
                names[rows] = list(self._of_target(queue, places[rows], number, at))
            else:
                names[rows] = [_name(queue, place) for place in places[rows].tolist()]
        ids = pa.array(names, pa.string())
        return with_column(batch, batch.schema.field("msgId"), ids).filter(pa.array(kept))

    def _of_target(
        self, queue: PlacedQueue, places: Int64s, number: Int64s, at: Int64s
    ) -> Iterator[str]:
        sources = self.relation.sources
        for own, source, place in zip(places.tolist(), number.tolist(), at.tolist(), strict=True):
            if source == _NOT_MAPPED:
                yield _BETWEEN + _name(queue, own)
            else:
                yield _name(sources[source], place)

    def _queues(self, batch: pa.RecordBatch) -> Iterator[tuple[PlacedQueue, Int64s]]:
        columns = [batch.column(name).dictionary_encode() for name in _OLD[:3]]
        codes = np.zeros(len(batch), np.int64)
        for column in columns:
            codes = codes * max(1, len(column.dictionary)) + column.indices.to_numpy()
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        for number, row in enumerate(first.tolist()):
            broker, topic, queue_id = (column[row].as_py() for column in columns)
            rows = np.flatnonzero(inverse == number)
            yield (self.brokers.get(broker, broker), topic, queue_id), rows


def _name(queue: PlacedQueue, queue_offset: int) -> str:
    return _BETWEEN.join((*map(str, queue), str(queue_offset)))

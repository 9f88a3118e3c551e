"""The filter of a query, as Arrow has it, to what a read of messages has to read for it.

Arrow itself decides what cannot pass. A part of a read is described to it as a fragment of a
dataset (queueId is 2, queueOffset is between 5 and 9), and it drops the fragments whose
description contradicts the filter. So no filter is taken apart here, and of one that Arrow cannot
decide nothing is dropped. The values that a filter names are only the places where parts begin.

What is read is filtered by Arrow again, row by row: fewer messages are read, and the rows are the
same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyarrow import dataset, fs

from mqstore.codec.schema import TIMESTAMP
from mqstore.read.source import QueueSlice
from mqstore.request.narrow import Left, narrowed
from mqstore.request.plan import ReadPlan
from mqstore.request.read_options import MESSAGES

_QUEUE_VALUES: Final[dict[str, Callable[[QueueSlice], str | int]]] = {
    "topic": lambda piece: piece.topic,
    "brokerName": lambda piece: piece.broker_name,
    "queueId": lambda piece: piece.queue_id,
    "partition": lambda piece: piece.queue_id,
}
"""Columns that have one value in a queue."""
_OFFSET_NAMES: Final = ("queueOffset", "offset")
_TIME_NAMES: Final = ("storeTimestamp", "timestamp")
_TAG_NAMES: Final = ("tags",)
_MOST_LITERALS: Final = 64
"""Of a kind: where there are more, the least and the largest stand for all."""
_FRAGMENT_FORMAT: Final = dataset.IpcFileFormat()
_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def left_of(plan: ReadPlan, condition: dataset.Expression, schema: pa.Schema) -> ReadPlan:
    """Return a read of what can pass a condition on columns of ``schema``; rows are not filtered.

    A table is read whole. Where damaged records are skipped or rescued, a row may show other times
    and tags than the read goes by, so only queues and offsets are taken. Raises what finding
    times in the place raises.
    """
    if plan.options.table != MESSAGES:
        return plan
    asked = _Condition(condition, schema)
    pieces = asked.pieces(plan.slices)
    if plan.options.on_corrupt != "fail":
        return narrowed(plan, Left(tuple(pieces)))
    times = asked.parts(_TIME_NAMES, TIMESTAMP)
    tags = asked.parts(_TAG_NAMES, pa.string(), null=True)
    if not times or not tags:
        return narrowed(plan, Left(()))
    first, last = times[0].low, times[-1].high
    left = Left(
        tuple(pieces),
        None if first is None else first // 1_000,
        None if last is None else -(-last // 1_000),
        frozenset(part.low for part in tags) if all(part.is_value for part in tags) else None,
    )
    return narrowed(plan, left)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the values of a column: from ``low`` to ``high``, None where it has no end.

    Times are in microseconds. Where two values differ, neither may belong to it.
    """

    description: dataset.Expression
    low: Any = None
    high: Any = None

    @property
    def is_value(self) -> bool:
        """Tell whether it has one value only."""
        return self.low is not None and self.low == self.high


class _Condition:
    """A condition, which is asked what parts of a read can have rows that pass."""

    def __init__(self, condition: dataset.Expression, schema: pa.Schema) -> None:
        self._condition = condition
        self._schema = schema
        self._named = list(_named_in(condition))

    def pieces(self, slices: Sequence[QueueSlice]) -> Iterator[QueueSlice]:
        """Yield the slices that can have such rows, each cut to the ranges that can."""
        names = [name for name in _QUEUE_VALUES if name in self._schema.names]
        described = [self._constants(piece, names) for piece in slices]
        for place in self._possible(described):
            piece = slices[place]
            stretches = self.parts(_OFFSET_NAMES, pa.int64(), described[place])
            for low, high in _joined(stretches):
                start = piece.start if low is None else max(piece.start, low)
                end = piece.end if high is None else min(piece.end, high + 1)
                if (start, end) == (piece.start, piece.end):
                    yield piece
                elif start < end:
                    yield replace(piece, start=start, end=end, weight=None)

    def parts(
        self,
        names: Sequence[str],
        kind: pa.DataType,
        given: dataset.Expression | None = None,
        *,
        null: bool = False,
    ) -> list[_Part]:
        """Return the parts of a column, ascending, in which rows can pass; [] if none can.

        The column is the first of ``names`` that the rows have. ``given`` is what else is known of
        the rows, and ``null`` tells that the column may be null, which is a part as well.
        """
        values = self._values(kind)
        name = next((name for name in names if name in self._schema.names), None)
        if name is None or not values:
            return [_Part(dataset.scalar(True))]
        field = dataset.field(name)
        parts = [_Part(field.is_null())] if null else []
        parts += _divided(field, values, kind)
        described = [part.description for part in parts]
        if given is not None:
            described = [given & one for one in described]
        return [parts[place] for place in self._possible(described)]

    def _constants(self, piece: QueueSlice, names: Sequence[str]) -> dataset.Expression:
        found = dataset.scalar(True)
        for name in names:
            value = pa.scalar(_QUEUE_VALUES[name](piece), self._schema.field(name).type)
            found &= dataset.field(name) == value
        return found

    def _possible(self, described: Sequence[dataset.Expression]) -> list[int]:
        """Return the places of descriptions whose rows can pass, ascending."""
        fragments = dataset.FileSystemDataset.from_paths(
            list(map(str, range(len(described)))),  # Names only: nothing is opened.
            schema=self._schema,
            format=_FRAGMENT_FORMAT,
            filesystem=fs.LocalFileSystem(),
            partitions=list(described),
        )
        try:
            kept = list(fragments.get_fragments(filter=self._condition))
        except _MISFITS:  # The reader refuses it too.
            return list(range(len(described)))
        return sorted(int(fragment.path) for fragment in kept)

    def _values(self, kind: pa.DataType) -> list[Any]:
        """Return the values that the condition names, of one kind, ascending."""
        found: set[Any] = set()
        for values in self._named:
            if _is_like(values.type, kind):
                plain = values.cast(kind, safe=False).drop_null()
                plain = plain.cast(pa.int64()) if kind == TIMESTAMP else plain
                found.update(plain.to_pylist())
        ascending = sorted(found)
        if len(ascending) > _MOST_LITERALS:
            return [ascending[0], ascending[-1]]
        return ascending


def _is_like(named: pa.DataType, kind: pa.DataType) -> bool:
    if kind == TIMESTAMP:
        return bool(pa.types.is_timestamp(named)) and named.tz is not None
    if pa.types.is_integer(kind):
        return bool(pa.types.is_signed_integer(named))
    return str(named) in ("string", "large_string", "string_view")


def _divided(field: dataset.Expression, values: Sequence[Any], kind: pa.DataType) -> list[_Part]:
    """Return the parts that values divide a column into: each value, and what is between two."""
    scalars = [pa.scalar(value, kind) for value in values]
    found = [_Part(field < scalars[0], None, values[0])]
    for value, scalar in zip(values, scalars, strict=True):
        found.append(_Part(field == scalar, value, value))
    for (low, above), (high, below) in pairwise(zip(values, scalars, strict=True)):
        found.append(_Part((field > above) & (field < below), low, high))
    found.append(_Part(field > scalars[-1], values[-1], None))
    first, *rest, last = found
    return [first, *sorted(rest, key=lambda part: (part.low, part.high)), last]


def _joined(parts: Sequence[_Part]) -> Iterator[tuple[Any, Any]]:
    """Yield the ranges that parts make, where each begins at the end of the one before."""
    ends = [i for i, (one, two) in enumerate(pairwise(parts), 1) if one.high != two.low]
    for start, end in pairwise([0, *ends, len(parts)]):
        if start < end:
            yield parts[start].low, parts[end - 1].high


def _named_in(condition: dataset.Expression) -> Iterator[pa.Array]:
    """Yield the values that a condition names, as far as its pickled form shows them.

    The form is a batch of one row, which has a column for each literal, and for a list of values a
    struct with it.
    """
    try:
        (pickled,) = condition.__reduce__()[1]
        row = pa.ipc.open_file(pickled).get_batch(0)
    except (pa.ArrowException, OSError, TypeError, ValueError):
        return
    for column in row.columns:
        if not pa.types.is_struct(column.type):
            yield column
        elif column.type.get_field_index("value_set") >= 0:
            values = column.field("value_set")
            yield values.flatten() if pa.types.is_list(values.type) else values

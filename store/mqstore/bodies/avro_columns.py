"""Values that fastavro read as columns: times, dates and decimals of the bare numbers and bytes."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqstore.bodies.avro_types import AvroType
from mqstore.bodies.ddl import type_ddl
from mqstore.bodies.json_values import MISFIT
from mqstore.bodies.times import FIRST_US, LAST_US
from mqstore.errors import shown

BodyRows = NDArray[np.int64]
_DAY_US: Final = 86_400_000_000
_BARE_TYPES: Final = {
    "boolean": pa.bool_(), "int": pa.int64(), "long": pa.int64(), "float": pa.float64(),
    "double": pa.float64(), "bytes": pa.binary(), "fixed": pa.binary(), "string": pa.string(),
    "enum": pa.string(), "null": pa.null(),
}  # fmt: skip
_INT_RANGE: Final = (-(2**31), 2**31 - 1)


class AvroColumns:
    """Makes the struct array of values of one type."""

    def __init__(self, kind: AvroType) -> None:
        self._kind = kind
        self._bare = _bare(kind)
        self._shaped = _shaper(kind)

    def array(self, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
        """Return the array of values, and the reasons of rows with one that does not fit."""
        shape = self._shaped
        if shape is not None:
            values = [None if value is None else shape(value) for value in values]
        reasons: dict[int, str] = {}
        bare = _built(values, self._bare, reasons)
        finished = _Finish(reasons).array(bare, self._kind, np.arange(len(values)), "")
        return finished, reasons


def _built(values: list[Any], kind: pa.DataType, reasons: dict[int, str]) -> pa.Array:
    """Return values as Arrow builds them; one that it does not take is null."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        pass
    sound = list(values)
    for row, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
            sound[row] = None
            reasons[row] = f"{MISFIT}: {shown(error)}"
    return pa.array(sound, kind)


def _bare(kind: AvroType) -> pa.DataType:
    """Return the Arrow type of what fastavro gives."""
    if kind.written == "record":
        return pa.struct([pa.field(name, _bare(inner)) for name, inner in kind.inner])
    if kind.written == "array":
        return pa.list_(pa.field("element", _bare(kind.values)))
    if kind.written == "map":
        return pa.map_(pa.string(), _bare(kind.values))
    if kind.written != "union":
        return _BARE_TYPES[kind.written]
    branches = kind.branches
    if kind.has_members:
        return pa.struct(
            [pa.field(f"member{n}", _bare(branch)) for n, branch in enumerate(branches)]
        )
    return _bare(branches[0]) if branches else pa.null()


def _shaper(kind: AvroType) -> Callable[[Any], Any] | None:
    """Return what makes pairs of maps, and bytes of defaults; None where there are none."""
    if kind.written == "map":
        of_value = _shaper(kind.values) or _same
        return lambda value: [(n, None if v is None else of_value(v)) for n, v in value.items()]
    if kind.written in {"bytes", "fixed"}:
        return lambda value: value.encode("latin-1") if isinstance(value, str) else value
    if kind.written == "array":
        of_element = _shaper(kind.values)
        if of_element is None:
            return None
        return lambda value: [None if inner is None else of_element(inner) for inner in value]
    if kind.written == "union" and not kind.has_members:
        return _shaper(kind.branches[0]) if kind.branches else None
    named = kind.inner
    if kind.has_members:
        named = tuple((f"member{n}", one) for n, one in enumerate(kind.branches))
    steps = [(name, step) for name, one in named if (step := _shaper(one)) is not None]
    return _members(steps) if steps else None


def _members(steps: list[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def shape(value: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps:
            inner = value.get(name)
            if inner is not None:
                value[name] = step(inner)
        return value

    return shape


def _same(value: Any) -> Any:
    return value


class _Finish:
    """Makes arrays of their own type of bare ones, and notes what does not fit."""

    def __init__(self, reasons: dict[int, str]) -> None:
        self._reasons = reasons

    def array(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        """Return an array in its own type; ``rows`` has the row of the body of each value."""
        if bare.type == kind.arrow:
            return bare
        makers = {
            "union": self._union,
            "record": self._record,
            "array": self._list,
            "map": self._map,
        }
        return makers.get(kind.written, self._leaf)(bare, kind, rows, path)

    def _record(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        return self._struct(bare, kind.inner, kind.arrow, rows, path)

    def _list(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        inner = self.array(bare.flatten(), kind.values, _parents(bare, rows), f"{path}[]")
        return pa.ListArray.from_arrays(bare.offsets, inner, type=kind.arrow, mask=bare.is_null())

    def _union(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        if kind.has_members:
            members = tuple((f"member{n}", one) for n, one in enumerate(kind.branches))
            return self._struct(bare, members, kind.arrow, rows, path)
        if not kind.branches:
            return pa.nulls(len(bare), pa.string())
        wide = max(kind.branches, key=lambda one: one.written in {"long", "double"})
        return self.array(bare, wide, rows, path)

    def _struct(
        self,
        bare: pa.Array,
        members: tuple[tuple[str, AvroType], ...],
        kind: pa.DataType,
        rows: BodyRows,
        path: str,
    ) -> pa.Array:
        arrays = [
            self.array(bare.field(place), inner, rows, f"{path}.{name}" if path else name)
            for place, (name, inner) in enumerate(members)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=bare.is_null())

    def _map(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        ends = bare.offsets[1:]
        starts = pc.if_else(bare.is_null(), None, bare.offsets[:-1])
        parents = np.repeat(rows, np.diff(bare.offsets.to_numpy()))
        items = self.array(bare.items, kind.values, parents, f"{path}{{}}")
        entry_starts = (
            pa.concat_arrays([starts, ends[len(ends) - 1 :]]) if len(bare) else bare.offsets
        )
        return pa.MapArray.from_arrays(entry_starts, bare.keys, items).cast(kind.arrow)

    def _leaf(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        if kind.written == "null":
            return pa.nulls(len(bare), pa.string())
        if kind.logical == "decimal":
            return self._decimals(bare, kind, rows, path)
        if pa.types.is_floating(kind.arrow):
            return bare.cast(kind.arrow, safe=False)
        low, high = _range(kind)
        fits = pc.and_(pc.greater_equal(bare, low), pc.less_equal(bare, high))
        if not pc.all(fits).as_py():
            for place in np.flatnonzero(pc.equal(fits, False).fill_null(False).to_numpy(False)):
                self._misfit(rows[place], path, bare[int(place)].as_py(), kind)
            bare = pc.if_else(fits, bare, None)
        return _in_unit(bare, kind)

    def _decimals(self, bare: pa.Array, kind: AvroType, rows: BodyRows, path: str) -> pa.Array:
        limit, scale = 10**kind.arrow.precision, kind.arrow.scale
        values: list[Decimal | None] = []
        for place, data in enumerate(bare.to_pylist()):
            number = None if data is None else int.from_bytes(data, "big", signed=True)
            if number is not None and abs(number) >= limit:
                self._misfit(rows[place], path, f"{len(data)} bytes", kind)
                number = None
            values.append(None if number is None else _scaled(number, scale))
        return pa.array(values, kind.arrow)

    def _misfit(self, row: Any, path: str, value: object, kind: AvroType) -> None:
        words = f"{MISFIT} at {shown(path)}: {value} is no {type_ddl(kind.arrow)}"
        self._reasons.setdefault(int(row), words)


def _parents(lists: pa.Array, rows: BodyRows) -> BodyRows:
    parents: BodyRows = rows[pc.list_parent_indices(lists).to_numpy()]
    return parents


def _scaled(number: int, scale: int) -> Decimal:
    sign, digits = number < 0, tuple(map(int, str(abs(number))))
    return Decimal((int(sign), digits, -scale))


def _per_us(kind: AvroType) -> tuple[int, int]:
    """Return by what a number is multiplied, and divided, to be microseconds."""
    unit = (kind.logical or "").rpartition("-")[2]
    return {"millis": (1_000, 1), "nanos": (1, 1_000)}.get(unit, (1, 1))


def _range(kind: AvroType) -> tuple[int, int]:
    if pa.types.is_date(kind.arrow):
        return FIRST_US // _DAY_US, LAST_US // _DAY_US
    if pa.types.is_timestamp(kind.arrow):
        times, by = _per_us(kind)
        return max(-(2**63), -(-FIRST_US * by // times)), min(2**63 - 1, LAST_US * by // times)
    return _INT_RANGE


def _in_unit(bare: pa.Array, kind: AvroType) -> pa.Array:
    if not pa.types.is_timestamp(kind.arrow):
        return bare.cast(pa.int32()).cast(kind.arrow)
    times, by = _per_us(kind)
    if by > 1:
        numbers = bare.fill_null(0).to_numpy(zero_copy_only=False) // by  # Towards the past.
        bare = pc.if_else(bare.is_valid(), pa.array(numbers), None)
    return pc.multiply(bare, times).cast(kind.arrow)

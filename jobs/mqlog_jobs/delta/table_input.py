"""The changes of one table in a batch, with their keys and values in the types of the lake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from mqstore.changes.change import DELETE, Problem
from mqstore.changes.column_types import arrow_fields
from mqstore.changes.values import typed_rows
from mqstore.merge.register import Rank, RowKey
from mqstore.merge.table_merge import KeyChange

OWN_PREFIX: Final = "_mqlog"

Texts = Mapping[str, str | None]


@dataclass(slots=True)
class InputChange:
    """A change of a row; ``place`` is its number in the batch. rank: without its last part."""

    place: int
    op: str
    rank: Rank
    row: Texts | None
    before: Texts | None
    unavailable: tuple[str, ...]
    moved_to: Texts | None
    moved_from: Texts | None
    types: Mapping[str, str]
    source_time_us: int | None


@dataclass(slots=True)
class TableInput:
    """What a batch has of one table.

    columns: those of the key first. rows: typed, one for each upsert. bad: reason by the number of
    a change that cannot be applied; doubtful: values that were left out.
    """

    keys: tuple[str, ...]
    columns: pa.Schema
    rows: pa.Table
    changes: list[KeyChange] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    doubtful: dict[int, list[Problem]] = field(default_factory=dict)
    moved: int = 0


class TableStoppedError(ValueError):
    """A table that cannot go on; the text is the reason."""


def table_input(
    changes: Sequence[InputChange], keys: tuple[str, ...], lake: pa.Schema | None, first_row: int
) -> TableInput:
    """Return the changes of a table in the types of ``lake``, and of new columns.

    ``first_row`` is the number of the first of ``rows``. Raises TableStoppedError.
    """
    columns = columns_of(changes, keys, lake)
    values = pa.struct([column for column in columns if column.name not in keys])
    key_struct = pa.struct([columns.field(name) for name in keys])
    upserts = [change for change in changes if change.op != DELETE]
    rows, problems = typed_rows([_others(change.row, keys) for change in upserts], values)
    row_keys, bad_keys = _keys(changes, keys, key_struct)
    found = TableInput(keys, columns, pa.Table.from_struct_array(rows))
    numbers = {id(change): number for number, change in enumerate(upserts)}
    for number, change in enumerate(changes):
        if number in bad_keys:
            found.bad[change.place] = bad_keys[number]
            continue
        at = numbers.get(id(change))
        if at is not None and at in problems:
            found.doubtful[change.place] = problems[at]
        found.changes.append(_key_change(change, row_keys[number], at, first_row, keys))
        found.moved += change.moved_from is not None
    return found


def _key_change(
    change: InputChange,
    row_keys: tuple[RowKey, RowKey | None, RowKey | None],
    at: int | None,
    first_row: int,
    keys: tuple[str, ...],
) -> KeyChange:
    key, moved_to, moved_from = row_keys
    is_upsert = change.op != DELETE
    has_image = bool(change.before and change.before.keys() - set(keys))
    return KeyChange(
        key,
        (*change.rank, int(is_upsert)),
        None if at is None else first_row + at,
        tuple(name for name in change.unavailable if name not in keys),
        moved_from if is_upsert else None,
        None if has_image or is_upsert else moved_to,
        change.source_time_us,
    )


def _others(row: Texts | None, keys: tuple[str, ...]) -> dict[str, str | None]:
    return {name: value for name, value in (row or {}).items() if name not in keys}


def _keys(
    changes: Sequence[InputChange], keys: tuple[str, ...], struct: pa.DataType
) -> tuple[list[tuple[RowKey, RowKey | None, RowKey | None]], dict[int, str]]:
    """Return of each change its key, the key that it became, the one that it was; what is bad."""
    images = [change.before if change.op == DELETE else change.row for change in changes]
    texts = [_part(image, keys) for image in images]
    texts += [_part(change.moved_to, keys) for change in changes]
    texts += [_part(change.moved_from, keys) for change in changes]
    typed, problems = typed_rows(texts, struct)
    columns = [typed.field(number).to_pylist() for number in range(len(keys))]
    tuples = list(zip(*columns, strict=True))
    count = len(changes)
    bad = {
        number: f"{problem[0].column}: {problem[0].reason}"
        for number, problem in problems.items()
        if number < count
    }
    for number in range(count):
        if None in tuples[number] and number not in bad:
            lacks = [name for name in keys if not (images[number] or {}).get(name)]
            bad[number] = f"has no value of the key: {', '.join(lacks)}"
    others = [None if None in one else one for one in tuples[count:]]
    return list(zip(tuples, others[:count], others[count:], strict=False)), bad


def _part(image: Texts | None, keys: tuple[str, ...]) -> dict[str, str | None]:
    return {name: image[name] for name in keys if image and name in image}


def columns_of(
    changes: Sequence[InputChange], keys: tuple[str, ...], lake: pa.Schema | None
) -> pa.Schema:
    """Return the columns of the lake, and behind them those that are first seen in the changes.

    A column of numbers is widened where a change has a wider type. Raises TableStoppedError for a
    type that the lake's values do not fit, and a name that is mqlog's own.
    """
    types: dict[str, str] = {}
    names: dict[str, None] = dict.fromkeys(keys)
    for change in changes:
        names.update(dict.fromkeys(change.row or ()))
        names.update(dict.fromkeys(change.unavailable))
        types.update(change.types)
    own = next((name for name in names if name.startswith(OWN_PREFIX)), None)
    if own is not None:
        raise TableStoppedError(f"the column {own} has a name that is kept for mqlog")
    known = {} if lake is None else {column.name: column.type for column in lake}
    fields = {}
    for name in dict.fromkeys([*known, *names]):
        told = arrow_fields({name: types[name]}).field(0).type if name in types else None
        fields[name] = _wider(name, known.get(name), told)
    return pa.schema([pa.field(name, kind) for name, kind in fields.items()])


def _wider(name: str, known: pa.DataType | None, told: pa.DataType | None) -> pa.DataType:
    if known is None:
        return told or pa.string()
    if told is None or told == known or pa.types.is_string(known):
        return known
    whole = pa.types.is_integer
    if whole(known) and whole(told):
        return max(known, told, key=lambda kind: kind.bit_width)
    if pa.types.is_floating(known) and pa.types.is_floating(told):
        return max(known, told, key=lambda kind: kind.bit_width)
    if pa.types.is_decimal(known) and pa.types.is_decimal(told):
        scale = max(known.scale, told.scale)
        digits = max(known.precision - known.scale, told.precision - told.scale) + scale
        if digits <= 38:
            return pa.decimal128(digits, scale)
    raise TableStoppedError(f"the column {name} is {known} in the lake, and {told} in a change")


def as_change(columns: Mapping[str, list[Any]], place: int, rank: Rank) -> InputChange:
    """Return the change of a row of a batch, whose columns are lists."""

    def texts(name: str) -> Texts | None:
        value = columns[name][place]
        return None if value is None else dict(value)

    time = columns["sourceTimestamp"][place]
    return InputChange(
        place,
        columns["op"][place],
        rank,
        texts("row"),
        texts("before"),
        tuple(columns["unavailable"][place] or ()),
        texts("movedTo"),
        texts("movedFrom"),
        texts("types") or {},  # type: ignore[arg-type]
        time,
    )

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
    given_table = TableInput(keys, columns, pa.Table.from_struct_array(rows))
    numbers = {id(change): number for number, change in enumerate(upserts)}
    for number, change in enumerate(changes):
        if number in bad_keys:
            given_table.bad[change.place] = bad_keys[number]
            continue
        at = numbers.get(id(change))
        if at is not None and at in problems:
            given_table.doubtful[change.place] = problems[at]
        given_table.changes.append(_key_change(change, row_keys[number], at, first_row, keys))
        given_table.moved += change.moved_from is not None
    return given_table


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
    reserved = next((name for name in names if name.startswith(OWN_PREFIX)), None)
    if reserved is not None:
        raise TableStoppedError(f"the column {reserved} has a name that is kept for mqlog")
    lake_types = {} if lake is None else {column.name: column.type for column in lake}
    fields = {}
    for name in dict.fromkeys([*lake_types, *names]):
        change_type = arrow_fields({name: types[name]}).field(0).type if name in types else None
        fields[name] = _wider(name, lake_types.get(name), change_type)
    return pa.schema([pa.field(name, kind) for name, kind in fields.items()])


def _wider(
    name: str, lake_type: pa.DataType | None, change_type: pa.DataType | None
) -> pa.DataType:
    if lake_type is None:
        return change_type or pa.string()
    if change_type is None or change_type == lake_type or pa.types.is_string(lake_type):
        return lake_type
    whole = pa.types.is_integer
    if whole(lake_type) and whole(change_type):
        return max(lake_type, change_type, key=lambda kind: kind.bit_width)
    if pa.types.is_floating(lake_type) and pa.types.is_floating(change_type):
        return max(lake_type, change_type, key=lambda kind: kind.bit_width)
    if pa.types.is_decimal(lake_type) and pa.types.is_decimal(change_type):
        scale = max(lake_type.scale, change_type.scale)
        digits = (
            max(lake_type.precision - lake_type.scale, change_type.precision - change_type.scale)
            + scale
        )
        if digits <= 38:
            return pa.decimal128(digits, scale)
    raise TableStoppedError(
        f"the column {name} is {lake_type} in the lake, and {change_type} in a change"
    )


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

"""The shape of a change row, the same for every producer.

A row of a database that a message tells of is one ``Change``; a row whose key changed is two: the
deletion of the old key, with ``moved_to``, and the upsert of the new one, with ``moved_from``.
Values are texts: numbers plain, binary in base64, BIT as digits, ENUM and SET as labels, times ISO
8601, doubles in their shortest form. In a map a null value is the database's NULL; a column that is
not in the map is one that the message does not have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

Values: TypeAlias = Mapping[str, str | None]

INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"
DDL: Final = "ddl"
OTHER: Final = "other"
"""No change of a row or a table: heartbeats, limits of transactions, annotated SQL."""

VALUES_MAP: Final = pa.map_(pa.string(), pa.string())
_NAMES_LIST: Final = pa.list_(pa.field("element", pa.string()))
SEQUENCE_STRUCT: Final = pa.struct(
    [
        pa.field("epoch", pa.int32()),
        pa.field("file", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("row", pa.int32()),
    ]
)
PROBLEMS_LIST: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("column", pa.string()), pa.field("reason", pa.string())]),
    )
)
_UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


class ChangeSequence(NamedTuple):
    """The place of a change in its source: greater is later. A part that is None sorts first.

    MySQL, MariaDB: (epoch, number of the binlog file, position, row of the event); PostgreSQL:
    (epoch, LSN of the last commit or None, LSN, row).
    """

    epoch: int
    file: int | None
    position: int
    row: int = 0


class Problem(NamedTuple):
    """What is doubtful about the value of a column, or ("", reason) about the whole row."""

    column: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Change:
    """One change of a row or a table, or a message that is none.

    op: one of the words above; None if the message could not be decoded, then ``reason`` says why.
    keys: names of the key's columns; empty for a table without a key, or an unknown one.
    sequence: None where the producer gives no order (Canal's flat JSON).
    source_time_us: microseconds since 1970 of the change in the database.
    row: the row after the change; None for a delete. before: the whole row before it, or None.
    unavailable: columns whose values the message does not know, which are not in ``row``.
    types: column to the type as the message names it (``mysqlType``, Debezium's schema); empty if
    the message has no types.
    """

    op: str | None
    database: str | None = None
    table: str | None = None
    keys: tuple[str, ...] = ()
    sequence: ChangeSequence | None = None
    source_time_us: int | None = None
    transaction: str | None = None
    snapshot: bool = False
    row: Values | None = None
    before: Values | None = None
    unavailable: tuple[str, ...] = ()
    moved_to: Values | None = None
    moved_from: Values | None = None
    problems: list[Problem] = field(default_factory=list)
    types: Mapping[str, str] = field(default_factory=dict)
    sql: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """What a producer's decoder is given of a message. keys: the property KEYS, or None."""

    body: bytes
    keys: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """A column of change rows; ``meaning`` is its line in the documentation."""

    name: str
    type: pa.DataType
    meaning: str


CHANGE_COLUMNS: Final = (
    ChangeColumn(
        "op",
        pa.string(),
        "insert, update, delete, truncate, ddl or other; null if the message cannot be decoded",
    ),
    ChangeColumn("database", pa.string(), "the database; of PostgreSQL the schema"),
    ChangeColumn("table", pa.string(), "the table"),
    ChangeColumn("keys", _NAMES_LIST, "names of the key's columns; empty without a key"),
    ChangeColumn(
        "sequence",
        SEQUENCE_STRUCT,
        "place in the source: epoch, file, position, row; null if the producer gives none",
    ),
    ChangeColumn("sourceTimestamp", _UTC_MICROSECONDS, "the database's clock at the change"),
    ChangeColumn("transaction", pa.string(), "the transaction's id"),
    ChangeColumn("snapshot", pa.bool_(), "the row is of a snapshot, not of the log"),
    ChangeColumn("row", VALUES_MAP, "the row after the change; null for a delete"),
    ChangeColumn("before", VALUES_MAP, "the whole row before the change, if the message has it"),
    ChangeColumn("unavailable", _NAMES_LIST, "columns whose values the message does not know"),
    ChangeColumn("movedTo", VALUES_MAP, "in the delete of a changed key: the new key"),
    ChangeColumn("movedFrom", VALUES_MAP, "in the upsert of a changed key: the old key"),
    ChangeColumn("problems", PROBLEMS_LIST, "what is doubtful: column and reason"),
    ChangeColumn("types", VALUES_MAP, "column to type, as the message names it; null without"),
    ChangeColumn("sql", pa.string(), "text of a DDL statement or of annotated SQL"),
)
"""The columns of a change, in their order; those of its message follow."""
ROW_IN_MESSAGE: Final = "rowInMessage"
OF_MESSAGE: Final = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
"""The columns of messages that a change row has of its message."""
_FIELDS_OF_MESSAGE: Final = {
    "topic": pa.field("topic", pa.string(), nullable=False),
    "brokerName": pa.field("brokerName", pa.string()),
    "queueId": pa.field("queueId", pa.int32(), nullable=False),
    "queueOffset": pa.field("queueOffset", pa.int64(), nullable=False),
    "storeTimestamp": pa.field("storeTimestamp", _UTC_MICROSECONDS, nullable=False),
}


def change_schema(corrupt: str = "_corruptBody", error: str = "_bodyError") -> pa.Schema:
    """Return the Arrow schema of change rows: the change, its message, and what is bad.

    ``corrupt`` and ``error`` name the last two columns: the body of a message that could not be
    decoded, and the reason.
    """
    return pa.schema(
        [
            *(pa.field(column.name, column.type) for column in CHANGE_COLUMNS),
            *(_FIELDS_OF_MESSAGE[name] for name in OF_MESSAGE),
            pa.field(ROW_IN_MESSAGE, pa.int32(), nullable=False),
            pa.field(corrupt, pa.binary()),
            pa.field(error, pa.string()),
        ]
    )


def change_column(name: str, changes: Sequence[Change]) -> pa.Array:
    """Return one of ``CHANGE_COLUMNS`` as an array with a value for each change."""
    if name in _MAPS_OF_TEXT:
        attribute = _MAPS_OF_TEXT[name]
        return map_array([getattr(change, attribute) or None for change in changes])
    if name == "row":
        return map_array([change.row for change in changes])
    if name == "before":
        return map_array([change.before for change in changes])
    values = [_CHANGE_VALUES[name](change) for change in changes]
    return pa.array(values, _CHANGE_TYPES[name])


def map_array(maps: Iterable[Values | None]) -> pa.MapArray:
    """Return maps of texts as an array; None is null."""
    rows = list(maps)
    ends = accumulate((len(row or ()) for row in rows), initial=0)
    starts: list[int | None] = list(ends)
    for place, row in enumerate(rows):
        if row is None:
            starts[place] = None
    names = [name for row in rows if row for name in row]
    values = [value for row in rows if row for value in row.values()]
    return pa.MapArray.from_arrays(
        pa.array(starts, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


_MAPS_OF_TEXT: Final = {"movedTo": "moved_to", "movedFrom": "moved_from", "types": "types"}
_CHANGE_TYPES: Final = {column.name: column.type for column in CHANGE_COLUMNS}
_CHANGE_VALUES: Final[dict[str, Any]] = {
    "op": lambda change: change.op,
    "database": lambda change: change.database,
    "table": lambda change: change.table,
    "keys": lambda change: list(change.keys),
    "sequence": lambda change: change.sequence and change.sequence._asdict(),
    "sourceTimestamp": lambda change: change.source_time_us,
    "transaction": lambda change: change.transaction,
    "snapshot": lambda change: None if change.op is None else change.snapshot,
    "unavailable": lambda change: list(change.unavailable),
    "problems": lambda change: [problem._asdict() for problem in change.problems],
    "sql": lambda change: change.sql,
}

"""One table of Delta Lake that follows a table of a database."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field as DeltaField
from deltalake.schema import Schema as DeltaSchema

from mqlog_jobs.delta.table_input import InputChange, TableInput, table_input
from mqstore.changes.change import SEQUENCE_STRUCT
from mqstore.changes.texts import to_base64
from mqstore.changes.values import converter
from mqstore.merge.pending_text import pending_text, set_pending
from mqstore.merge.register import Rank, Register, RowKey
from mqstore.merge.table_merge import TableMerge, keys_of

LAKE_SEQUENCE: Final = "_mqlogSequence"
LAKE_DELETED: Final = "_mqlogDeleted"
LAKE_PENDING: Final = "_mqlogPending"
LAKE_SOURCE_TIME: Final = "_mqlogSourceTimestamp"
OWN_COLUMNS: Final = pa.schema(
    [
        pa.field(LAKE_SEQUENCE, SEQUENCE_STRUCT),
        pa.field(LAKE_DELETED, pa.bool_()),
        pa.field(LAKE_PENDING, pa.string()),
        pa.field(LAKE_SOURCE_TIME, pa.timestamp("us", tz="UTC")),
    ]
)
_OWN_NAMES: Final = frozenset(OWN_COLUMNS.names)
_MOST_FOLDER_NAME: Final = 200


def folder_name(table: str) -> str:
    """Return the folder of a table, which lies within the directory whatever the table's name.

    What is no letter, digit, ``-`` or ``_`` is its number in hexadecimal between two ``+``; the dot
    between database and table stays. Raises ValueError for a name that is too long.
    """
    parts = [
        "".join(c if c.isalnum() or c in "-_" else f"+{ord(c):X}+" for c in part)
        for part in table.split(".", 1)
    ]
    name = ".".join(parts)
    if name.startswith(("_", ".")):
        name = f"+{ord(name[0]):X}+{name[1:]}"
    if not table or len(name.encode("utf-8", "replace")) > _MOST_FOLDER_NAME:
        raise ValueError(f"a table's name of {len(table)} characters gives no folder")
    return name


class FollowedTable:
    """A table of a directory; ``keys`` are the columns of its key."""

    def __init__(self, root: Path, name: str, keys: tuple[str, ...]) -> None:
        self.path = str(root / folder_name(name))
        self.keys = keys
        is_there = DeltaTable.is_deltatable(self.path)
        self._lake = DeltaTable(self.path) if is_there else None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table without mqlog's own; None if it is not there yet."""
        if self._lake is None:
            return None
        columns = [column for column in self._columns() if column.name not in _OWN_NAMES]
        return pa.schema(columns)

    def _columns(self) -> pa.Schema:
        assert self._lake is not None
        return pa.schema([_plain(column) for column in pa.schema(self._lake.schema().to_arrow())])

    def _dataset(self) -> Any:
        assert self._lake is not None
        return self._lake.to_pyarrow_dataset(schema=self._columns())

    def apply(
        self, changes: Sequence[InputChange], truncates: Sequence[Rank], floor: Rank
    ) -> tuple[TableInput, TableMerge, Counter[str]]:
        """Merge changes; return them typed, the states, and how many had which effect.

        Raises TableStoppedError, and what deltalake raises.
        """
        given = table_input(changes, self.keys, self.schema, 0)
        self._take_columns(given.columns)
        others = [name for name in given.columns.names if name not in self.keys]
        merge = TableMerge(others, floor)
        stored = _Stored(self.keys, given, merge.registers)
        is_truncated = any(rank > floor for rank in truncates)
        self._load(stored, merge, given, everything=is_truncated)
        for rank in truncates:
            merge.truncate(rank)
        effects = Counter(merge.apply(given.changes))
        rows = stored.changed_rows(merge)
        if rows.num_rows:
            effects.update(self._write(rows))
        effects["waiting"] = sum(
            not register.is_deleted and bool(register.waiting())
            for register in merge.registers.values()
        )
        return given, merge, effects

    def _load(
        self, stored: "_Stored", merge: TableMerge, given: TableInput, *, everything: bool
    ) -> None:
        """Load the states of the keys of changes, and of those that these name."""
        if self._lake is None:
            return
        dataset = self._dataset()
        if everything:
            stored.add(dataset.to_table())
            return
        needed_keys, loaded_keys = keys_of(given.changes), set[RowKey]()
        while missing := needed_keys - loaded_keys:
            loaded_keys |= missing
            first = pa.array(
                list(dict.fromkeys(key[0] for key in missing)),
                given.columns.field(self.keys[0]).type,
            )
            rows = dataset.to_table(filter=pc.field(self.keys[0]).isin(first))
            stored.add(rows, missing)
            registers = (merge.registers.get(key) for key in missing)
            needed_keys |= {other for one in registers if one for _, other in one.moves}

    def _take_columns(self, columns: pa.Schema) -> None:
        """Make the table, add its new columns, and widen those that changes have wider."""
        schema = pa.schema([*columns, *OWN_COLUMNS])
        if self._lake is None:
            self._lake = DeltaTable.create(self.path, schema=schema, mode="ignore")
            return
        lake = self.schema
        assert lake is not None
        if any(columns.field(column.name).type != column.type for column in lake):
            self._widen(columns)
        new = [column for column in columns if column.name not in lake.names]
        if new:
            parts = json.loads(DeltaSchema.from_arrow(pa.schema(new)).to_json())["fields"]
            self._lake.alter.add_columns([DeltaField.from_json(json.dumps(one)) for one in parts])
            self._lake = DeltaTable(self.path)

    def _widen(self, columns: pa.Schema) -> None:
        """Write the table anew with wider types, in one version."""
        assert self._lake is not None
        dataset = self._dataset()
        fields = [
            columns.field(name) if name in columns.names else OWN_COLUMNS.field(name)
            for name in dataset.schema.names
        ]
        schema = pa.schema(fields)
        batches = (
            batch
            for part in dataset.to_batches()
            for batch in pa.Table.from_batches([part]).cast(schema).to_batches()
        )
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        write_deltalake(self.path, reader, mode="overwrite", schema_mode="overwrite")
        self._lake = DeltaTable(self.path)

    def _write(self, rows: pa.Table) -> dict[str, int]:
        assert self._lake is not None
        quoted = [name.replace('"', '""') for name in self.keys]
        condition = " AND ".join(f't."{name}" = s."{name}"' for name in quoted)
        figures = (
            self._lake.merge(rows, condition, source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
        return {
            "rowsInserted": figures["num_target_rows_inserted"],
            "rowsUpdated": figures["num_target_rows_updated"],
        }


class _Stored:
    """The rows of the lake that a batch touches, behind those of the batch; and their states."""

    def __init__(
        self, keys: tuple[str, ...], given: TableInput, registers: dict[RowKey, Register]
    ) -> None:
        self._keys = keys
        self._columns = given.columns
        self._registers = registers
        self._parts = [given.rows]
        self._count = given.rows.num_rows
        self._original: dict[RowKey, tuple[Rank, int, str | None]] = {}
        self._readers = [converter(given.columns.field(name).type) for name in keys]

    def add(self, rows: pa.Table, wanted: set[RowKey] | None = None) -> None:
        """Take the states of rows, of those keys alone."""
        others = [name for name in self._columns.names if name not in self._keys]
        self._parts.append(rows.select([name for name in others if name in rows.column_names]))
        keys = list(zip(*(rows[name].to_pylist() for name in self._keys), strict=True))
        own_columns = [
            rows[name].to_pylist() for name in (LAKE_SEQUENCE, LAKE_DELETED, LAKE_PENDING)
        ]
        times = rows[LAKE_SOURCE_TIME].cast(pa.int64()).to_pylist()
        for number, (key, sequence, deleted, text) in enumerate(
            zip(keys, *own_columns, strict=True)
        ):
            if wanted is not None and key not in wanted:
                continue
            at = self._count + number
            rank = rank_of(sequence, is_deleted=deleted)
            register = Register(rank, at, source_time_us=times[number])
            if text is not None:
                set_pending(register, text, at, self._key_of)
            self._registers[key] = register
            self._original[key] = (rank, at, text)
        self._count += rows.num_rows

    def _key_of(self, texts: list[str | None]) -> RowKey:
        return tuple(
            None if text is None else read(text)
            for read, text in zip(self._readers, texts, strict=True)
        )

    def _key_texts(self, key: RowKey) -> list[str | None]:
        return [_text(part) for part in key]

    def changed_rows(self, merge: TableMerge) -> pa.Table:
        """Return the rows of the lake for the states that are other ones now."""
        others = [name for name in self._columns.names if name not in self._keys]
        entries = list(self._entries(merge, others))
        keys = [entry[0] for entry in entries]
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        for number, name in enumerate(self._keys):
            kind = self._columns.field(name).type
            columns[name] = pa.array([key[number] for key in keys], kind)
        for number, name in enumerate(others):
            values = self._values(name)
            indices = pa.array([entry[1][number] for entry in entries], pa.int64())
            columns[name] = values.take(indices)
        registers = [merge.registers[key] for key in keys]
        columns[LAKE_SEQUENCE] = pa.array(map(_sequence, registers), SEQUENCE_STRUCT)
        columns[LAKE_DELETED] = pa.array([one.is_deleted for one in registers], pa.bool_())
        columns[LAKE_PENDING] = pa.array([entry[2] for entry in entries], pa.string())
        times = [one.source_time_us for one in registers]
        columns[LAKE_SOURCE_TIME] = pa.array(times, OWN_COLUMNS.field(LAKE_SOURCE_TIME).type)
        names = [*self._columns.names, *OWN_COLUMNS.names]
        return pa.table({name: columns[name] for name in names})

    def _entries(
        self, merge: TableMerge, others: Sequence[str]
    ) -> Iterator[tuple[RowKey, list[int | None], str | None]]:
        for key in merge.changed:
            register = merge.registers[key]
            rows = [register.value_of(name)[1] for name in others]
            text = pending_text(register, self._key_texts)
            rank, at, before = self._original.get(key, (None, -1, None))
            is_same = rank == register.rank and text == before
            if is_same and all(row == at for row in rows if row is not None):
                continue
            yield key, rows, text

    def _values(self, name: str) -> pa.ChunkedArray:
        kind = self._columns.field(name).type
        parts: Iterable[Any] = (
            part[name].cast(kind) if name in part.column_names else pa.nulls(part.num_rows, kind)
            for part in self._parts
        )
        chunks = [
            chunk
            for part in parts
            for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
        ]
        return pa.chunked_array(chunks, kind)


def _plain(column: pa.Field) -> pa.Field:
    """Return a column of the lake in the types of changes."""
    kind = column.type
    if column.name in _OWN_NAMES:
        return OWN_COLUMNS.field(column.name)
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string()
    elif pa.types.is_large_binary(kind) or str(kind) == "binary_view":
        kind = pa.binary()
    return pa.field(column.name, kind)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return to_base64(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def rank_of(sequence: dict[str, int | None] | None, *, is_deleted: bool) -> Rank:
    """Return the rank of a row of the lake; () for one that no change has made yet."""
    if sequence is None:
        return ()
    parts = (sequence[name] for name in ("epoch", "file", "position", "row"))
    return (*(-1 if part is None else part for part in parts), int(not is_deleted))


def _sequence(register: Register) -> dict[str, int | None] | None:
    if not register.rank:
        return None
    names = ("epoch", "file", "position", "row")
    return {
        name: None if part < 0 else part
        for name, part in zip(names, register.rank[:-1], strict=True)
    }

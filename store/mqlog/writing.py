"""Rows into a store or a cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fsdecode
from typing import Any, Final

import pyarrow as pa

from mqlog.keywords import in_keywords, texts
from mqstore.codec.schema import PROPERTIES_MAP
from mqstore.deliver.complete import complete
from mqstore.deliver.job import SendReport
from mqstore.deliver.prepare import prepare as prepare_to_send
from mqstore.deliver.prepare import withdraw
from mqstore.deliver.settings import EXACTLY_ONCE, SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import InvalidOptionError
from mqstore.request.write import write_settings
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import Manifest
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

_MISSING: Final = "a write needs the path of one store, or of one cluster"
_PROPERTIES: Final = "properties"
_NOT_A_FRAME: Final = (
    "a write takes a table, a reader or a batch of pyarrow, a frame of pandas or Polars, or "
    "another object with __arrow_c_stream__"
)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: messages that it added, and rows that ``on_invalid`` left out.

    ``is_repeated`` tells that a write of that ``txn_app_id`` and ``txn_version`` had been done
    before, so that nothing was added now.
    """

    messages: int
    skipped: int
    is_repeated: bool


def write(data: Any, path: str | PathLike[str], /, **options: Any) -> WriteResult:
    """Append rows to the store at ``path``, all of them or none, or send them to a cluster.

    ``data`` is a table, a reader or a batch of pyarrow, a DataFrame of pandas or Polars, a relation
    of DuckDB, a Scan, or anything else with ``__arrow_c_stream__``. A row needs a column ``body``;
    ``tags``, ``keys``, ``properties`` and others are taken by their names. ``options`` are those of
    the Spark sink in snake_case: ``topic``, ``create_store=True``, ``partitioner="hash"``,
    ``txn_app_id`` and ``txn_version`` for a write that happens once.

    Raises InvalidOptionError, InvalidSchemaError, InvalidMessageError, StoreLockedError,
    UncleanStoreError, NoSpaceError and others before the store is changed; CommitInDoubtError after
    its decision. Of a cluster, what was sent before an error stays.
    """
    with in_keywords():
        settings = write_settings((fsdecode(path),), texts(options), _MISSING)
        rows = _reader(data)
        if isinstance(settings, WriteSettings):
            return _to_store(settings, rows)
        return _to_cluster(settings, rows)


def _to_store(settings: WriteSettings, rows: pa.RecordBatchReader) -> WriteResult:
    job = prepare(settings, rows.schema)
    manifests: list[Manifest] = []
    try:
        manifests.append(stage(job, rows, partition=0, attempt=0))
    except BaseException:
        abort(job, manifests)
        raise
    done = commit(job, manifests)
    return WriteResult(done.messages, done.skipped, done.is_repeated)


def _to_cluster(settings: SendSettings, rows: pa.RecordBatchReader) -> WriteResult:
    job = prepare_to_send(settings, rows.schema)
    run = hand_on if settings.delivery == EXACTLY_ONCE else send
    reports: list[SendReport] = []
    try:
        reports.append(run(job, rows, partition=0, attempt=0))
        done = complete(job, reports, "write")
    except BaseException:
        withdraw(job, reports)
        raise
    skipped = sum(report.skipped for report in reports)
    return WriteResult(done.counts.messages, skipped, done.is_repeated)


def _reader(data: Any) -> pa.RecordBatchReader:
    """Return rows of any library as a reader with types that a write takes."""
    if type(data).__module__.partition(".")[0] == "pandas":
        data = _of_pandas(data)
    elif isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not hasattr(data, "__arrow_c_stream__"):
        raise InvalidOptionError("data", f"a {type(data).__name__}", _NOT_A_FRAME)
    reader = pa.RecordBatchReader.from_stream(data)
    plain = pa.schema([_plain(field) for field in reader.schema])
    if plain.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(plain, _cast(reader, plain))


def _of_pandas(frame: Any) -> pa.Table:
    """Return a frame without its index; its properties may be dicts."""
    kinds = {_PROPERTIES: PROPERTIES_MAP} if frame.columns.is_unique else {}
    columns = {}
    for number, name in enumerate(frame.columns):
        column, kind = frame.iloc[:, number], kinds.get(name)
        if kind is not None and column.dtype == object:
            column = column.map(lambda one: list(one.items()) if isinstance(one, dict) else one)
        else:
            kind = None
        columns[str(name)] = pa.Array.from_pandas(column, type=kind)
    return pa.table(columns)


def _plain(field: pa.Field) -> pa.Field:
    """Return a field of a type that Arrow has several of as the one that a write takes."""
    kind = field.type
    if pa.types.is_string_view(kind):
        return field.with_type(pa.string())
    if pa.types.is_binary_view(kind):
        return field.with_type(pa.binary())
    if pa.types.is_map(kind) and field.name == _PROPERTIES:
        return field.with_type(PROPERTIES_MAP)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        if field.name == _PROPERTIES and pa.types.is_struct(inner) and inner.num_fields == 2:
            return field.with_type(PROPERTIES_MAP)
        return field.with_type(pa.list_(_plain(kind.value_field)))
    return field


def _cast(reader: pa.RecordBatchReader, plain: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        columns = [
            _column(one, field.type) for one, field in zip(batch.columns, plain, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=plain)


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_map(kind) or pa.types.is_map(column.type):
        return column.cast(kind)
    # Polars has lists of structs for a map.
    lists = column.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    pairs = lists.values
    return pa.MapArray.from_arrays(
        lists.offsets, pairs.field(0), pairs.field(1), mask=lists.is_null()
    )

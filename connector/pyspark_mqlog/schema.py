"""Schemas: of each table in Arrow and in Spark, and what a user's schema asks for.

A schema that the user gives is a projection by name: its columns, in its order, nothing else is
decoded. Spark passes it on unchecked, so it is checked here. Batches must then equal the Arrow
schema that Spark derives from it to the last flag (pyspark's records_to_arrow_batches).
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from mqstore import backlog, tables
from mqstore.codec.schema import check_columns, message_schema, resolve_columns
from mqstore.errors import InvalidSchemaError
from mqstore.options.grammar import did_you_mean
from pyspark_mqlog.read_options import ReadOptions

TABLE_SCHEMAS: Final = {
    "backlog": backlog.SCHEMA,
    "lagcompare": backlog.COMPARE_SCHEMA,
    **tables.SCHEMAS,
}
_TIMEZONE: Final = "UTC"


def read_schema(options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema of a read without a user's schema: the table's, or its columns.

    Raises InvalidSchemaError for a column that the table does not have.
    """
    if options.table == "messages":
        return message_schema(resolve_columns(options.columns))
    schema = TABLE_SCHEMAS[options.table]
    if "columns" not in options.given:
        return schema
    names = [name.strip() for name in options.columns.split(",")]
    return _project(schema, _known(names, schema, options.table))


def check_projection(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the table's columns that ``schema``, the user's or our own, asks for, in its order.

    Raises InvalidSchemaError for an unknown column or another type, and where the schema and
    the option ``columns`` contradict each other.
    """
    if not schema.names:
        advice = "name a column; the cheapest to count is queueOffset"
        raise InvalidSchemaError("", "empty schema", advice)
    if options.table == "messages":
        columns = check_columns(schema.names)
        full = message_schema(columns)
    else:
        full = TABLE_SCHEMAS[options.table]
        columns = _known(schema.names, full, options.table)
    if "columns" in options.given and tuple(read_schema(options).names) != columns:
        raise InvalidSchemaError(
            ", ".join(schema.names),
            "schema",
            f"contradicts columns={options.columns}: give one of the two",
        )
    for asked, column in zip(schema.fields, columns, strict=True):
        _check_field(asked, full.field(column))
    return columns


def to_struct(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    return StructType([StructField(f.name, from_arrow_type(f.type), f.nullable) for f in schema])


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches of ``schema``."""
    return to_arrow_schema(schema, timezone=_TIMEZONE)


def write_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame to write; raises InvalidSchemaError if it has none."""
    fields: list[pa.Field] = []
    for field in schema.fields:
        try:
            fields += to_arrow(StructType([field]))
        except (PySparkTypeError, ValueError):  # ValueError: array<void>, as array() is
            raise InvalidSchemaError(
                field.name, field.dataType.simpleString(), "no column of a message has such a type"
            ) from None
    return pa.schema(fields)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same columns with the names, types and flags of ``schema``."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        array if array.type.equals(field.type) else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _project(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _known(names: Sequence[str], schema: pa.Schema, table: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in schema.names}
    found: list[str] = []
    for name in names:
        column = known.get(name.lower())
        if column is None:
            raise InvalidSchemaError(
                name,
                "unknown",
                f"{did_you_mean(name, schema.names)}table {table} has {', '.join(schema.names)}",
            )
        if column in found:
            raise InvalidSchemaError(name, "repeated", "name each column once")
        found.append(column)
    return tuple(found)


def _check_field(asked: StructField, column: pa.Field) -> None:
    ours = from_arrow_type(column.type)
    if not _same(asked.dataType, ours):
        raise InvalidSchemaError(
            asked.name,
            asked.dataType.simpleString(),
            f"is {ours.simpleString()}; read it as it is and cast it after load()",
        )
    if column.nullable and not asked.nullable:
        raise InvalidSchemaError(asked.name, "not null", "may be null; leave out NOT NULL")


def _same(asked: DataType, ours: DataType) -> bool:
    """Compare types, whether their elements may be null or not."""
    return asked.simpleString() == ours.simpleString()

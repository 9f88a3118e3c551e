"""The schemas of tables, in Arrow and in Spark, and the check of a user's schema.

A user's schema is a projection by name: only its columns are decoded, in its order. Spark does not
check it, so it is checked here. Batches must equal the Arrow schema that Spark derives from it,
flags included (pyspark's records_to_arrow_batches).
"""

from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from mqstore.bodies.ddl import to_ddl, type_ddl
from mqstore.bodies.schema_text import BodySchema
from mqstore.bodies.settings import needs_schema
from mqstore.changes.settings import needs_types
from mqstore.changes.table_schemas import TableSchema, TableSchemas
from mqstore.errors import InvalidSchemaError
from mqstore.request.plan import read_schema, schema_of
from mqstore.request.read_options import ReadOptions
from pyspark_mqlog.versions import HAS_LIMITS

_BODY_COLUMN: Final = "body"
_IMAGES_OF_ROWS: Final = ("row", "before")
_ANY_BODY: Final = BodySchema("", "unread STRING")
"""The schema where bad bodies are asked for, and no field: what is no object is bad."""


def check_projection(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the table's columns that ``schema``, given or derived, names, in its order.

    Raises InvalidSchemaError for an unknown column or another type, and where the schema and
    the option ``columns`` contradict each other.
    """
    if not schema.names:
        advice = "name a column; queueOffset is the cheapest to count"
        raise InvalidSchemaError("", "empty schema", advice)
    full = schema_of(options, schema.names)
    columns = tuple(full.names)
    if "columns" in options.given and tuple(read_schema(options).names) != columns:
        raise InvalidSchemaError(
            ", ".join(schema.names),
            "schema",
            f"contradicts columns={options.columns}: give one of the two",
        )
    for given, column in zip(schema.fields, columns, strict=True):
        _check_field(given, full.field(column))
    return columns


def with_body_of(schema: StructType, options: ReadOptions) -> ReadOptions:
    """Return the options with the type that a schema, given or derived, has for bodies of JSON.

    ``bodySchema`` comes first; ``changesSchema=message`` takes the type of a row. Raises
    InvalidSchemaError for a type that bodies cannot have.
    """
    if needs_types(options):
        return replace(options, changes_schema=_rows_of(schema))
    if not needs_schema(options):
        return options
    given = next((field for field in schema.fields if field.name.lower() == _BODY_COLUMN), None)
    if given is None:
        return replace(options, body_schema=_ANY_BODY)
    if not isinstance(given.dataType, StructType):
        expected = "of body=json is a struct: STRUCT<id: BIGINT, …>, or leave it out"
        raise InvalidSchemaError(given.name, given.dataType.simpleString(), expected)
    try:
        text = to_ddl(to_arrow(StructType([given])).field(0).type)
    except (TypeError, ValueError) as error:
        raise InvalidSchemaError(_BODY_COLUMN, given.dataType.simpleString(), str(error)) from None
    return replace(options, body_schema=BodySchema(text, text))


def _rows_of(schema: StructType) -> TableSchemas:
    """Return the table of the type that a schema has for the images of changes."""
    kinds = [field.dataType for field in schema.fields if field.name.lower() in _IMAGES_OF_ROWS]
    kind = next((kind for kind in kinds if isinstance(kind, StructType)), None)
    if kind is None:  # No image is read.
        return TableSchemas("message", (TableSchema({"": "string"}),))
    columns = {field.name: type_ddl(field.type) for field in to_arrow(kind)}
    return TableSchemas("message", (TableSchema(columns),))


def to_struct(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    return StructType([StructField(f.name, from_arrow_type(f.type), f.nullable) for f in schema])


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches of ``schema``; timestamps are UTC.

    Raises TypeError, pyspark's own from Spark 3.5 on, or ValueError for a type that Arrow lacks.
    """
    if HAS_LIMITS:  # Before 4.2 there is no parameter ``timezone``.
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)


def write_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame to write; raises InvalidSchemaError if it has none."""
    fields: list[pa.Field] = []
    for field in schema.fields:
        try:
            fields += to_arrow(StructType([field]))
        except (TypeError, ValueError):  # ValueError: array<void>, as array() is
            raise InvalidSchemaError(
                field.name, field.dataType.simpleString(), "no column of a message has this type"
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


def _check_field(given: StructField, column: pa.Field) -> None:
    expected = from_arrow_type(column.type)
    if not _same(given.dataType, expected):
        raise InvalidSchemaError(
            given.name,
            given.dataType.simpleString(),
            f"is {expected.simpleString()}; read it as it is and cast it after load()",
        )
    if column.nullable and not given.nullable:
        raise InvalidSchemaError(given.name, "not null", "may be null; leave out NOT NULL")


def _same(one: DataType, other: DataType) -> bool:
    """Tell whether the types are equal, apart from the nullability of their elements."""
    return one.simpleString() == other.simpleString()

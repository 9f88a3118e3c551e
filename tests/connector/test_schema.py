"""Schemas between Arrow and Spark, and what a user's schema may ask for. No Spark session."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    YearMonthIntervalType,
)

from mqstore.codec.schema import COLUMNS, KAFKA_COLUMNS, message_schema
from mqstore.errors import InvalidSchemaError
from mqstore.request.plan import read_schema
from mqstore.tables.catalog import CATALOG
from pyspark_mqlog.options import parse_read
from pyspark_mqlog.schema import (
    check_projection,
    conform,
    to_arrow,
    to_struct,
    write_schema,
)

ALL = [
    message_schema([column.name for column in COLUMNS]),
    message_schema([column.name for column in KAFKA_COLUMNS]),
    *(table.schema for table in CATALOG.values()),
]


BINARY, LONG, STRING = BinaryType(), LongType(), StringType()


def struct(*, nullable: bool = True, **fields: DataType) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, kind in fields.items()])


def projection(schema: StructType, **options: str) -> tuple[str, ...]:
    return check_projection(schema, parse_read({"path": "/s", **options}))


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.names[0] + str(len(schema)))
def test_every_schema_is_exactly_what_spark_makes_of_it(schema: pa.Schema) -> None:
    """What pyspark compares a batch's schema with: names, order, types, every flag."""
    assert to_arrow_schema(to_struct(schema), timezone="UTC").equals(schema)


def test_a_projection_is_by_name_in_any_case_and_order() -> None:
    assert projection(struct(BODY=BINARY, topic=STRING)) == ("body", "topic")
    assert projection(struct(lag=LONG, group=STRING), table="backlog") == ("lag", "group")
    assert projection(struct(value=BINARY, key=BINARY)) == ("value", "key")


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        (struct(boddy=BINARY), {}, "column boddy (unknown): did you mean body?"),
        (struct(grup=LONG), {"table": "backlog"}, "column grup (unknown): did you mean group? t"),
        (struct(body=BINARY, Body=BINARY), {}, "column Body (repeated)"),
        (struct(body=STRING), {}, "column body (string): is binary; read it as it is and cast it"),
        (struct(queueId=LONG), {}, "column queueId (bigint): is int"),
        (struct(storeTimestamp=TimestampNTZType()), {}, "(timestamp_ntz): is timestamp"),
        (struct(properties=MapType(STRING, BINARY)), {}, "is map<string,string>"),
        (struct(nullable=False, tags=STRING), {}, "column tags (not null): may be null"),
        (struct(body=BINARY), {"columns": "minimal"}, "contradicts columns=minimal"),
    ],
)
def test_a_wrong_schema_is_refused(schema: StructType, options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        projection(schema, **options)
    assert told in str(caught.value)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="empty schema"):
        projection(struct())


def test_columns_of_a_table_are_a_list_of_its_own() -> None:
    options = parse_read({"path": "/s#topics", "columns": "isSystem, topic"})
    assert read_schema(options).names == ["isSystem", "topic"]
    with pytest.raises(InvalidSchemaError, match="did you mean topic"):
        read_schema(parse_read({"path": "/s#topics", "columns": "topics"}))


def test_a_batch_takes_the_names_and_flags_of_the_users_schema() -> None:
    schema = message_schema(["topic", "properties"])
    batch = pa.record_batch([["T"], [[("a", "1")]]], schema=schema)
    asked = to_arrow(struct(TOPIC=STRING, properties=MapType(STRING, STRING)))
    found = conform(batch, asked)
    assert found.schema.equals(asked)
    assert found.to_pylist() == [{"TOPIC": "T", "properties": [("a", "1")]}]
    assert conform(batch, schema) is batch


def test_a_type_that_arrow_has_not_names_its_column() -> None:
    frame = struct(body=STRING, month=YearMonthIntervalType())
    with pytest.raises(InvalidSchemaError, match=r"column month \(interval"):
        write_schema(frame)
    assert write_schema(struct(body=STRING)).names == ["body"]


@pytest.mark.parametrize("empty", [ArrayType(NullType(), False), MapType(NullType(), NullType())])
def test_a_literal_without_a_type_is_refused_by_name(empty: DataType) -> None:
    """What ``array() AS keys`` and ``map() AS properties`` are."""
    with pytest.raises(InvalidSchemaError, match=r"column keys \((array|map)<void"):
        write_schema(struct(keys=empty))

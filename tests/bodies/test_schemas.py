"""Schemas of bodies as text: DDL, Spark's JSON, JSON Schema; and what is none."""

import json

import pyarrow as pa
import pytest

from mqstore.bodies.ddl import parse_ddl, to_ddl
from mqstore.bodies.json_schema import to_json_schema
from mqstore.bodies.schema_text import body_schema, json_type
from mqstore.errors import InvalidOptionError

DDL = (
    "id BIGINT, `a b``c` STRING, d DECIMAL(10,2), e DECIMAL(10,0), t TIMESTAMP, n TIMESTAMP_NTZ, "
    "day DATE, l ARRAY<STRUCT<x: INT, m: MAP<STRING, DOUBLE>>>, v BINARY, f FLOAT, k TINYINT, "
    "h SMALLINT, o BOOLEAN"
)


def of(text: str) -> pa.DataType:
    return json_type(body_schema("bodySchema", text))


def test_ddl_is_read_as_it_is_written() -> None:
    kind = parse_ddl(DDL)
    assert to_ddl(kind) == DDL
    assert parse_ddl(f"STRUCT<{DDL}>") == kind


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("id: long, s: string", "id BIGINT, s STRING"),
        ("id INT NOT NULL COMMENT 'a, b', s VARCHAR(10)", "id INT, s STRING"),
        ("d decimal, n NUMERIC(5)", "d DECIMAL(10,0), n DECIMAL(5,0)"),
        ("struct INT", "struct INT"),
        ("订单 STRING", "`订单` STRING"),
    ],
)
def test_other_spellings_of_ddl_mean_the_same(text: str, same: str) -> None:
    assert to_ddl(parse_ddl(text)) == same


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id", "a type is missing at the end"),
        ("id BIGINT s STRING", "a comma is missing before s"),
        ("id BIGINT,", "the name of a field is missing at the end"),
        ("a INT, a INT", "two fields have the name a"),
        ("a STRUCT<>", "the name of a field is missing before >"),
        ("a ARRAY<INT", "> is missing before the end"),
        ("a MAP<INT, INT>", "the keys of a MAP must be STRING"),
        ("a DECIMAL(39,2)", "there is no DECIMAL(39,2)"),
        ("a VARIANT", "VARIANT is no type"),
        ("a INT; DROP", "'; DROP' is not understood"),
        ("a " + "ARRAY<" * 60 + "INT" + ">" * 60, "more than 50 deep"),
        ('{"type": "integer"}', "no schema of an object"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "void"}]}', "void is no type"),
        ("[" * 100_000, "nested too deeply"),
        ('{"$ref": "x"}', "$ref is not followed"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        of(text)
    assert told in str(caught.value)


def test_json_of_a_spark_schema_is_read() -> None:
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        {"name": "l", "type": {"type": "array", "elementType": {"type": "map", "keyType": "string",
         "valueType": "timestamp_ntz", "valueContainsNull": True}, "containsNull": True}},
    ]  # fmt: skip
    text = json.dumps({"type": "struct", "fields": fields})
    assert to_ddl(of(text)) == ("id BIGINT, d DECIMAL(10,2), l ARRAY<MAP<STRING, TIMESTAMP_NTZ>>")


def test_json_schema_is_read_and_written() -> None:
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "id": {"type": ["integer", "null"]},
            "at": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
            "either": {"type": ["integer", "string"]},
            "tags": {"type": "array", "items": {"type": "number"}},
            "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    }
    kind = of(json.dumps(document))
    assert to_ddl(kind) == (
        "id BIGINT, at TIMESTAMP, either STRING, tags ARRAY<DOUBLE>, more MAP<STRING, BOOLEAN>"
    )
    assert of(json.dumps(to_json_schema(kind))) == kind

"""Schemas in JSON, of Spark (StructType.json) and of JSON Schema, as Arrow types and back."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.ddl import (
    LOCAL,
    MOST_DEPTH,
    PLAIN_TYPES,
    UTC,
    decimal_of,
    list_of,
    struct_of,
)

_DECIMAL_WORD: Final = re.compile(r"decimal\((\d{1,3}),\s*(-?\d{1,3})\)")
_TEXT_WORD: Final = re.compile(r"(?:var)?char\(\d+\)")
_TEXT_FORMATS: Final = {"date": pa.date32(), "date-time": UTC}
_SCHEMA_TYPES: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


def is_spark_schema(document: object) -> bool:
    """Tell whether a document of JSON is a StructType of Spark."""
    return isinstance(document, Mapping) and document.get("type") == "struct"


def spark_type(document: Any, depth: int = 0) -> pa.DataType:
    """Return the type of a DataType's JSON; all fields may be null. Raises ValueError."""
    if depth > MOST_DEPTH:
        raise ValueError(f"types lie more than {MOST_DEPTH} deep")
    if isinstance(document, str):
        return _plain(document)
    kind = document.get("type") if isinstance(document, Mapping) else None
    if kind == "struct" and isinstance(document.get("fields"), list):
        return struct_of([_spark_field(field, depth) for field in document["fields"]])
    if kind == "array" and "elementType" in document:
        return list_of(spark_type(document["elementType"], depth + 1))
    if kind == "map" and {"keyType", "valueType"} <= document.keys():
        if document["keyType"] != "string":
            raise ValueError("the keys of a map must be of type string")
        return pa.map_(pa.string(), spark_type(document["valueType"], depth + 1))
    raise ValueError(f"{str(document)[:60]} is no type of Spark's JSON")


def _spark_field(field: Any, depth: int) -> pa.Field:
    if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
        raise ValueError(f"{str(field)[:60]} is no field of Spark's JSON")  # noqa: TRY004
    return pa.field(field["name"], spark_type(field.get("type"), depth + 1))


def _plain(word: str) -> pa.DataType:
    decimal = _DECIMAL_WORD.fullmatch(word)
    if decimal:
        return decimal_of(int(decimal[1]), int(decimal[2]))
    if _TEXT_WORD.fullmatch(word):
        return pa.string()
    if word not in PLAIN_TYPES:
        raise ValueError(f"{word[:60]} is no type of Spark's JSON that a body can have")
    return PLAIN_TYPES[word]


def schema_type(document: Any, depth: int = 0) -> pa.DataType:
    """Return the type of a JSON Schema; all fields may be null. Raises ValueError.

    ``anyOf`` or a list of types with null is the other type; other unions are STRING, the text of
    the value.
    """
    if depth > MOST_DEPTH:
        raise ValueError(f"types lie more than {MOST_DEPTH} deep")
    if not isinstance(document, Mapping):
        raise ValueError(f"{str(document)[:60]} is no JSON Schema of an object")  # noqa: TRY004
    if "$ref" in document:
        raise ValueError("$ref is not followed: write the schema out")
    branches = document.get("anyOf", document.get("oneOf"))
    if isinstance(branches, list):
        others = [b for b in branches if not (isinstance(b, Mapping) and b.get("type") == "null")]
        return schema_type(others[0], depth + 1) if len(others) == 1 else pa.string()
    kinds = document.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    others = [kind for kind in kinds if kind != "null"]
    if len(others) != 1:
        return pa.string()
    return _of_kind(document, others[0], depth)


def _of_kind(document: Mapping[str, Any], kind: object, depth: int) -> pa.DataType:
    fields, more = document.get("properties"), document.get("additionalProperties")
    if kind == "object" or (kind is None and isinstance(fields, Mapping)):
        if isinstance(fields, Mapping) and fields:
            return struct_of([pa.field(n, schema_type(f, depth + 1)) for n, f in fields.items()])
        if isinstance(more, Mapping):
            return pa.map_(pa.string(), schema_type(more, depth + 1))
        return pa.string()
    if kind == "array":
        items = document.get("items")
        return list_of(schema_type(items, depth + 1) if isinstance(items, Mapping) else pa.string())
    if kind == "string" and document.get("format") in _TEXT_FORMATS:
        return _TEXT_FORMATS[document["format"]]
    return _SCHEMA_TYPES.get(kind, pa.string()) if isinstance(kind, str) else pa.string()


def to_json_schema(kind: pa.DataType) -> dict[str, Any]:
    """Return the JSON Schema of a type; every value may be null."""
    if pa.types.is_struct(kind):
        keywords: dict[str, Any] = {
            "type": "object",
            "properties": {field.name: to_json_schema(field.type) for field in kind},
        }
    elif pa.types.is_map(kind):
        keywords = {"type": "object", "additionalProperties": to_json_schema(kind.item_type)}
    elif pa.types.is_list(kind):
        keywords = {"type": "array", "items": to_json_schema(kind.value_type)}
    elif pa.types.is_date(kind):
        keywords = {"type": "string", "format": "date"}
    elif kind in {UTC, LOCAL}:
        keywords = {"type": "string", "format": "date-time"}
    elif pa.types.is_integer(kind):
        keywords = {"type": "integer"}
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        keywords = {"type": "number"}
    else:
        keywords = {"type": "boolean" if pa.types.is_boolean(kind) else "string"}
    return {**keywords, "type": [keywords["type"], "null"]}

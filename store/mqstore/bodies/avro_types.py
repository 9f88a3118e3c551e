"""A schema of Avro as a tree of types, each with the Arrow type of its values.

Types are those of Spark's from_avro; a schema that refers to itself is refused.

Reference: https://avro.apache.org/docs/1.12.0/specification;
org.apache.spark.sql.avro.SchemaConverters#toSqlType.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.ddl import (
    LOCAL,
    MOST_DEPTH,
    MOST_FIELDS,
    UTC,
    decimal_of,
    list_of,
    struct_of,
)
from mqstore.bodies.libraries import avro_library

_MARK_OF_PARSED: Final = "__fastavro"
_AVRO_LEAVES: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(),
    "enum": pa.string(), "null": pa.string(),
}  # fmt: skip
_AVRO_TIMES: Final = {
    ("int", "date"): pa.date32(),
    **{("long", f"timestamp-{unit}"): UTC for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): LOCAL for unit in ("millis", "micros", "nanos")},
}
_OF_ONE: Final = {
    frozenset({"int", "long"}): pa.int64(),
    frozenset({"float", "double"}): pa.float64(),
}
"""Unions of two kinds of numbers, which are one column."""


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of a schema, with what lies within: the fields of a record, the branches of a union.

    ``written`` is the type as Avro names it: ``long``, ``record``, or ``union``.
    """

    written: str
    arrow: pa.DataType
    logical: str | None = None
    size: int = 0
    """Bytes of a fixed, symbols of an enum."""
    inner: tuple[tuple[str, "AvroType"], ...] = ()

    @property
    def values(self) -> "AvroType":
        """The type of the elements of an array, or of the values of a map."""
        return self.inner[0][1]

    @property
    def branches(self) -> list["AvroType"]:
        """The branches of a union that are not null."""
        return [branch for _, branch in self.inner if branch.written != "null"]

    @property
    def has_members(self) -> bool:
        """Whether a union is a struct with a member for each branch."""
        return self.written == "union" and len(self.branches) > 1 and not _is_one(self.branches)


def parsed_schema(text: str) -> Any:
    """Return a schema as fastavro parses it; raises ValueError with the reason."""
    if _MARK_OF_PARSED in text:
        raise ValueError("has a word of fastavro's own")
    try:
        return avro_library().parse_schema(json.loads(text))
    except RecursionError:
        raise ValueError("types lie too deep") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"is no schema of Avro: {error!r}") from None
    except Exception as error:
        if isinstance(error, ValueError) or type(error).__module__.startswith("fastavro"):
            raise ValueError(str(error)) from None
        raise


def type_of(parsed: Any) -> AvroType:
    """Return the types of a parsed schema, which must be a record; raises ValueError."""
    root = _AvroTypes().type(parsed, ())
    if root.written != "record":
        raise ValueError(f"is of {root.written}: bodies are records")
    return root


class _AvroTypes:
    """Makes the types of one schema. What is used twice is made twice: its size is bounded."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._count = 0

    def type(self, schema: Any, above: tuple[str, ...], depth: int = 0) -> AvroType:
        """Return a type; ``above`` are the names of the records around it."""
        self._count += 1
        if self._count > MOST_FIELDS:
            raise ValueError(f"more than {MOST_FIELDS:,} types, each use counted")
        if depth > MOST_DEPTH:
            raise ValueError(f"types lie more than {MOST_DEPTH} deep")
        if isinstance(schema, list):
            return self._union(schema, above, depth + 1)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema["type"], list | Mapping):
            return self.type(schema["type"], above, depth + 1)
        name = schema.get("name")
        if name in above:
            raise ValueError(f"{name} is recursive: it lies within itself")
        if name is not None:
            self._named[name] = schema
            above = (*above, name)
        return self._of_word(schema, above, depth)

    def _of_word(self, schema: Any, above: tuple[str, ...], depth: int) -> AvroType:
        word = schema["type"]
        if word in {"record", "error"}:
            fields = [(f["name"], self.type(f["type"], above, depth + 1)) for f in schema["fields"]]
            struct = struct_of([pa.field(name, inner.arrow) for name, inner in fields])
            return AvroType("record", struct, inner=tuple(fields))
        if word in {"array", "map"}:
            inner = self.type(schema["items" if word == "array" else "values"], above, depth + 1)
            kind = list_of(inner.arrow) if word == "array" else pa.map_(pa.string(), inner.arrow)
            return AvroType(word, kind, inner=(("", inner),))
        if word not in _AVRO_LEAVES:
            raise ValueError(f"{word} is no type of Avro")
        size = len(schema["symbols"]) if word == "enum" else schema.get("size", 0)
        if type(size) is not int or size < 0:
            raise ValueError(f"{schema.get('name')}: a size of {size}")
        return _leaf(schema, word, size)

    def _union(self, schema: list[Any], above: tuple[str, ...], depth: int) -> AvroType:
        branches = [(f"member{n}", self.type(s, above, depth)) for n, s in enumerate(schema)]
        filled = [branch for _, branch in branches if branch.written != "null"]
        if not filled:
            return AvroType("union", pa.string(), inner=tuple(branches))
        if len(filled) == 1:
            kind = filled[0].arrow
        elif _is_one(filled):
            kind = _OF_ONE[frozenset(branch.written for branch in filled)]
        else:
            members = enumerate(filled)
            kind = struct_of([pa.field(f"member{n}", branch.arrow) for n, branch in members])
        return AvroType("union", kind, inner=tuple(branches))


def _is_one(branches: list[AvroType]) -> bool:
    """Tell whether branches are two kinds of plain numbers."""
    written = frozenset(branch.written for branch in branches)
    return written in _OF_ONE and all(branch.logical is None for branch in branches)


def _leaf(schema: Any, word: str, size: int) -> AvroType:
    logical = schema.get("logicalType")
    if logical == "duration" and word == "fixed":
        raise ValueError("duration is no type of a column: write fixed alone for its bytes")
    if (word, logical) in _AVRO_TIMES:
        return AvroType(word, _AVRO_TIMES[word, logical], logical)
    if logical == "decimal" and word in {"bytes", "fixed"}:
        kind = decimal_of(schema["precision"], schema.get("scale", 0))
        return AvroType(word, kind, logical, size)
    return AvroType(word, _AVRO_LEAVES[word], None, size)

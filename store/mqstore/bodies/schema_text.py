"""The option bodySchema: DDL or JSON as text, or the path of a file that has it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from mqstore.bodies.ddl import parse_ddl
from mqstore.bodies.json_schema import is_spark_schema, schema_type, spark_type
from mqstore.errors import InvalidOptionError

SCHEMA: Final = "bodySchema"
_IS_PATH: Final = re.compile(r"(?:/|\./|\.\./|[a-z][a-z0-9+.-]*:/)")
_MOST_SCHEMA_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class BodySchema:
    """A schema as text, or as the bytes of a file that is no text; ``source`` is for errors."""

    source: str
    text: str


def body_schema(name: str, text: str) -> BodySchema:
    """Return the schema of an option; a path is read here, once. Raises InvalidOptionError."""
    if not _IS_PATH.match(text.strip()):
        if not text.strip():
            raise InvalidOptionError(name, text, "is empty: write the fields, id BIGINT, at DATE")
        return BodySchema(text, text)
    path = _local_path(name, text.strip())
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_SCHEMA_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOptionError(name, text, f"cannot be read: {reason}") from None
    if len(data) > _MOST_SCHEMA_BYTES:
        raise InvalidOptionError(name, text, "is longer than 4 MiB")
    try:
        return BodySchema(text, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidOptionError(name, text, "is no text of UTF-8") from None


def _local_path(name: str, text: str) -> Path:
    if text.startswith(("/", "./", "../")):
        return Path(text)
    address = urlsplit(text)
    if address.scheme != "file" or address.netloc not in {"", "localhost"}:
        raise InvalidOptionError(name, text, "must be a path of this machine, or the schema itself")
    return Path(unquote(address.path))


def json_type(schema: BodySchema) -> pa.DataType:
    """Return the struct that a schema of JSON bodies says; raises InvalidOptionError."""
    try:
        if schema.text.lstrip()[:1] not in {"{", "["}:
            return parse_ddl(schema.text)
        document = json.loads(schema.text)
        kind = spark_type(document) if is_spark_schema(document) else schema_type(document)
    except RecursionError:
        raise InvalidOptionError(SCHEMA, schema.source, "is nested too deeply") from None
    except ValueError as error:
        raise InvalidOptionError(SCHEMA, schema.source, f"is no schema: {error}") from None
    if not pa.types.is_struct(kind):
        expected = "is no schema of an object with fields"
        raise InvalidOptionError(SCHEMA, schema.source, expected)
    return kind

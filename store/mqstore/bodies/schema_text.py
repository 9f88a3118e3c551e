"""The option bodySchema: a schema as text, or the path of a file or a folder that has it."""

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
_MOST_SCHEMA_FILES: Final = 10_000
_ID_FILE: Final = re.compile(r"(\d{1,10})\.avsc", re.ASCII)


@dataclass(frozen=True, slots=True)
class BodySchema:
    """A schema as text, as the bytes of a file, or as files by their ids.

    ``source`` is for errors. Bytes that are no UTF-8 have no text.
    """

    source: str
    text: str
    data: bytes = b""
    files: tuple[tuple[int, str], ...] = ()


def body_schema(name: str, text: str) -> BodySchema:
    """Return the schema of an option; a path is read here, once. Raises InvalidOptionError."""
    if not _IS_PATH.match(text.strip()):
        if not text.strip():
            raise InvalidOptionError(name, text, "is empty: write the fields, id BIGINT, at DATE")
        return BodySchema(text, text)
    path = _local_path(name, text.strip())
    try:
        if path.is_dir():
            return BodySchema(text, "", files=_files(name, text, path))
        data = _read(name, text, path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOptionError(name, text, f"cannot be read: {reason}") from None
    return BodySchema(text, _text(data) or "", data)


def _files(name: str, text: str, folder: Path) -> tuple[tuple[int, str], ...]:
    """Return the schemas of a folder, ``ID.avsc``, by their ids, all together of bounded bytes."""
    texts_by_id: list[tuple[int, str]] = []
    size = 0
    for path in sorted(folder.glob("*.avsc"))[: _MOST_SCHEMA_FILES + 1]:
        number = _ID_FILE.fullmatch(path.name)
        if number is None:
            raise InvalidOptionError(name, text, f"{path.name} is not named ID.avsc, as 7.avsc")
        data = _read(name, text, path)
        size += len(data)
        if size > _MOST_SCHEMA_BYTES or len(texts_by_id) == _MOST_SCHEMA_FILES:
            raise InvalidOptionError(name, text, "has more than 4 MiB, or 10,000 files")
        texts_by_id.append((int(number[1]), _text(data) or ""))
    if not texts_by_id:
        raise InvalidOptionError(name, text, "is a folder without a file ID.avsc")
    return tuple(sorted(texts_by_id))


def _read(name: str, text: str, path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_MOST_SCHEMA_BYTES + 1)
    if len(data) > _MOST_SCHEMA_BYTES:
        raise InvalidOptionError(name, text, "is longer than 4 MiB")
    return data


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _local_path(name: str, text: str) -> Path:
    if text.startswith(("/", "./", "../")):
        return Path(text)
    address = urlsplit(text)
    if address.scheme != "file" or address.netloc not in {"", "localhost"}:
        raise InvalidOptionError(name, text, "must be a path of this machine, or the schema itself")
    return Path(unquote(address.path))


def json_type(schema: BodySchema) -> pa.DataType:
    """Return the struct that a schema of JSON bodies says; raises InvalidOptionError."""
    if schema.files or not schema.text:
        expected = "is a folder: it is for body=avro" if schema.files else "is no text of UTF-8"
        raise InvalidOptionError(SCHEMA, schema.source, expected)
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

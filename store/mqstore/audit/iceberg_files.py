"""The files of an Iceberg table of messages: those of its last snapshot.

The last file of metadata names the snapshot, the snapshot a list of manifests, a manifest the files
of data. Of a table at a path, as Spark's Hadoop catalog keeps it, the last is found by number; of
another, only the catalog knows it. Columns of files are known by their numbers, as columns may have
been renamed. Reference: Iceberg Table Spec; HadoopTableOperations.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mqstore.audit.avro import AVRO_ERRORS, Fields, records
from mqstore.audit.parquet_columns import OF_AUDITS
from mqstore.audit.table_files import (
    BY_SPARK,
    Roots,
    TableFile,
    damaged,
    plain,
    refused,
    roots_of,
    there,
    within,
)
from mqstore.errors import shown

METADATA: Final = "metadata"
METADATA_SUFFIX: Final = ".metadata.json"
_VERSION_FILE: Final = re.compile(
    r"v([0-9]{1,18})(?:\.gz\.metadata\.json|\.metadata\.json(?:\.gz)?)"
)
_HINT: Final = "version-hint.text"
_MOST_HINT_BYTES: Final = 64
_MOST_METADATA_BYTES: Final = 256 << 20
_GZIP: Final = b"\x1f\x8b"
_FORMATS: Final = (1, 2, 3)
_ICEBERG_TYPES: Final = {"string": pa.string(), "int": pa.int64(), "long": pa.int64()}
# Numbers of fields in lists of manifests and in manifests.
_PATH, _SPEC, _CONTENT = 500, 502, 517
_STATUS, _FILE = 0, 2
_FILE_PATH, _FILE_FORMAT, _PARTITION = 100, 101, 102
_REMOVED_ENTRY: Final = 2

_PYTHON_ERRORS: Final = (
    *(LookupError, TypeError, AttributeError, ValueError, OverflowError),
    pa.ArrowException,
)

_Json: TypeAlias = Mapping[str, Any]


def metadata_named(where: Path) -> Path | None:
    """Return the directory of the table whose file of metadata ``where`` is; None if it is none."""
    return where.parent.parent if where.name.endswith(METADATA_SUFFIX) and where.is_file() else None


def iceberg_files(where: Path) -> list[TableFile]:
    """Return the files of the last snapshot; ``where`` is a directory, or a file of metadata.

    Raises InvalidOptionError for a table that is more than these, UnsafePathError, OSError.
    """
    root = metadata_named(where)
    roots = roots_of(where if root is None else root)
    folder = roots[1] / METADATA
    if folder.resolve() != folder or not folder.is_dir():
        raise refused(roots[0], f"has no directory {METADATA}")
    path = _last(roots[0], folder) if root is None else plain(folder / where.name)
    try:
        table = _Table(roots, path, _parsed(path))
        return sorted(table.files(), key=attrgetter("path"))
    except _PYTHON_ERRORS as error:
        raise refused(path, f"is no metadata of a table: {shown(error)}") from error


class _Table:
    """A table by its metadata. What is wrong in it raises one of ``_PYTHON_ERRORS``."""

    def __init__(self, roots: Roots, path: Path, facts: _Json) -> None:
        self._roots, self._path, self._facts = roots, path, facts
        if facts["format-version"] not in _FORMATS:
            version = shown(facts["format-version"])
            raise refused(path, f"is of version {version} of the format: {BY_SPARK}")
        columns = self._schema()["fields"]
        for column in columns:
            if column["name"] in OF_AUDITS and column.get("initial-default") is not None:
                reason = f"has a value for rows of files without the column {column['name']}"
                raise refused(path, f"{reason}: {BY_SPARK}")
        self._ids = {str(column["name"]): int(column["id"]) for column in columns}
        self._columns = {column["id"]: column for column in columns}

    def files(self) -> Iterator[TableFile]:
        """Yield the files of the last snapshot."""
        last = self._facts.get("current-snapshot-id")
        if last in (None, -1):
            return
        (snapshot,) = (one for one in self._facts["snapshots"] if one["snapshot-id"] == last)
        if "manifest-list" not in snapshot:
            raise refused(self._path, f"has a snapshot without a list of manifests: {BY_SPARK}")
        listed = self._named(self._path, snapshot["manifest-list"])
        seen = set[Path]()
        for entry in _records(listed):
            manifest = self._named(listed, entry.get(_PATH))
            if manifest in seen:
                raise refused(listed, f"names {manifest.name} twice")
            seen.add(manifest)
            yield from self._of_manifest(manifest, entry)

    def _of_manifest(self, manifest: Path, entry: Fields) -> Iterator[TableFile]:
        by = self._identities(entry.get(_SPEC, 0))
        for found in _records(manifest):
            if found.get(_STATUS) == _REMOVED_ENTRY:
                continue
            file = found.get(_FILE)
            if not isinstance(file, dict):
                raise refused(manifest, "has an entry without a file")
            path = within(self._roots, manifest, file.get(_FILE_PATH), is_uri=False)
            if entry.get(_CONTENT):
                reason = f"has deleted rows (a delete file) that are in files of data: {BY_SPARK}"
                raise refused(path, reason)
            kind = shown(file.get(_FILE_FORMAT))
            if kind.upper() != "PARQUET":
                raise refused(path, f"is {kind}, and files of Parquet are read")
            partition = file.get(_PARTITION) or {}
            values = {
                name: pa.scalar(partition[number], kind)
                for number, (name, kind) in by.items()
                if number in partition
            }
            yield TableFile(there(manifest, path), values, self._ids)

    def _identities(self, number: int) -> dict[int, tuple[str, pa.DataType]]:
        """Return the columns of messages that a partition has, by the numbers of its fields."""
        found = {}
        for place, field in enumerate(self._spec(number)):
            column = self._columns.get(field.get("source-id"), {})
            name, kind = column.get("name"), _ICEBERG_TYPES.get(str(column.get("type")))
            # Of another type or transform, the file has the column itself.
            if field["transform"] == "identity" and name in OF_AUDITS and kind is not None:
                found[int(field.get("field-id", 1000 + place))] = name, kind
        return found

    def _spec(self, number: int) -> Any:
        if "partition-specs" not in self._facts:
            return self._facts["partition-spec"]
        (spec,) = (one for one in self._facts["partition-specs"] if one["spec-id"] == number)
        return spec["fields"]

    def _schema(self) -> Any:
        if "schemas" not in self._facts:
            return self._facts["schema"]
        number = self._facts["current-schema-id"]
        (schema,) = (one for one in self._facts["schemas"] if one["schema-id"] == number)
        return schema

    def _named(self, naming: Path, text: object) -> Path:
        return there(naming, within(self._roots, naming, text, is_uri=False))


def _last(root: Path, folder: Path) -> Path:
    """Return the last file of metadata of a table at a path, as Spark's Hadoop catalog finds it."""
    found = {}
    for path in folder.iterdir():
        if match := _VERSION_FILE.fullmatch(path.name):
            found[int(match[1])] = path
    others = [path.name for path in folder.iterdir() if path.name.endswith(METADATA_SUFFIX)]
    if not found and others:
        reason = "is a table of a catalog, which knows the last file of its metadata: write "
        raise refused(root, f"{reason}iceberg:{root}/{METADATA}/{max(others)}, if it is that one")
    number = _hinted(folder)
    if number not in found:
        number = max(found, default=0)
    while number + 1 in found:
        number += 1
    if number not in found:
        raise refused(root, f"has no file v….metadata.json in {METADATA}")
    return plain(found[number])


def _hinted(folder: Path) -> int:
    path = folder / _HINT
    if not path.exists():
        return -1
    with plain(path).open("rb") as file:
        text = file.read(_MOST_HINT_BYTES).strip()
    return int(text) if text.isdigit() else -1


def _parsed(path: Path) -> _Json:
    if path.stat().st_size > _MOST_METADATA_BYTES:
        raise refused(path, f"has more than {_MOST_METADATA_BYTES:,} bytes")
    data = path.read_bytes()
    try:
        if data.startswith(_GZIP):
            unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            data = unpacker.decompress(data, _MOST_METADATA_BYTES)
        found = json.loads(data)
    except (ValueError, RecursionError, zlib.error) as error:
        raise damaged(path, error) from error
    if not isinstance(found, dict):
        raise refused(path, "is no metadata of a table")
    return found


def _records(path: Path) -> Iterator[Fields]:
    try:
        yield from records(path)
    except AVRO_ERRORS as error:
        raise damaged(path, error) from error

"""The files of a table in a directory of this machine, by its address."""

from pathlib import Path

from mqstore.audit import delta_files, iceberg_files
from mqstore.audit.parquet_files import parquet_files
from mqstore.audit.table_addresses import DELTA_FORMAT, ICEBERG_FORMAT, TableAddress
from mqstore.audit.table_files import BY_SPARK, TableFile, refused, roots_of
from mqstore.errors import InvalidOptionError


def files_of(table: TableAddress) -> tuple[TableFile, ...]:
    """Return the files that count now.

    Raises InvalidOptionError for a table of another format, or one that is more than its files,
    UnsafePathError, OSError.
    """
    root = root_of(table)
    held = _formats(root)
    if held and table.format not in held:
        raise table.other(held[0])
    if table.format == DELTA_FORMAT:
        return tuple(delta_files.delta_files(roots_of(root)))
    if table.format == ICEBERG_FORMAT:
        return tuple(iceberg_files.iceberg_files(Path(table.where)))
    return tuple(parquet_files(roots_of(root)))


def root_of(table: TableAddress) -> Path:
    """Return the directory of a table. Raises InvalidOptionError for what is on no disk of ours.

    Of Iceberg, the address may have a file of metadata in it.
    """
    path = Path(table.where)
    if "://" in table.where:
        expected = f"write {table.format}:DIR, a directory of this machine; {BY_SPARK}"
        raise InvalidOptionError("PLACE", str(table), expected)
    if table.format == ICEBERG_FORMAT:
        if "/" not in table.where and not path.is_dir():
            expected = f"is a name in a catalog, and a directory is wanted; {BY_SPARK}"
            raise InvalidOptionError("PLACE", str(table), expected)
        return iceberg_files.metadata_named(path) or path
    return path


def _formats(root: Path) -> list[str]:
    """Return the formats, other than files of Parquet, that a directory is a table of."""
    if not root.is_dir():
        raise refused(root, "is no directory")
    found = [DELTA_FORMAT] if (root / delta_files.LOG).exists() else []
    if any((root / iceberg_files.METADATA).glob(f"*{iceberg_files.METADATA_SUFFIX}*")):
        found.append(ICEBERG_FORMAT)
    return found

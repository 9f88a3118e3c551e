"""Addresses of tables in a lake, ``FORMAT:WHERE``, and the files of those in a local directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mqstore.audit import delta_files, iceberg_files
from mqstore.audit.parquet_files import parquet_files
from mqstore.audit.table_files import BY_SPARK, TableFile, refused, roots_of
from mqstore.errors import InvalidOptionError

DELTA_FORMAT: Final = "delta"
ICEBERG_FORMAT: Final = "iceberg"
PARQUET_FORMAT: Final = "parquet"
_TITLES: Final = {DELTA_FORMAT: "Delta", ICEBERG_FORMAT: "Iceberg", PARQUET_FORMAT: "Parquet"}


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table of a format. ``where`` is its path; of Iceberg also its name in a catalog."""

    format: str
    where: str

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the table that a text names, None for any other place.

        Raises InvalidOptionError for a format without a place.
        """
        kind, colon, where = text.partition(":")
        if not colon or kind not in _TITLES:
            return None
        if not where:
            raise InvalidOptionError("PLACE", text, f"write {kind}:DIR")
        return cls(kind, where)

    def __str__(self) -> str:
        return f"{self.format}:{self.where}"

    def other(self, held: str) -> InvalidOptionError:
        """Return the error for a table that is of the format ``held``."""
        expected = f"is a table of {_TITLES[held]}: write {held}:{self.where}"
        return InvalidOptionError("PLACE", str(self), expected)

    def files(self) -> tuple[TableFile, ...]:
        """Return the files that count now, of a table in a directory of this machine.

        Raises InvalidOptionError for another table, UnsafePathError, OSError.
        """
        root = self.root()
        held = _formats(root)
        if held and self.format not in held:
            raise self.other(held[0])
        if self.format == DELTA_FORMAT:
            return tuple(delta_files.delta_files(roots_of(root)))
        if self.format == ICEBERG_FORMAT:
            return tuple(iceberg_files.iceberg_files(Path(self.where)))
        return tuple(parquet_files(roots_of(root)))

    def root(self) -> Path:
        """Return the directory. Raises InvalidOptionError for what is on no disk of this machine.

        Of Iceberg, ``where`` may be a file of metadata in it.
        """
        path = Path(self.where)
        if "://" in self.where:
            expected = f"write {self.format}:DIR, a directory of this machine; {BY_SPARK}"
            raise InvalidOptionError("PLACE", str(self), expected)
        if self.format == ICEBERG_FORMAT:
            if "/" not in self.where and not path.is_dir():
                expected = f"is a name in a catalog, and a directory is wanted; {BY_SPARK}"
                raise InvalidOptionError("PLACE", str(self), expected)
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

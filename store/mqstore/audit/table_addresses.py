"""Addresses of tables in a lake: ``FORMAT:WHERE``."""

from dataclasses import dataclass
from typing import Final, Self

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

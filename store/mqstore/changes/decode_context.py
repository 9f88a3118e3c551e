"""What decoders are given besides the message, and small parts that they share."""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

from mqstore.bodies.times import FIRST_US, LAST_US
from mqstore.changes.change import ChangeSequence
from mqstore.changes.table_schemas import TableSchema, TableSchemas

_MOST_LONG: Final = (1 << 63) - 1
LAST_ROW: Final = (1 << 31) - 1
"""The row of a sequence that sorts behind all others of its position."""


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """The option changesSchema, and the zone of times that are written without one."""

    schemas: TableSchemas | None = None
    zone: tzinfo = UTC

    def schema(self, database: str | None, table: str | None) -> TableSchema | None:
        """Return the schema of a table, None if none was given."""
        return None if self.schemas is None else self.schemas.of(database, table)


def source_time(value: Any, microseconds: int) -> int | None:
    """Return the time of a number of units in microseconds, None if it is no time that is shown."""
    number = whole(value)
    if number is None:
        return None
    time_us = number * microseconds
    return time_us if FIRST_US <= time_us <= LAST_US else None


def text_of(value: Any) -> str | None:
    """Return a value of a message as a text; None for one that is missing or empty."""
    return None if value in (None, "") else str(value)


def whole(value: Any) -> int | None:
    """Return a whole number of a message that fits 64 bits, else None."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (ValueError, TypeError):
        return None
    return number if -_MOST_LONG <= number <= _MOST_LONG else None


def binlog_sequence(file: Any, position: Any, row: Any) -> ChangeSequence | None:
    """Return the sequence of a place in a binlog; None without a number of the file.

    Files are compared by their number: bin.1000000 is behind bin.999999.
    """
    if not isinstance(file, str):
        return None
    number, at = whole(file.rpartition(".")[2]), whole(position)
    if number is None or at is None or number < 0:
        return None
    of_event = whole(row) or 0
    return ChangeSequence(0, number, at, of_event if 0 <= of_event <= LAST_ROW else 0)

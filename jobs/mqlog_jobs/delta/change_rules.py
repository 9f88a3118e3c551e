"""What a run of changes into tables is told: which tables, their keys, and what of DDL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Self

from mqstore.changes.table_schemas import TableSchemas
from mqstore.errors import InvalidOptionError

ON_DDL: Final = ("add", "stop", "ignore")


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """What a run does. tables: patterns, with ``!`` in front those that are left out.

    keys: by table, for tables whose messages tell none. by_queue: changes without a sequence are
    taken in the order of the times at which they were stored, whatever their queues. schemas: types
    and keys that messages do not tell.
    """

    tables: tuple[str, ...] = ("*",)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_queue: bool = False
    on_ddl: str = "add"
    schemas: TableSchemas | None = None

    @classmethod
    def of(
        cls,
        tables: Iterable[str] | None,
        keys: Iterable[str] | None,
        *,
        by_queue: bool,
        on_ddl: str,
    ) -> Self:
        """Return the rules of a command's options. Raises InvalidOptionError."""
        if on_ddl not in ON_DDL:
            raise InvalidOptionError("--on-ddl", on_ddl, f"must be one of {', '.join(ON_DDL)}")
        by_table = {}
        for text in keys or ():
            table, _, names = text.partition("=")
            columns = tuple(filter(None, names.split(",")))
            if not table or not columns:
                raise InvalidOptionError("--keys", text, "must be TABLE=COLUMN,COLUMN")
            by_table[table] = columns
        return cls(tuple(tables or ("*",)), by_table, by_queue, on_ddl)

    def takes(self, table: str) -> bool:
        """Tell whether the run takes the changes of a table."""
        included = [pattern for pattern in self.tables if not pattern.startswith("!")] or ["*"]
        if any(fnmatchcase(table, one[1:]) for one in self.tables if one.startswith("!")):
            return False
        return any(fnmatchcase(table, pattern) for pattern in included)

"""All tables, in the order in which the guide describes them."""

from typing import Final

from mqstore.tables import (
    backlogs,
    commits,
    files,
    groups,
    half_messages,
    index,
    retries,
    scheduled,
    store,
    tags,
    verify,
)
from mqstore.tables.table import Table

_TABLES: Final = (
    *backlogs.TABLES,
    *store.TABLES,
    *groups.TABLES,
    tags.TABLE,
    scheduled.TABLE,
    half_messages.TABLE,
    retries.TABLE,
    commits.TABLE,
    files.TABLE,
    index.TABLE,
    verify.TABLE,
)
CATALOG: Final[dict[str, Table]] = {table.name: table for table in _TABLES}
"""The tables by name, of the option ``table``."""

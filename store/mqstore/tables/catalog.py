"""All tables, in the order in which the guide describes them."""

from typing import Final

from mqstore.tables import (
    backlogs,
    commits,
    files,
    forecast,
    groups,
    half_messages,
    index,
    latency,
    retries,
    scheduled,
    store,
    tags,
    traces,
    unacknowledged,
    verdicts,
    verify,
)
from mqstore.tables.table import Table

_IN_ORDER: Final = (
    *backlogs.BACKLOGS,
    verdicts.VERDICTS,
    forecast.FORECAST,
    *store.OF_QUEUES,
    *groups.OF_GROUPS,
    tags.TAG_COUNTS,
    scheduled.SCHEDULED,
    half_messages.HALF_MESSAGES,
    retries.RETRIES,
    unacknowledged.UNACKNOWLEDGED,
    traces.TRACES,
    latency.LATENCY,
    commits.COMMITS,
    files.FILES,
    index.INDEX_ENTRIES,
    verify.VERIFY,
)
CATALOG: Final[dict[str, Table]] = {table.name: table for table in _IN_ORDER}
"""The tables by name, of the option ``table``."""

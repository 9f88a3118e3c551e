"""All tables, in the order in which the guide describes them.

A table is imported when it is asked for: who reads one does not wait for the code of the others.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqstore.tables.table import Table

_DECLARED_IN: Final = {
    "backlog": "backlogs.BACKLOG",
    "lagcompare": "backlogs.LAG_COMPARE",
    "verdicts": "verdicts.VERDICTS",
    "forecast": "forecast.FORECAST",
    "queues": "store.QUEUE_TABLE",
    "topics": "store.TOPIC_TABLE",
    "offsets": "store.OFFSET_TABLE",
    "groups": "groups.GROUPS",
    "subscriptions": "groups.SUBSCRIPTIONS",
    "brokers": "groups.BROKERS",
    "tags": "tags.TAG_COUNTS",
    "scheduled": "scheduled.SCHEDULED",
    "halfmessages": "half_messages.HALF_MESSAGES",
    "retries": "retries.RETRIES",
    "unacknowledged": "unacknowledged.UNACKNOWLEDGED",
    "traces": "traces.TRACES",
    "latency": "latency.LATENCY",
    "audit": "audits.AUDIT",
    "digests": "audits.DIGESTS",
    "commits": "commits.COMMITS",
    "files": "files.FILES",
    "index": "index.INDEX_ENTRIES",
    "verify": "verify.VERIFY",
}
"""The module of ``mqstore.tables`` and the name in it of each table's declaration."""


class _Catalog(Mapping[str, "Table"]):
    """The tables by name; a name that is not declared raises KeyError."""

    def __getitem__(self, name: str) -> "Table":
        module, _, constant = _DECLARED_IN[name].partition(".")
        table: Table = getattr(import_module(f"mqstore.tables.{module}"), constant)
        return table

    def __contains__(self, name: object) -> bool:
        return name in _DECLARED_IN

    def __iter__(self) -> Iterator[str]:
        return iter(_DECLARED_IN)

    def __len__(self) -> int:
        return len(_DECLARED_IN)


CATALOG: Final[Mapping[str, "Table"]] = _Catalog()
"""The tables by name, of the option ``table``."""

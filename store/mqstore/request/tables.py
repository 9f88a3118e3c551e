"""A read of a table, planned as work of tasks."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import pyarrow as pa

from mqstore.read.selection import OpenStores
from mqstore.read.store_bounds import StoreBounds, StoreOrigin
from mqstore.request.chosen_queues import message_slices, open_other
from mqstore.request.partitions import tasks_of_table
from mqstore.request.places import Places
from mqstore.request.read_options import ReadOptions
from mqstore.tables.catalog import CATALOG
from mqstore.tables.choice import Window
from mqstore.tables.owners import IS_SYSTEM, Owners
from mqstore.tables.table import Part, Table, TableRequest

_LOG = logging.getLogger(__name__)
_NULL_COLUMNS: Final = (
    "table %s: a RocketMQ proxy does not tell %s, which are null; the name servers' address does"
)


@dataclass(frozen=True, slots=True)
class TableWork:
    """A part of a table, and the columns of the read. Pickles into a task.

    ``stores`` are those of the plan, as the driver saw them.
    """

    part: Part
    columns: tuple[str, ...]
    owners: Owners | None = None
    stores: tuple[StoreOrigin, ...] = ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with those columns. Raises StoreNotSharedError, and as the part does."""
        for origin in self.stores:
            origin.check_planned()
        if self.owners is None or IS_SYSTEM not in self.columns:
            for batch in self.part.batches(self.columns):
                if batch.num_rows:
                    yield batch.select(self.columns)
            return
        for batch in self.part.batches(self.owners.columns(self.columns)):
            if batch.num_rows:
                yield self.owners.marked(batch).select(self.columns)


def plan_table(options: ReadOptions, stores: OpenStores, columns: Sequence[str]) -> list[TableWork]:
    """Return the work of reading ``options.table`` of the stores.

    Reads offsets and configuration. Raises UnknownTopicError, UnknownGroupError,
    InvalidOptionError for two stores of one broker's name, and what a source's snapshot raises.
    """
    request = TableRequest(
        stores,
        partial(message_slices, options, stores),
        Window(options.starting_timestamp, options.ending_timestamp),
        groups=options.groups,
        subscriptions=options.subscriptions or {},
        lag_mode=options.lag_mode,
        by_tag=options.by_tag,
        tags=options.tags,
        keys=options.keys,
        on_corrupt=options.on_corrupt,
        cores=tasks_of_table(options),
        trace_topic=options.trace_topic,
        by_queue=options.by_queue,
        interval_ms=options.interval_ms,
        look_again_ms=options.look_again_ms,
        kept_ms=options.kept_ms,
        system=options.include_system_topics,
        late_after_ms=options.late_after_ms,
        columns=tuple(columns),
        retention=options.retention,
        samples=options.samples,
        against=(
            partial(open_other, options, options.other)
            if isinstance(options.other, Places)
            else options.other
        ),
        audit=options.audit,
    )
    table = CATALOG[options.table]
    untold = [name for name in table.untold if name in columns]
    if untold and stores.is_proxied:
        _warn_of_untold(table.name, tuple(untold))
    owners = _owners(table, stores) if IS_SYSTEM in columns else None
    parts = table.plan(request)
    stores_here = (source.planned for source in stores.sources if isinstance(source, StoreBounds))
    planned = tuple(origin for origin in stores_here if origin is not None)
    return [TableWork(part, tuple(columns), owners, planned) for part in parts]


@cache
def _warn_of_untold(table: str, columns: tuple[str, ...]) -> None:
    """Warn, once in a process, of columns that are null through a proxy."""
    _LOG.warning(_NULL_COLUMNS, table, ", ".join(columns))


def _owners(table: Table, stores: OpenStores) -> Owners | None:
    if not table.owner:
        return None
    return Owners(table.owner, stores.own_topics if table.owner == "topic" else frozenset())

"""A read of a table, planned as work of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from mqstore.read.selection import OpenStores
from mqstore.request.chosen_queues import cores, message_slices, open_other
from mqstore.request.places import Places
from mqstore.request.read_options import ReadOptions
from mqstore.tables.catalog import CATALOG
from mqstore.tables.choice import Window
from mqstore.tables.table import Part, TableRequest


@dataclass(frozen=True, slots=True)
class TableWork:
    """A part of a table, and the columns of the read. Pickles into a task."""

    part: Part
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with those columns."""
        for batch in self.part.batches(self.columns):
            if batch.num_rows:
                yield batch.select(self.columns)


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
        cores=cores(),
        trace_topic=options.trace_topic,
        by_queue=options.by_queue,
        interval_ms=options.interval_ms,
        look_again_ms=options.look_again_ms,
        kept_ms=options.kept_ms,
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
    return [TableWork(part, tuple(columns)) for part in CATALOG[options.table].plan(request)]

"""The option ``table``: the backlog, the queues, the topics and the offsets of stores."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from mqstore import tables
from mqstore.backlog import BacklogItem, BacklogRequest, measure, plan_all, split
from mqstore.read.snapshot import Snapshot, topics_of
from mqstore.selection import Selection, select, topic_test
from pyspark_mqlog.options import ReadOptions
from pyspark_mqlog.pruning import selection

_ROWS: Final[dict[str, Callable[[Snapshot], pa.RecordBatch]]] = {
    "queues": tables.queues,
    "topics": tables.topics,
    "offsets": tables.offsets,
}
_TOPIC_OPTIONS: Final = frozenset(
    {"subscribe", "subscribePattern", "assign", "includeSystemTopics"}
)


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of chosen topics and, if ``assign`` is given, of its queues."""

    topics: frozenset[str]
    assign: Mapping[str, tuple[int, ...]] | None

    def passes(self, topic: str, queue_id: int | None) -> bool:
        """Tell whether a row of that topic and queue (None: the table has no queues) is wanted."""
        if topic not in self.topics:
            return False
        return self.assign is None or queue_id is None or queue_id in self.assign[topic]


@dataclass(frozen=True, slots=True)
class BacklogWork:
    """Queues of groups to measure."""

    items: tuple[BacklogItem, ...]
    request: BacklogRequest
    as_of_ms: int
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items."""
        yield measure(self.items, self.request, self.as_of_ms).select(self.columns)


@dataclass(frozen=True, slots=True)
class TableWork:
    """The rows of one store; all of them if there is no choice."""

    table: str
    snapshot: Snapshot
    choice: RowChoice | None
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the store."""
        batch = _ROWS[self.table](self.snapshot)
        if self.choice is not None:
            topics = batch["topic"].to_pylist()
            no_queues = [None] * len(topics)
            queues = batch["queueId"].to_pylist() if "queueId" in batch.schema.names else no_queues
            batch = batch.filter(pa.array(map(self.choice.passes, topics, queues), pa.bool_()))
        yield batch.select(self.columns)


def plan_table(
    options: ReadOptions, columns: Sequence[str]
) -> Sequence[BacklogWork] | Sequence[TableWork]:
    """Return the work of reading a table: a share of the backlog each, or a store each."""
    stores = selection(options)
    choice = _choice(options, stores)
    if options.table == "backlog":
        return _plan_backlog(options, stores, choice, tuple(columns))
    snapshots = select(stores, strict=options.on_corrupt == "fail")
    return [TableWork(options.table, snapshot, choice, tuple(columns)) for snapshot in snapshots]


def _plan_backlog(
    options: ReadOptions, stores: Selection, choice: RowChoice | None, columns: tuple[str, ...]
) -> list[BacklogWork]:
    request = BacklogRequest(
        options.groups, options.subscriptions, options.lag_mode, options.by_tag
    )
    # Whether a topic is gone, only a snapshot of all topics can tell.
    every = replace(
        stores, subscribe=(), subscribe_pattern=None, assign=None, include_system_topics=True
    )
    snapshots = select(every, strict=options.on_corrupt == "fail")
    items = plan_all(snapshots, request)
    if choice is not None:
        items = [item for item in items if choice.passes(item.topic, item.queue_id)]
    as_of_ms = max(snapshot.taken_ms for snapshot in snapshots)
    shares = split(items, os.cpu_count() or 1)
    return [BacklogWork(share, request, as_of_ms, columns) for share in shares]


def _choice(options: ReadOptions, stores: Selection) -> RowChoice | None:
    if _TOPIC_OPTIONS.isdisjoint(options.given):
        return None
    wanted = topic_test(stores)
    topics = {t for root in stores.roots for t in topics_of(root, stores.commit_log)}
    return RowChoice(frozenset(filter(wanted, topics)), options.assign)

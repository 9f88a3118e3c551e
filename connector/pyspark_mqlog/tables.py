"""The option ``table``: what there is to know of stores beside their messages.

Each table is planned on the driver into parts that pickle, and each part is a task's work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from mqstore import backlog
from mqstore.backlog import BacklogItem, BacklogRequest, Listed, PackedItems
from mqstore.backlog.request import group_test
from mqstore.read.lookup import hashes_of
from mqstore.read.selection import (
    broker_names,
    check_names_differ,
    check_topics,
    select,
    topic_test,
)
from mqstore.read.snapshot import Snapshot, topics_of
from mqstore.tables import (
    commits,
    files,
    half_messages,
    index,
    retries,
    scheduled,
    store,
    tags,
    verify,
)
from mqstore.tables.choice import RowChoice, Window
from mqstore.tables.roots import StoreRoot, open_root
from pyspark_mqlog.pruning import cores, message_slices, selection
from pyspark_mqlog.read_options import ReadOptions

_CONSUMED: Final = frozenset({"backlog", "lagcompare", "offsets"})
"""Tables with rows of topics that are gone, as long as a group has an offset there."""
_NO_TOPIC: Final = "(?!)"


class Part(Protocol):
    """A part of a table: what one task reads. Pickles."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in columns of the table of which ``columns`` at least are right."""


@dataclass(frozen=True, slots=True)
class TableWork:
    """A part of a table, and which of its columns are wanted."""

    part: Part
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in those columns."""
        for batch in self.part.batches(self.columns):
            if batch.num_rows:
                yield batch.select(self.columns)


@dataclass(frozen=True, slots=True)
class BacklogPart:
    """Queues of groups to measure."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items."""
        yield from backlog.measure_in_batches(self.items.items(), self.request, self.as_of_ms)


@dataclass(frozen=True, slots=True)
class ComparePart:
    """Queues of groups to compare with what RocketMQ's tools would print."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    listed: Mapping[str, Listed]

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items."""
        yield from backlog.compare(self.items.items(), self.request, self.listed, self.as_of_ms)


def plan_table(options: ReadOptions, columns: Sequence[str]) -> list[TableWork]:
    """Return the work of reading a table. Opens the stores and reads what planning needs."""
    parts = _PLANS[options.table](options)
    return [TableWork(part, tuple(columns)) for part in parts]


def _backlog(options: ReadOptions) -> Sequence[Part]:
    items, request, as_of_ms = _items(options)
    shares = backlog.split(items, cores())
    return [BacklogPart(PackedItems.of(share), request, as_of_ms) for share in shares]


def _compare(options: ReadOptions) -> Sequence[Part]:
    items, request, as_of_ms = _items(options)
    listed = {root: Listed.of(root) for root in {item.root for item in items}}
    return [
        ComparePart(
            PackedItems.of(share), request, as_of_ms, {i.root: listed[i.root] for i in share}
        )
        for share in backlog.split(items, cores())
    ]


def _items(options: ReadOptions) -> tuple[list[BacklogItem], BacklogRequest, int]:
    """Return the queues of groups, what is asked of them, and when they were looked at."""
    request = BacklogRequest(
        options.groups, options.subscriptions, options.lag_mode, options.by_tag
    )
    # Whether a topic is gone, only a snapshot of all topics can tell.
    snapshots = _snapshots(options, ".*")
    choice = _choice(options)
    items = backlog.plan_all(snapshots, request)
    if choice is not None:
        items = [item for item in items if choice.passes(item.topic, item.queue_id)]
    return items, request, max(snapshot.taken_ms for snapshot in snapshots)


def _of_store(options: ReadOptions) -> Sequence[Part]:
    choice = _choice(options)
    if options.table in _CONSUMED:
        snapshots = _snapshots(options, _NO_TOPIC)
    else:
        snapshots = select(selection(options), strict=options.on_corrupt == "fail")
    return [part for s in snapshots for part in store.plan(options.table, s, choice)]


def _tags(options: ReadOptions) -> Sequence[Part]:
    return tags.plan(message_slices(options), options.tags)


def _scheduled(options: ReadOptions) -> Sequence[Part]:
    choice, window = _choice(options), _window(options)
    return [
        part
        for snapshot in _snapshots(options, scheduled.PATTERN)
        for part in scheduled.plan(snapshot, window, choice, options.on_corrupt)
    ]


def _half_messages(options: ReadOptions) -> Sequence[Part]:
    choice = _choice(options)
    return [
        part
        for snapshot in _snapshots(options, half_messages.PATTERN)
        for part in half_messages.plan(snapshot, choice, options.on_corrupt)
    ]


def _retries(options: ReadOptions) -> Sequence[Part]:
    choice, window, groups = _choice(options), _window(options), group_test(options.groups)
    snapshots = _snapshots(options, retries.PATTERN)
    backlog.check_groups(options.groups, lambda: set().union(*map(retries.known_groups, snapshots)))
    return [
        part
        for snapshot in snapshots
        for part in retries.plan(snapshot, window, choice, groups, options.on_corrupt)
    ]


def _commits(options: ReadOptions) -> Sequence[Part]:
    roots, on_corrupt = _roots(options), options.on_corrupt
    return [part for root in roots for part in commits.plan(root, on_corrupt=on_corrupt)]


def _files(options: ReadOptions) -> Sequence[Part]:
    return [part for root in _roots(options) for part in files.plan(root)]


def _index(options: ReadOptions) -> Sequence[Part]:
    hashes = None
    if options.keys is not None:
        stores = selection(options)
        chosen = topic_test(stores)
        known = {t for root in stores.roots for t in topics_of(root, stores.commit_log)}
        hashes = hashes_of(filter(chosen, known), options.keys)
    window = _window(options)
    return [
        part
        for root in _roots(options)
        for part in index.plan(root, window, hashes, on_corrupt=options.on_corrupt)
    ]


def _verify(options: ReadOptions) -> Sequence[Part]:
    return [part for root in _roots(options) for part in verify.plan(root)]


_Plan: TypeAlias = Callable[[ReadOptions], Sequence[Part]]
_PLANS: Final[dict[str, _Plan]] = {
    "backlog": _backlog,
    "lagcompare": _compare,
    "queues": _of_store,
    "topics": _of_store,
    "offsets": _of_store,
    "tags": _tags,
    "scheduled": _scheduled,
    "halfmessages": _half_messages,
    "retries": _retries,
    "commits": _commits,
    "files": _files,
    "index": _index,
    "verify": _verify,
}


def _snapshots(options: ReadOptions, pattern: str) -> Sequence[Snapshot]:
    """Return a snapshot of each store, of the topics that ``pattern`` matches."""
    stores = replace(
        selection(options),
        subscribe=(),
        subscribe_pattern=pattern,
        assign=None,
        include_system_topics=True,
    )
    return select(stores, strict=options.on_corrupt == "fail")


def _roots(options: ReadOptions) -> list[StoreRoot]:
    stores = selection(options)
    named = zip(stores.roots, broker_names(stores), strict=True)
    roots = [open_root(root, stores.commit_log, name) for root, name in named]
    check_names_differ((root.broker_name, root.root) for root in roots)
    return roots


def _window(options: ReadOptions) -> Window:
    return Window(options.starting_timestamp, options.ending_timestamp)


def _choice(options: ReadOptions) -> RowChoice | None:
    """Return the rows that the topic options choose by name; None for all, topic or not."""
    stores = selection(options)
    check_topics(stores, consumed=options.table in _CONSUMED)
    named = options.subscribe or options.assign
    if named:
        return RowChoice(frozenset(named), options.assign)
    if options.subscribe_pattern is None and stores.include_system_topics:
        return None
    return RowChoice(pattern=options.subscribe_pattern, with_system=stores.include_system_topics)

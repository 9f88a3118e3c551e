"""The tables of the option ``table`` other than messages, planned as work of tasks.

The driver plans a table as parts that pickle; each part is the work of one task.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from mqstore import backlog
from mqstore.backlog import BacklogItem, BacklogRequest, Listed, PackedItems
from mqstore.backlog.request import group_test
from mqstore.read.lookup import hashes_of
from mqstore.read.selection import OpenStores
from mqstore.read.source import Origin
from mqstore.tables import (
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
from mqstore.tables.choice import RowChoice, Window, store_roots
from pyspark_mqlog.pruning import cores, message_slices
from pyspark_mqlog.read_options import ReadOptions

_CONSUMED: Final = frozenset({"backlog", "lagcompare", "offsets"})
"""Tables that also have rows of deleted topics in which a group has an offset."""


class Part(Protocol):
    """The part of a table that one task reads. Pickles."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with all columns of the table; only ``columns`` must have their values."""


@dataclass(frozen=True, slots=True)
class TableWork:
    """A part of a table, and the columns of the read."""

    part: Part
    columns: tuple[str, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with those columns."""
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
    """Queues of groups to compare with the numbers of RocketMQ's own tools."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    listed: Mapping[Origin, Listed]

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items."""
        yield from backlog.compare(self.items.items(), self.request, self.listed, self.as_of_ms)


def plan_table(options: ReadOptions, stores: OpenStores, columns: Sequence[str]) -> list[TableWork]:
    """Return the work of reading a table of the stores. Reads offsets and configuration."""
    parts = _PLANS[options.table](options, stores)
    return [TableWork(part, tuple(columns)) for part in parts]


def _backlog(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    items, request, as_of_ms = _items(options, stores)
    shares = backlog.split(items, cores())
    return [BacklogPart(PackedItems.of(share), request, as_of_ms) for share in shares]


def _compare(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    items, request, as_of_ms = _items(options, stores)
    used = {item.origin for item in items}
    listed = {s.origin: Listed.of(s.config) for s in stores.sources if s.origin in used}
    parts = []
    for share in backlog.split(items, cores()):
        of_share = {origin: listed[origin] for origin in {item.origin for item in share}}
        parts.append(ComparePart(PackedItems.of(share), request, as_of_ms, of_share))
    return parts


def _items(
    options: ReadOptions, stores: OpenStores
) -> tuple[list[BacklogItem], BacklogRequest, int]:
    """Return the queues of groups, the request, and when the offsets were read (epoch ms)."""
    request = BacklogRequest(
        options.groups, options.subscriptions or {}, options.lag_mode, options.by_tag
    )
    # A topic is deleted if a snapshot of all topics does not have it.
    snapshots = stores.held_of(lambda _: True)
    choice = _choice(options, stores)
    items = backlog.plan_all(stores.sources, snapshots, request)
    if choice is not None:
        items = [item for item in items if choice.passes(item.topic, item.queue_id)]
    return items, request, max(snapshot.taken_ms for snapshot in snapshots)


def _of_store(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    choice = _choice(options, stores)
    of_groups = options.table in _CONSUMED
    snapshots = stores.snapshots_of(lambda _: False) if of_groups else stores.held
    return [part for s in snapshots for part in store.plan(options.table, s, choice)]


def _groups(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    stores.snapshots_of(lambda _: False)  # Two brokers of one name are refused.
    chosen = _chosen_groups(options, stores)
    return [part for source in stores.sources for part in groups.plan_groups(source, chosen)]


def _subscriptions(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    stores.snapshots_of(lambda _: False)
    chosen, choice = _chosen_groups(options, stores), _choice(options, stores)
    return [
        part
        for source in stores.sources
        for part in groups.plan_subscriptions(source, chosen, choice)
    ]


def _chosen_groups(options: ReadOptions, stores: OpenStores) -> Callable[[str], object]:
    """Return the test of a group's name; raises UnknownGroupError for one that is not there."""
    backlog.check_groups(
        options.groups,
        lambda: {
            name
            for config in (source.config for source in stores.sources)
            for name in (*config.groups(), *(group for _, group in config.consumer_offsets()))
        },
    )
    return group_test(options.groups)


def _brokers(_options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    pairs = zip(stores.sources, stores.snapshots_of(lambda _: False), strict=True)
    return [part for source, snapshot in pairs for part in groups.plan_brokers(source, snapshot)]


def _tags(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    return tags.plan(message_slices(options, stores), options.tags)


def _scheduled(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    choice, window = _choice(options, stores), _window(options)
    snapshots = stores.snapshots_of(scheduled.is_source)
    return [
        part
        for source, snapshot in zip(stores.sources, snapshots, strict=True)
        for part in scheduled.plan(source, snapshot, window, choice, options.on_corrupt)
    ]


def _half_messages(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    choice = _choice(options, stores)
    snapshots = stores.snapshots_of(half_messages.is_source)
    return [
        part
        for source, snapshot in zip(stores.sources, snapshots, strict=True)
        for part in half_messages.plan(source, snapshot, choice, options.on_corrupt)
    ]


def _retries(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    choice, window = _choice(options, stores), _window(options)
    groups = group_test(options.groups)
    snapshots = stores.snapshots_of(retries.is_source)
    pairs = list(zip(stores.sources, snapshots, strict=True))
    backlog.check_groups(
        options.groups,
        lambda: set().union(*(retries.known_groups(source.config, s) for source, s in pairs)),
    )
    return [
        part
        for source, snapshot in pairs
        for part in retries.plan(source, snapshot, window, choice, groups, options.on_corrupt)
    ]


def _commits(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    roots, on_corrupt = store_roots(stores.selection), options.on_corrupt
    return [part for root in roots for part in commits.plan(root, on_corrupt=on_corrupt)]


def _files(_options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    return [part for root in store_roots(stores.selection) for part in files.plan(root)]


def _index(options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    hashes = None
    if options.keys is not None:
        hashes = hashes_of(filter(stores.topic_test(), stores.topics), options.keys)
    window = _window(options)
    return [
        part
        for root in store_roots(stores.selection)
        for part in index.plan(root, window, hashes, on_corrupt=options.on_corrupt)
    ]


def _verify(_options: ReadOptions, stores: OpenStores) -> Sequence[Part]:
    return [part for root in store_roots(stores.selection) for part in verify.plan(root)]


_Plan: TypeAlias = Callable[[ReadOptions, OpenStores], Sequence[Part]]
_PLANS: Final[dict[str, _Plan]] = {
    "backlog": _backlog,
    "lagcompare": _compare,
    "queues": _of_store,
    "topics": _of_store,
    "offsets": _of_store,
    "groups": _groups,
    "subscriptions": _subscriptions,
    "brokers": _brokers,
    "tags": _tags,
    "scheduled": _scheduled,
    "halfmessages": _half_messages,
    "retries": _retries,
    "commits": _commits,
    "files": _files,
    "index": _index,
    "verify": _verify,
}


def _window(options: ReadOptions) -> Window:
    return Window(options.starting_timestamp, options.ending_timestamp)


def _choice(options: ReadOptions, stores: OpenStores) -> RowChoice | None:
    """Return the rows that the topic options choose by name; None for all rows."""
    stores.check_topics(consumed=options.table in _CONSUMED)
    with_system = stores.selection.include_system_topics
    named = options.subscribe or options.assign
    if named:
        return RowChoice(frozenset(named), options.assign)
    if options.subscribe_pattern is None and with_system:
        return None
    return RowChoice(pattern=options.subscribe_pattern, with_system=with_system)

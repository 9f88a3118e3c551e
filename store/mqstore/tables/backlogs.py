"""The tables ``backlog`` and ``lagcompare``, planned as parts that tasks measure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore import backlog
from mqstore.backlog import BacklogItem, BacklogRequest, Listed, PackedItems
from mqstore.read.source import Origin, Snapshot
from mqstore.tables.owners import OF_GROUP
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, Table, TableRequest

_ROW_ORDER: Final = ("group", "brokerName", "topic", "queueId")


@dataclass(frozen=True, slots=True)
class BacklogPart:
    """Queues of groups to measure. Pickles into a task."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items; without a look at messages if no column needs one."""
        if not self.request.by_tag and backlog.BY_OFFSETS.issuperset(columns):
            yield from backlog.by_offsets(self.items.items(), self.as_of_ms)
            return
        yield from backlog.measure_in_batches(self.items.items(), self.request, self.as_of_ms)


@dataclass(frozen=True, slots=True)
class ComparePart:
    """Queues of groups to compare with the numbers of RocketMQ's own tools. Pickles into a task."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    listed: Mapping[Origin, Listed]

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the items."""
        yield from backlog.compare(self.items.items(), self.request, self.listed, self.as_of_ms)


def _measured(wanted: TableRequest) -> list[BacklogPart]:
    by_offsets = bool(wanted.columns) and backlog.BY_OFFSETS.issuperset(wanted.columns)
    with_members = wanted.by_tag or not by_offsets
    items, request, as_of_ms = planned_items(wanted, with_members=with_members)
    shares = backlog.split(items, wanted.cores)
    return [BacklogPart(PackedItems.of(share), request, as_of_ms) for share in shares]


def _compared(wanted: TableRequest) -> list[ComparePart]:
    items, request, as_of_ms = planned_items(wanted)
    used = {item.origin for item in items}
    pairs = {origin: {(i.topic, i.group) for i in items if i.origin == origin} for origin in used}
    sources = [source for source in wanted.stores.sources if source.origin in used]
    listed = {one.origin: Listed.of(one.config, pairs[one.origin]) for one in sources}
    parts = []
    for share in backlog.split(items, wanted.cores):
        of_share = {origin: listed[origin] for origin in {item.origin for item in share}}
        parts.append(ComparePart(PackedItems.of(share), request, as_of_ms, of_share))
    return parts


def planned_items(
    wanted: TableRequest, held: Sequence[Snapshot] | None = None, *, with_members: bool = True
) -> tuple[list[BacklogItem], BacklogRequest, int]:
    """Return the queues of groups, the request, and when the offsets were read (epoch ms).

    ``held`` is a snapshot of all that each store holds, if it was taken already; ``with_members``
    as in BacklogRequest.
    """
    request = BacklogRequest(
        wanted.groups,
        wanted.subscriptions,
        wanted.lag_mode,
        wanted.by_tag,
        with_members=with_members,
        system=wanted.system,
        late_after_ms=wanted.late_after_ms,
    )
    groups = request.group_test() if with_members else None
    # A topic is deleted if a snapshot of all topics does not have it.
    snapshots = wanted.stores.held_of(lambda _: True, groups) if held is None else held
    choice = wanted.choice(consumed=True)
    items = backlog.plan_all(wanted.stores.sources, snapshots, request)
    if choice is not None:
        items = [item for item in items if item.is_of(choice.passes)]
    return items, request, max(snapshot.taken_ms for snapshot in snapshots)


BACKLOG: Final = Table(
    "backlog",
    backlog.COLUMNS,
    _measured,
    options=BY_QUEUE | BY_GROUP | FROM_LOG | {"subscriptions", "lagMode", "byTag", "lateAfter"},
    order=_ROW_ORDER,
    owner="group",
    estimated=("bytesBehind", "bytesMatching"),
)
LAG_COMPARE: Final = Table(
    "lagcompare",
    (*backlog.COMPARE_COLUMNS, *OF_GROUP),
    _compared,
    options=BY_QUEUE | BY_GROUP | {"subscriptions"},
    order=_ROW_ORDER,
    owner="group",
    not_served="QUERY_CONSUME_QUEUE",
)

"""Consumer groups, what they subscribe to, and brokers: what a place tells beside its messages.

A store knows the groups that are configured or have committed an offset, and the expressions that
are SQL92. The broker of a cluster also tells how many consumers a group has now, and what those
subscribe to; of a group without consumers it tells neither.

Reference: SubscriptionGroupManager, ConsumerManager, ConsumerFilterManager.
"""

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.backlog.request import group_test, named_groups
from mqstore.backlog.unseen import warn_of_unseen
from mqstore.errors import StoreError, shown
from mqstore.format.names import as_text, is_system_group
from mqstore.read.broker_state import note_left_out
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.tables.choice import RowChoice
from mqstore.tables.columns import BROKER_NAME, Columns, TableRow, batches, schema
from mqstore.tables.owners import OF_GROUP
from mqstore.tables.table import BY_GROUP, BY_TOPIC, Table, TableRequest

_LOG = logging.getLogger(__name__)
_UNTOLD_GROUPS: Final = (
    "whether there are groups %s is not known: a RocketMQ proxy tells of those that have consumers "
    "there, or a topic of retries; the name servers' address tells of all"
)
GROUP_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group"),
    ("isConfigured", pa.bool_(), True,
     "the broker has a configuration of it; null: a proxy does not tell"),
    ("topics", pa.int32(), True, "topics that it has committed an offset in; null likewise"),
    ("consumers", pa.int32(), True, "consumers that are connected now; null: not known"),
    ("messageModel", pa.string(), True, "CLUSTERING or BROADCASTING; null: no consumer is known"),
    *OF_GROUP,
)  # fmt: skip
SUBSCRIPTION_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic that it subscribes to"),
    ("expression", pa.string(), False, "what it takes of it: tags, * for all, or SQL92"),
    ("expressionType", pa.string(), False, "TAG or SQL92"),
)
BROKER_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("place", pa.string(), False, "the store's directory, or the address of the master"),
    ("version", pa.string(), True, "of RocketMQ; null: a store has none"),
    ("minPhysicalOffset", pa.int64(), True, "byte of the CommitLog where it begins"),
    ("maxPhysicalOffset", pa.int64(), True,
     "where it ends: of a store the end of its last file, of a cluster what is written"),
    ("topics", pa.int32(), True, "configured topics"),
    ("groups", pa.int32(), True, "configured consumer groups"),
    ("away", pa.string(), True, "why the broker told nothing, all else is null then; null: it did"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """Rows that the plan has found already. Pickles into a task."""

    schema: pa.Schema
    rows: tuple[TableRow, ...]

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from batches(self.rows, self.schema)


def plan_groups(
    source: BoundsSource, chosen: Callable[[str], object], named: Set[str] = frozenset()
) -> list[PlannedRows]:
    """Return the groups of one broker that are ``chosen``, by name. Raises CorruptConfigError.

    Without those that this user may not see; raises the refusal of one that is ``named``.
    """
    committed: dict[str, int] = {}
    for _, group in source.config.consumer_offsets():
        committed[group] = committed.get(group, 0) + 1
    configured = source.config.groups()
    names = sorted(name for name in {*committed, *configured} if chosen(name))
    hidden: dict[str, StoreError] = {}
    online = source.config.online(names, hidden.__setitem__)
    note_left_out(hidden, named)
    reason = source.config.hidden_consumers()
    none = None if online is None or reason else 0
    is_whole = source.config.lists_groups
    rows = []
    for name in (name for name in names if name not in hidden):
        found = None if online is None else online.get(name)
        clients = found.clients if found else none
        model = found.model or None if found else None
        of_broker = (name in configured, committed.get(name, 0)) if is_whole else (None, None)
        rows.append((source.broker_name, name, *of_broker, clients, model, is_system_group(name)))
    if online is not None:
        warn_of_unseen(names, online, reason)
    return [PlannedRows(schema(GROUP_COLUMNS), tuple(rows))]


def plan_subscriptions(
    source: BoundsSource,
    chosen: Callable[[str], object],
    choice: RowChoice | None,
    named: Set[str] = frozenset(),
) -> list[PlannedRows]:
    """Return what is known of the subscriptions of the ``chosen`` groups of one broker.

    Without those that this user may not see; raises the refusal of one that is ``named``.
    """
    config = source.config
    known = {group for _, group in config.consumer_offsets()} | config.groups()
    names = sorted(filter(chosen, known))
    hidden: dict[str, StoreError] = {}
    found = config.filter_expressions(names, hidden.__setitem__)
    note_left_out(hidden, named)
    warn_of_unseen(names, {group for _, group in found}, config.hidden_consumers())
    rows = sorted(
        (source.broker_name, group, topic, one.expression, one.kind.upper())
        for (topic, group), one in found.items()
        if choice is None or choice.passes(topic, None)
    )
    return [PlannedRows(schema(SUBSCRIPTION_COLUMNS), tuple(rows))]


def plan_brokers(source: BoundsSource, snapshot: Snapshot) -> list[PlannedRows]:
    """Return the row of one broker; the snapshot may be of no topics."""
    told = source.broker(snapshot)
    if told.away is not None:
        nothing = (source.broker_name, as_text(told.place), *[None] * 5, as_text(str(told.away)))
        return [PlannedRows(schema(BROKER_COLUMNS), (nothing,))]
    config = source.config
    counts = len(config.topics()), len(config.groups())
    row = (
        source.broker_name,
        as_text(told.place),
        told.version,
        told.low,
        told.high,
        *counts,
        None,
    )
    return [PlannedRows(schema(BROKER_COLUMNS), (row,))]


def _planned_groups(request: TableRequest) -> list[PlannedRows]:
    named = named_groups(request.groups)
    if request.stores.is_proxied:  # Which others there are, it does not tell.
        _warn_of_untold_groups(sorted(named - request.known_groups()))
        chosen: Callable[[str], object] = group_test(request.groups, system=request.system)
    else:
        chosen = request.group_choice(request.known_groups)
    return [part for source, _ in request.sources() for part in plan_groups(source, chosen, named)]


def _warn_of_untold_groups(groups: Sequence[str]) -> None:
    if groups:
        _LOG.warning(_UNTOLD_GROUPS, ", ".join(map(shown, groups)))


def _planned_subscriptions(request: TableRequest) -> list[PlannedRows]:
    chosen, choice = request.group_choice(request.known_groups), request.choice()
    named = named_groups(request.groups)
    return [
        part
        for source, _ in request.sources()
        for part in plan_subscriptions(source, chosen, choice, named)
    ]


GROUPS: Final = Table(
    "groups",
    GROUP_COLUMNS,
    _planned_groups,
    options=BY_GROUP,
    order=("group", "brokerName"),
    owner="group",
    untold=("isConfigured", "topics"),
)
SUBSCRIPTIONS: Final = Table(
    "subscriptions",
    (*SUBSCRIPTION_COLUMNS, *OF_GROUP),
    _planned_subscriptions,
    options=BY_TOPIC | BY_GROUP,
    order=("group", "brokerName", "topic"),
    owner="group",
)
BROKERS: Final = Table(
    "brokers",
    BROKER_COLUMNS,
    lambda request: [part for pair in request.sources() for part in plan_brokers(*pair)],
    options=frozenset(),
    order=("brokerName",),
    not_served="GET_BROKER_RUNTIME_INFO",
)

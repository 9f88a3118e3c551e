"""A table as one declared value, and the request that its plan is made from.

The connector, the command and the documents take a table from ``mqstore.tables.catalog``; no
other module names one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, Protocol

import pyarrow as pa

from mqstore.audit.query import AuditOptions, OpenOther
from mqstore.audit.table_addresses import TableAddress
from mqstore.backlog.plan import check_groups
from mqstore.backlog.request import LATE_AFTER_MS, group_test
from mqstore.read.retention import RetentionPolicy
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot
from mqstore.tables.choice import RowChoice, StoreRoot, Window, store_roots
from mqstore.tables.columns import Columns, schema

ALWAYS: Final = frozenset(
    {"brokerName", "table", "storePathCommitLog", "storePathTiered", "columns", "onCorrupt"}
)
"""The options that every table takes."""
BY_TOPIC: Final = frozenset({"subscribe", "subscribePattern", "includeSystemTopics"})
BY_QUEUE: Final = BY_TOPIC | {"assign"}
BY_TIME: Final = frozenset({"startingTimestamp", "endingTimestamp"})
BY_GROUP: Final = frozenset({"groups", "includeSystemTopics"})
LOOKS: Final = frozenset({"lookAgain", "samples", "fileReservedTime", "brokerConf"})
"""The options of tables that compare with earlier looks, or foresee what retention deletes."""
FROM_LOG: Final = frozenset({"queues", "cacheDir", "readUnCommitted"})
"""The options of tables that can be read by the CommitLog alone."""
BY_RANGE: Final = BY_TIME | {
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingGroup",
    "tags",
    "failOnDataLoss",
}
"""The options of tables that are made of chosen messages."""


class Part(Protocol):
    """The part of a table that one task reads. Pickles."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with all columns of the table; only ``columns`` must have their values."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The stores whose rows are wanted, and what the options of a read choose of them.

    The fields are options of that name (see ``mqstore.request.read_options``); topics and queues
    are those of ``stores.selection``. ``slices`` returns the chosen ranges of messages, for tables
    that are made of messages; ``cores`` is the number of parallel tasks.
    """

    stores: OpenStores
    slices: Callable[[], Sequence[QueueSlice]]
    window: Window
    groups: str | None
    subscriptions: Mapping[str, Mapping[str, str]]
    lag_mode: str
    by_tag: bool
    tags: str
    keys: tuple[str, ...]
    on_corrupt: str
    cores: int
    trace_topic: str | None = None
    by_queue: bool = False
    interval_ms: int | None = None
    look_again_ms: int | None = None
    kept_ms: int | None = None
    system: bool = False
    """RocketMQ's own groups are chosen too, where they are not named."""
    late_after_ms: int = LATE_AFTER_MS
    columns: tuple[str, ...] = ()
    """The columns that the read wants; empty: all."""
    retention: RetentionPolicy | None = None
    samples: str | None = None
    against: OpenOther | TableAddress | None = None
    """Opens the other place of an audit, with what is chosen of this one; or it is a table."""
    audit: AuditOptions = field(default_factory=AuditOptions)

    def choice(self, *, consumed: bool = False) -> RowChoice | None:
        """Return the rows that the topic options choose by name; None for all rows.

        With ``consumed``, topics are known too in which a group has an offset. Raises
        UnknownTopicError.
        """
        self.stores.check_topics(consumed=consumed)
        chosen = self.stores.selection
        if chosen.subscribe or chosen.assign:
            return RowChoice(frozenset(chosen.subscribe or chosen.assign or ()), chosen.assign)
        if chosen.subscribe_pattern is None and chosen.include_system_topics:
            return None
        own = frozenset[str]() if chosen.include_system_topics else self.stores.own_topics
        return RowChoice(
            pattern=chosen.subscribe_pattern, with_system=chosen.include_system_topics, own=own
        )

    def group_choice(self, known: Callable[[], set[str]]) -> Callable[[str], bool]:
        """Return the test of a group's name; raises UnknownGroupError for one not ``known``."""
        check_groups(self.groups, known)
        return group_test(self.groups, system=self.system)

    def known_groups(self) -> set[str]:
        """Return the groups that a store has a configuration or a committed offset of."""
        return {
            name
            for config in (source.config for source in self.stores.sources)
            for name in (*config.groups(), *(group for _, group in config.consumer_offsets()))
        }

    def sources(
        self, topics: Callable[[str], bool] = lambda _: False
    ) -> list[tuple[BoundsSource, Snapshot]]:
        """Return each broker with a snapshot of its queues of those topics."""
        snapshots = self.stores.snapshots_of(topics)
        return list(zip(self.stores.sources, snapshots, strict=True))

    def roots(self) -> list[StoreRoot]:
        """Return the stores in directories; raises as ``store_roots``."""
        return store_roots(self.stores.selection)


@dataclass(frozen=True, slots=True)
class Streamed:
    """How a stream reads a table whose rows lie in the messages of one topic.

    The topic is ``topic``, or what the option ``option`` names. ``part`` makes the part of a task
    from slices of its queues, and the options keys and onCorrupt.
    """

    topic: str
    option: str
    part: Callable[[tuple[QueueSlice, ...], tuple[str, ...], str], Part]


@dataclass(frozen=True)
class Table:
    """One value of the option ``table``.

    ``options`` are the names of the options that it takes beside those that every table takes.
    ``order`` are the columns by which the command sorts its rows; empty: as they are planned.
    ``owner`` is the column with the topic or the group that a row is about: rows of RocketMQ's own
    are left out unless they are named or includeSystemTopics is set, and isSystem tells them.
    ``estimated`` are the columns that a cluster estimates, if the messages are not pulled for
    another column. ``of_files`` is the reason why a cluster does not have the table; empty where it
    has. ``streamed``: a stream can read it too.
    ``needs`` is an option that it cannot be read without.
    ``of_users``: it is made of messages, and needs nothing else of brokers.
    ``not_served`` is the request of brokers that it needs and no proxy serves, if there is one.
    ``untold`` are columns that are null through a proxy, as it does not tell them.
    """

    name: str
    columns: Columns
    plan: Callable[[TableRequest], Sequence[Part]]
    options: frozenset[str]
    order: tuple[str, ...] = ()
    owner: Literal["topic", "group", ""] = ""
    estimated: tuple[str, ...] = ()
    of_files: str = ""
    streamed: Streamed | None = None
    needs: str = ""
    of_users: bool = False
    not_served: str = ""
    untold: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        absent = {*self.order, *self.estimated, *self.untold} - {name for name, *_ in self.columns}
        if absent:
            raise ValueError(f"table {self.name} has no columns {sorted(absent)}")

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return schema(self.columns)

    @property
    def is_of_topics_of_groups(self) -> bool:
        """Whether it is about groups, or their traces, in topics: both are named to a proxy."""
        return self.takes("subscribe") and (self.owner == "group" or self.takes("traceTopic"))

    def takes(self, option: str) -> bool:
        """Tell whether an option, by its name, is for this table."""
        return option in ALWAYS or option in self.options

"""Which stores and which rows of them a table is about: by root, by topic and queue, by time."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mqstore.errors import CorruptConfigError
from mqstore.files.base.store_dir import Root, StoreDir, open_dir
from mqstore.files.store import Store
from mqstore.format.names import is_system_topic
from mqstore.read.offsets import AtTimestamp, Earliest, Latest, Position, resolve
from mqstore.read.queues import QueueBounds
from mqstore.read.selection import Selection, broker_names, check_names_differ
from mqstore.read.snapshot import folder_name, name_of
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of ``topics`` and, if ``assign`` is given, of its queues. Pickles.

    Without ``topics``, the rows of any topic, there or gone, whose whole name ``pattern``
    matches; of RocketMQ's own only ``with_system``: ``own`` are those that have names of brokers.
    """

    topics: frozenset[str] | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    pattern: str | None = None
    with_system: bool = True
    own: frozenset[str] = frozenset()

    def passes(self, topic: str | None, queue_id: int | None) -> bool:
        """Tell whether a row of that topic and queue (None: the table does not know) is wanted."""
        if topic is None or not self._has(topic):
            return False
        return self.assign is None or queue_id is None or queue_id in self.assign[topic]

    def _has(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if not self.with_system and (is_system_topic(topic) or topic in self.own):
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Window:
    """Messages stored at or after ``start_ms`` and before ``end_ms``, where given (epoch)."""

    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """A store by its place alone, for tables that show a store in whatever state it is. Pickles."""

    place: StoreDir
    broker_name: str

    @property
    def root(self) -> str:
        """The store's root directory."""
        return self.place.root


def open_root(
    root: Root, commit_log: Sequence[str] = (), broker_name: str | None = None
) -> StoreRoot:
    """Return the store at ``root``; a topics.json that cannot be read is no obstacle.

    Raises StoreNotFoundError, NotAStoreError, UnsupportedStoreError.
    """
    store = Store(open_dir(root, commit_log, in_rocksdb=True, in_batches=True))
    if broker_name is None:
        try:
            broker_name = name_of(store)
        except CorruptConfigError:
            broker_name = folder_name(store)
    return StoreRoot(store.place, broker_name)


def store_roots(selection: Selection) -> list[StoreRoot]:
    """Return the stores in directories that are chosen.

    Raises as ``open_root``, and InvalidOptionError for two of one name.
    """
    named = zip(selection.roots, broker_names(selection), strict=True)
    roots = [open_root(root, selection.commit_log, name) for root, name in named]
    check_names_differ((one.broker_name, one.root) for one in roots)
    return roots


def chosen_rows(
    choice: RowChoice | None, rows: pa.RecordBatch, topic: str, queue_id: str | None = None
) -> pa.RecordBatch:
    """Return the rows that are wanted by their columns of a topic and of a queue, if it has one."""
    if choice is None:
        return rows
    topics = rows[topic].to_pylist()
    queue_ids = [None] * len(topics) if queue_id is None else rows[queue_id].to_pylist()
    passes = [choice.passes(*place) for place in zip(topics, queue_ids, strict=True)]
    return rows.filter(pa.array(passes, pa.bool_()))


def slices(
    source: BoundsSource,
    snapshot: Snapshot,
    topics: Callable[[str], bool],
    window: Window | None = None,
) -> list[QueueSlice]:
    """Return what the window leaves of the queues of those topics, none empty.

    Raises CorruptStoreError where a record that a bisection needs cannot be read.
    """
    window = window or Window()
    start: Position = Earliest() if window.start_ms is None else AtTimestamp(window.start_ms)
    end: Position = Latest() if window.end_ms is None else AtTimestamp(window.end_ms)

    def ask(queue: QueueBounds) -> tuple[Position, Position]:
        return (start, end) if topics(queue.topic) else (Latest(), Latest())

    return slices_of(snapshot, resolve(source, snapshot, ask))

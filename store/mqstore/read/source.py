"""The interfaces of an origin of messages: its bounds, its records, its tail; and their values.

An ``Origin`` is a small value that pickles into tasks. On the driver it opens as a
``BoundsSource``: queues, what they hold, where a time begins, how far groups are. In a task it
opens as a ``RecordSource``: ranges of queues to checked records. All above knows these only.

``Snapshot``, ``QueueSlice`` and ``Weighed`` are what passes between them: plain values that name
their origin.

A store's directory has them in ``directory``, ``tail`` and ``store_records``, or made from its log
in ``log_directory`` and ``log_records``; a running cluster in ``mqstore.live``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from mqstore.derive.records import FetchedRecords
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.log.commit_log import Block
from mqstore.format.arrays import Int64s, Mask, Span, TopicQueue
from mqstore.read.broker_state import BrokerFacts, BrokerState
from mqstore.read.heads import LocatedRecord
from mqstore.read.queues import QueueBounds, QueueRange, Weight
from mqstore.read.settings import ScanSettings
from mqstore.read.tags import TagFilter
from mqstore.read.units import CHUNK_UNITS, UnitBatch


class Origin(Protocol):
    """A place that holds messages. A small value: it pickles, has a hash and compares by fields."""

    @property
    def name(self) -> str:
        """What errors and warnings call it: the root of a store."""

    def bounds(self, broker_name: str | None = None) -> "BoundsSource":
        """Open it to plan a read; ``broker_name`` replaces the name that it has itself.

        Raises StoreNotFoundError, NotAStoreError, UnsupportedStoreError.
        """

    def records(self, read_mode: str = "pread") -> "RecordSource":
        """Open it to read records. Raises as ``bounds``, InvalidOptionError for a read mode."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queues of one broker at one moment. Plain values: it pickles into tasks.

    ``low`` and ``high`` are the physical offsets of the CommitLog's first byte and of the end
    of its last file; ``taken_ms`` is epoch ms, of a point when it was begun; ``is_unclean`` says
    that ``abort`` was there.
    """

    origin: Origin
    broker_name: str
    low: int
    high: int
    queues: tuple[QueueBounds, ...]
    taken_ms: int
    is_unclean: bool
    refused: tuple[tuple[str, StoreError], ...] = ()
    """Topics that are left out, as this user may not see them or they cannot be read, and why."""

    def queue(self, topic: str, queue_id: int) -> QueueBounds | None:
        """Return the bounds of one queue, or None if it has no ConsumeQueue."""
        wanted = (topic, queue_id)
        return next((q for q in self.queues if (q.topic, q.queue_id) == wanted), None)


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Queue offsets [start, end) of one queue of one broker. Plain values: it pickles."""

    origin: Origin
    broker_name: str
    topic: str
    queue_id: int
    start: int
    end: int
    weight: Weight | None = field(default=None, compare=False, repr=False)
    """What is known of its bytes before it is weighed; does not travel."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A slice and how its bytes grow: ``bytes[i]`` CommitLog bytes before ``edges[i]``.

    ``edges`` ascend from the slice's start to its end; about there, records of the slice lie at
    the physical offsets ``places``, which never go back.
    """

    slice: QueueSlice
    edges: Int64s
    bytes: Int64s
    places: Int64s
    again: "Callable[[], Weighed] | None" = None
    """Weighs it exactly: not done yet for a few bytes, which most often are in one partition."""

    @property
    def total(self) -> int:
        """Bytes of the whole slice."""
        return int(self.bytes[-1])


def slices_of(
    snapshot: Snapshot, ranges: Iterable[tuple[QueueBounds, int, int]] | None = None
) -> list[QueueSlice]:
    """Return the slices of (queue, start, end) ranges, half-open; of all that is held if None.

    Empty ranges are left out, and what tiered storage has that was not named.
    """
    if ranges is None:
        ranges = ((queue, queue.low, queue.high) for queue in snapshot.queues)
    ranges = ((queue, max(start, queue.readable_low), end) for queue, start, end in ranges)
    origin, broker_name = snapshot.origin, snapshot.broker_name
    return [
        QueueSlice(origin, broker_name, queue.topic, queue.queue_id, start, end, queue.weight)
        for queue, start, end in ranges
        if start < end
    ]


class BoundsSource(Protocol):
    """The queues of one broker, open to plan a read. Nothing of it travels; ``close`` it."""

    @property
    def origin(self) -> Origin:
        """What it was opened from."""

    @property
    def broker_name(self) -> str:
        """The broker's name. Raises CorruptConfigError."""

    @property
    def config(self) -> BrokerState:
        """What the broker knows beside messages."""

    def close(self) -> None:
        """Close what is open."""

    def topics(self) -> set[str]:
        """Return the topics that are configured or have a queue."""

    def topic_configs(self) -> Mapping[str, TopicConfig]:
        """Return ``config.topics()``; empty where it cannot be known, which is no error."""

    def broker(self, snapshot: Snapshot) -> BrokerFacts:
        """Return what is known of the broker itself; ``snapshot`` is one of its own."""

    def timers_delivered_ms(self) -> int:
        """Return the time (epoch ms) up to which timers were delivered; 0 if that is not known."""

    def snapshot(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return what the queues of those topics (of all if None) hold now.

        With ``strict``, damage that shows at this is a CorruptStoreError; without it, it comes up
        record by record in the scan.
        """

    def held(self, topics: Callable[[str], bool] | None = None, *, strict: bool = True) -> Snapshot:
        """As ``snapshot``, also of queues and topics whose messages cannot be read from here."""

    def first_at(self, queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        """Return for each queue the first offset held that was stored at or after its time.

        Times are epoch ms, compared with storeTimestamp; ``high`` where there is no such message.
        Raises CorruptStoreError where a record on the way to it cannot be read.
        """

    def weigh(self, slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        """Return slices of this origin with about how many bytes they have.

        With ``strict``, units that are missing are a CorruptStoreError; without it such messages
        weigh nothing, and the scan reports them.
        """

    def narrow(
        self, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
    ) -> list[QueueSlice]:
        """Return the parts of slices of this origin that can hold a message with a key or id.

        Logs a warning with the number of messages that no index covers; they stay. In the order
        of topic, queue, start.
        """


class Fetched(Protocol):
    """A batch of units, and their records in either of two ways. It stands until the next one."""

    @property
    def units(self) -> UnitBatch:
        """The units; what is done with them is left to the caller."""

    def blocks(self) -> Callable[[], Iterator[Block]] | None:
        """Return what gives the records of all units as they lie in a CommitLog, unchecked.

        The function yields blocks, each of which stands until the next; it raises
        CorruptStoreError if a file ends before its size says, and OSError. None if the records
        are not to be had so: one cannot be read from where its unit says, or is larger than
        LARGE_BYTES and does not say so itself.
        """

    def checked(self, some: UnitBatch) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield ``some`` of the units, or all of them, with their records, checked.

        Each row of units has a record or a problem, and problems are left to the caller. Headers
        stand until the next ones. Raises DataLossError as ``RecordSource.fetched``.
        """

    def raw(self, lost: UnitBatch, most: int) -> Iterator[tuple[UnitBatch, list[bytes]]]:
        """Yield units that have a problem, with the bytes found in place of their records.

        At most the size that the unit says, fewer where less is there; about ``most`` bytes, or
        those of one unit, at a time. The units are of the records that ``checked`` gave last.
        """


class RecordSource(Protocol):
    """The records of one origin, open in a task. Nothing of it travels; ``close`` it."""

    @property
    def low(self) -> int:
        """The physical offset of the first byte held: what lies before it has expired."""

    def close(self) -> None:
        """Close what is open."""

    def fetched(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[Fetched]:
        """Yield the units of ``slices`` with their records, in batches bounded by ``settings``.

        Units that ``settings.tags`` excludes by hash are left out. What is damaged beside records
        goes to ``report``. Raises DataLossError at messages that expired since the slices were
        planned, if ``settings.fail_on_data_loss``, else logs it.
        """

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that says ``reason`` about the record there."""

    @property
    def has_cheap_units(self) -> bool:
        """Whether a unit costs much less than its record: then messages are counted by units."""

    def sizes(self, ranges: Sequence[QueueRange]) -> list[int]:
        """Return the bytes of the records of each range; about, where ``has_cheap_units`` is false.

        What is missing weighs nothing.
        """

    def at(self, queue: TopicQueue, queue_offsets: Sequence[int]) -> UnitBatch | None:
        """Return what ``store_timestamps`` takes for those queue offsets, which ascend.

        None if one of them is known to be missing.
        """

    def tagged(
        self,
        queue: QueueRange,
        wanted: TagFilter | None,
        keep: Callable[[Int64s], Mask] | None = None,
    ) -> Iterator[tuple[UnitBatch, pa.StringArray]]:
        """Yield the messages of a range that pass ``wanted`` by hash, and the TAGS of each.

        Null where a message has none or cannot be read; of those that can be told apart by their
        tagsCodes, only what ``keep`` passes. Raises as ``store_timestamps``.
        """

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Yield the units of queue offsets [start, end), at most ``most`` at a time, in order.

        What is missing is left out; of a unit that no broker would follow the size is 0.
        """

    def unit_files(self, queue: TopicQueue) -> list[Span]:
        """Return the queue offsets [start, end) that each ConsumeQueue file has room for."""

    def store_timestamps(self, units: UnitBatch) -> Int64s:
        """Return the storeTimestamp in ms of each record; NO_TIMESTAMP if it cannot be read.

        Raises FileNotFoundError if records expire meanwhile.
        """

    def tags(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.StringArray]]:
        """Yield rows of ``units`` and the TAGS of their records, null if they have none.

        Rows of records that cannot be read never come. Raises as ``store_timestamps``.
        """

    def properties(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.MapArray]]:
        """As ``tags``, with all properties."""

    def locate(self, topics: Mapping[int, str]) -> Mapping[int, LocatedRecord]:
        """Return the records that start at those places, by place, in ascending order.

        ``topics`` has by physical offset the topic that the record should be of, or an empty
        text; it may be of another. Records that this user may not see are left out with a
        warning. Raises as ``store_timestamps``.
        """

    def places_of_key(self, topic: str, key: str) -> list[int]:
        """Return the places, ascending, of records that may be of that topic and have that key."""


def records_of(
    source: RecordSource,
    slices: Sequence[QueueSlice],
    settings: ScanSettings,
    report: Callable[[CorruptStoreError], None],
) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
    """Yield the records of ``slices``, checked; raises as ``RecordSource.fetched``."""
    for fetched in source.fetched(slices, settings, report):
        yield from fetched.checked(fetched.units)

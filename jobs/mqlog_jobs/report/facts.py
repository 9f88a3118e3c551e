"""The facts of a report as plain values: no store, no HTML. Times are ms since the epoch.

A part that could not be read is an ``Unread``, with the reason in place of the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from mqstore.tables.asides import Aside

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of the report that could not be read, and why."""

    reason: str


Found: TypeAlias = Part | Unread


@dataclass(frozen=True, slots=True)
class Looked:
    """How many of the messages were looked at; the rest is estimated from them."""

    messages: int
    of: int

    @property
    def is_sample(self) -> bool:
        """Tell whether some were not looked at."""
        return self.messages < self.of


@dataclass(frozen=True, slots=True)
class BrokerHeld:
    """One broker: the messages and queues of users' topics, the first and the last store time.

    ``system_messages`` and ``system_queues`` are those of RocketMQ's own topics. ``name`` is the
    directory, or of a running broker (``is_live``) its address, ``version`` its release; None
    where it is not known.
    """

    name: str
    broker: str
    messages: int
    queues: int
    system_messages: int
    system_queues: int
    log_bytes: int
    first_ms: int | None
    last_ms: int | None
    is_unclean: bool
    is_live: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class TopicHeld:
    """A topic over all brokers. ``is_weighed``: its bytes are estimated from a sample."""

    name: str
    queues: int
    messages: int
    bytes: int
    is_weighed: bool
    is_system: bool
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class TagHeld:
    """How many messages have a tag (None: no tag), and the bytes of their records."""

    tag: str | None
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a range of messages, the most frequent first; ``others`` are left out."""

    tags: tuple[TagHeld, ...]
    others: int
    looked: Looked


@dataclass(frozen=True, slots=True)
class Behind:
    """A group in a topic, over all brokers and queues.

    ``lag`` are the messages held and not consumed, ``bytes`` those of their records
    (``is_weighed``: estimated from some of them); ``oldest_ms`` is the store time of the
    first one, ``consumed_ms`` of the last one consumed. ``consumers`` are those of the group, None
    where it is not known.
    """

    group: str
    topic: str
    queues: int
    lag: int
    bytes: int
    is_weighed: bool
    expired: int
    oldest_ms: int | None
    consumed_ms: int | None
    statuses: tuple[str, ...]
    consumers: int | None = None
    tags: Tags | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages stored in each of n steps of time, by topic, those with the most first.

    ``queues_looked`` of ``queues`` were bisected, the others of their topics estimated from them;
    ``left_out`` topics with ``messages_left_out`` messages have none that could be.
    """

    start_ms: int
    step_ms: int
    counts: dict[str, list[int]]
    queues_looked: int
    queues: int
    left_out: int = 0
    messages_left_out: int = 0

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return max(map(len, self.counts.values()), default=0)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The rates of a group, over all its queues, and the rows of ``table=forecast`` to be told.

    ``stored`` and ``consumed`` are messages a second. ``zero`` is the queue that is empty last,
    None if one is not foreseen; ``loss`` the one that loses a message first, None if none does.
    """

    stored: float | None
    consumed: float | None
    zero: Mapping[str, object] | None
    loss: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class LagHistory:
    """The lag of each group at the last sample of each step, the longest first; None: no sample.

    ``taken_ms`` are the times of the first and the last of all ``samples``; ``ahead`` others are of
    later than now, and left out.
    """

    start_ms: int
    step_ms: int
    lags: dict[str, list[int | None]]
    samples: int
    taken_ms: tuple[int, int]
    ahead: int
    foreseen: Found[Mapping[str, Foreseen]]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Rows of ``table=latency``, of messages stored since ``since_ms``; None: of all.

    ``traces`` are the trace messages that were read, ``messages`` those that were looked at, of all
    of users' topics; ``topics_left_out`` were not.
    """

    rows: tuple[Mapping[str, object], ...]
    since_ms: int | None
    traces: Looked
    messages: Looked
    topics_left_out: int


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file: its length and the bytes in use, None if that is not known."""

    broker: str
    path: str
    size: int
    used: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class FileKind:
    """All files of one kind of one broker."""

    broker: str
    kind: str
    files: int
    size: int
    used: int


@dataclass(frozen=True, slots=True)
class Files:
    """The files by kind, those of the CommitLog, and those with a problem.

    Of the latter two the first are listed, and all counted.
    """

    kinds: tuple[FileKind, ...]
    log: tuple[StoreFile, ...]
    log_files: int
    wrong: tuple[StoreFile, ...]
    wrong_files: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken rule that verify found."""

    broker: str
    severity: str
    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What verify found in each store that it checked; ``skipped`` were not, for the reason."""

    findings: tuple[Broken, ...] = ()
    errors: int = 0
    warnings: int = 0
    checked: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All of a report; ``made_ms`` is when the stores were looked at.

    ``asides`` are what waits beside the backlog of each group; ``history`` is that of samples,
    ``latency`` that of traces, None without any.
    """

    made_ms: int
    version: str
    places: tuple[BrokerHeld, ...]
    topics: Found[tuple[TopicHeld, ...]]
    tags: Found[dict[str, Tags]]
    behind: Found[tuple[Behind, ...]]
    rates: Found[Rates]
    asides: Mapping[str, Aside]
    files: Found[Files]
    verified: Verified
    history: LagHistory | None = None
    latency: Found[Latencies] | None = None

    @property
    def has_stores(self) -> bool:
        """Tell whether some of the brokers are directories, and not all of them run."""
        return not all(place.is_live for place in self.places)

    @property
    def has_cluster(self) -> bool:
        """Tell whether some of the brokers run and were asked over the network."""
        return any(place.is_live for place in self.places)

"""What the verdicts about a consumer group are made of. Plain values; None is what is not known."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mqstore.backlog.schema import AHEAD, SQL92, TOPIC_GONE
from mqstore.read.broker_state import GroupMember
from mqstore.verdicts.loss import Loss


@dataclass(frozen=True, slots=True)
class Look:
    """A queue some time ago: the group's offset, the queue's end, and ms since then.

    ``rest_ms`` is the longest time for which the offset stood and then moved, as looks show it.
    """

    consumer_offset: int | None
    broker_offset: int
    ms_ago: int
    rest_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue of a group, as a row of the backlog has it, with more.

    ``lag`` counts messages held and not consumed, ``matching`` those of them that the group takes.
    ``waiting_since_ms`` is when the first message of ``lag`` was stored, ``last_consumed_ms`` when
    the one before the group's offset was (epoch). ``received`` are the messages of the last
    RECENT_MS; ``before`` is an earlier look. ``pops``: acknowledgements move the group, and its
    offset tells little. ``loss`` is when the broker will delete the first
    message of ``lag``, with its file.
    """

    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int | None
    min_offset: int
    lag: int
    matching: int
    expired: int
    status: str
    subscription: str | None = None
    expression_type: str | None = None
    consumers: int | None = None
    waiting_since_ms: int | None = None
    last_consumed_ms: int | None = None
    received: int | None = None
    before: Look | None = None
    pops: bool = False
    loss: Loss | None = None

    @property
    def start(self) -> int:
        """The queue offset of the first message of ``lag``."""
        return min(max(self.consumer_offset or 0, self.min_offset), self.broker_offset)

    @property
    def waits_at_least_ms(self) -> int | None:
        """For how long the first message of ``lag`` waits at least, as it was there at the look."""
        before = self.before
        is_older = before is not None and self.lag > 0 and self.start < before.broker_offset
        return before.ms_ago if before is not None and is_older else None

    @property
    def is_ahead(self) -> bool:
        """Whether the group's offset is beyond the queue's end."""
        return self.status == AHEAD

    @property
    def is_unattended(self) -> bool:
        """Whether no consumer of the group is connected to the broker."""
        return self.consumers == 0

    @property
    def consumed_since(self) -> int | None:
        """How far the group's offset moved since the earlier look; None without one."""
        if self.before is None or self.before.consumer_offset is None:
            return None
        return None if self.consumer_offset is None else (
            self.consumer_offset - self.before.consumer_offset
        )  # fmt: skip

    @property
    def stands(self) -> bool:
        """Whether the group's offset did not move since the earlier look: no look, no."""
        return self.consumed_since == 0 and not self.pops

    @property
    def stored_since(self) -> int | None:
        """How many messages were stored since the earlier look; None without one."""
        return None if self.before is None else self.broker_offset - self.before.broker_offset

    @property
    def filter(self) -> str | None:
        """The expression by which the group leaves messages out; None: it takes all, as known."""
        takes_all = self.subscription in {None, "*", ""} and self.expression_type != SQL92
        return None if takes_all else self.subscription


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The queues of a group in a topic; ``as_of_ms`` is when the offsets were read (epoch)."""

    group: str
    topic: str
    as_of_ms: int
    queues: tuple[QueueFacts, ...]

    @property
    def lag(self) -> int:
        """Messages held and not consumed."""
        return sum(queue.lag for queue in self.queues)

    def waits_ms(self, queue: QueueFacts) -> int:
        """Return for how long the first unconsumed message of a queue waits; 0 without one."""
        since = queue.waiting_since_ms
        return 0 if since is None else max(0, self.as_of_ms - since)

    @property
    def longest_wait_ms(self) -> int:
        """For how long the oldest unconsumed message waits."""
        return max(map(self.waits_ms, self.queues), default=0)

    @property
    def is_gone(self) -> bool:
        """Whether the topic is not there any more."""
        return all(queue.status == TOPIC_GONE for queue in self.queues)


@dataclass(frozen=True, slots=True)
class Retried:
    """A message that a group failed on and will get again: ``times`` failed deliveries so far."""

    msg_id: str
    keys: str | None
    topic: str | None
    times: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """All that is known of a group. ``newest_dead_ms`` is when the last dead letter was stored.

    ``members`` are None where not every consumer of the group could be asked.
    """

    group: str
    topics: tuple[TopicFacts, ...] = ()
    dead_letters: int = 0
    newest_dead_ms: int | None = None
    retried: tuple[Retried, ...] = ()
    members: tuple[GroupMember, ...] | None = None

    def queues(self) -> Iterator[tuple[TopicFacts, QueueFacts]]:
        """Yield each queue with its topic."""
        for topic in self.topics:
            for queue in topic.queues:
                yield topic, queue


@dataclass(frozen=True, slots=True)
class Verdict:
    """One reason why a group is behind.

    ``numbers`` are what the rule compared; ``next`` is a command, whose word PLACE stands for the
    place that was read. Queue, broker and topic are None where it is about all of them.
    """

    word: str
    group: str
    evidence: str
    numbers: Mapping[str, int]
    next: str
    topic: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None

    @classmethod
    def of_queue(
        cls, word: str, topic: TopicFacts, queue: QueueFacts, shows: tuple[str, dict[str, int], str]
    ) -> "Verdict":
        """Return a verdict about one queue; ``shows`` are evidence, numbers and the command."""
        return cls(word, topic.group, *shows, topic.topic, queue.broker_name, queue.queue_id)

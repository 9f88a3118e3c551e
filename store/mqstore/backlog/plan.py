"""Which queues a backlog has rows for: group × topic × queue, on the driver, nothing measured.

The groups are those of consumerOffset.json, online or not, and those that ``subscriptions``
names; a group's topics likewise. A topic's queues are 0..readQueueNums−1 of topics.json,
those on disk and those the group has an offset for, so that a queue nobody ever committed
has a row too. What a group subscribes to is what ``subscriptions`` says, else its expression in
consumerFilter.json, where brokers keep those that are SQL92.

Reference: AdminBrokerProcessor#getConsumeStats, ConsumerOffsetManager#whichTopicByConsumer.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from mqstore.arrays import Int32s, Int64s, Mask
from mqstore.backlog.request import (
    ANY_TOPIC,
    OFFSET,
    BacklogRequest,
    group_names,
    group_pattern,
    group_test,
)
from mqstore.backlog.schema import AHEAD, EXPIRED, NEVER_COMMITTED, OK, SQL92, TAG, TOPIC_GONE
from mqstore.errors import InvalidOptionError, UnknownTopicError, shown
from mqstore.files.config import broker_config
from mqstore.files.config.broker_config import FilterExpression, TopicConfig
from mqstore.options.grammar import near
from mqstore.read.snapshot import Snapshot
from mqstore.read.tags import TagFilter, parse_tags

MAX_ITEMS: Final = 5_000_000
_UNITS_PER_TASK: Final = 1_000_000  # about 0.1 s of ConsumeQueue, some seconds of tag strings
_ITEM_UNITS: Final = 100  # what a row costs beside its units, in units


@dataclass(frozen=True, slots=True)
class BacklogItem:
    """One queue of one group: what a task needs to measure it. [low, high) is held."""

    root: str
    commit_log: tuple[str, ...]
    broker_name: str
    group: str
    topic: str
    queue_id: int
    low: int
    high: int
    consumer_offset: int | None = None
    subscription: str | None = None
    topic_gone: bool = False
    expression_type: str | None = None

    @property
    def consumed(self) -> int:
        """The committed offset as consumerProgress shows it: at least 0."""
        return max(self.consumer_offset or 0, 0)

    @property
    def start(self) -> int:
        """The first unconsumed queue offset that is held; ``high`` if there is none."""
        return min(max(self.consumed, self.low), self.high)

    @property
    def diff(self) -> int:
        """The number consumerProgress prints: never clamped, negative if the group is ahead."""
        return self.high - self.consumed

    @property
    def lag(self) -> int:
        """Messages held and not consumed."""
        return self.high - self.start

    @property
    def expired(self) -> int:
        """Messages that retention took before they were consumed: diff = lag + expired."""
        return max(0, self.low - self.consumed)

    @property
    def last_consumed(self) -> int | None:
        """The queue offset before the committed one, if it is held."""
        return self.consumed - 1 if self.low < self.consumed <= self.high else None

    @property
    def status(self) -> str:
        """One word, the most telling that is true."""
        if self.topic_gone:
            return TOPIC_GONE
        if self.consumer_offset is None:
            return NEVER_COMMITTED
        if self.consumed > self.high:
            return AHEAD
        return EXPIRED if self.expired else OK

    @property
    def tag_expression(self) -> str | None:
        """The subscription if it is by tag; of others nothing is evaluated: all pass."""
        return None if self.expression_type == SQL92 else self.subscription

    def tag_filter(self, lag_mode: str) -> TagFilter | None:
        """Return what the subscription lets pass; None for every message."""
        return None if lag_mode == OFFSET else parse_tags(self.tag_expression)


def plan(snapshot: Snapshot, request: BacklogRequest) -> list[BacklogItem]:
    """Return the items of one store, in the order of broker, group, topic, queue.

    The snapshot must be of all topics. Raises UnknownTopicError for a group, or a topic of a
    subscription, that the store does not know, and what reading config/ raises. Subscriptions
    may name a group that never committed, if they name topics.
    """
    return plan_all([snapshot], request)


def plan_all(snapshots: Sequence[Snapshot], request: BacklogRequest) -> list[BacklogItem]:
    """As ``plan``, of several stores: a name must be known to one of them."""
    brokers = [_Broker.of(snapshot) for snapshot in snapshots]
    _check_groups(brokers, request)
    _check_topics(brokers, request)
    items: list[BacklogItem] = []
    for broker in brokers:
        for item in broker.items(request):
            items.append(item)
            if len(items) > MAX_ITEMS:
                expected = f"the stores have more than {MAX_ITEMS:,} rows: name fewer groups"
                raise InvalidOptionError("groups", request.groups or "", expected)
    return items


def split(items: Sequence[BacklogItem], parallelism: int) -> list[tuple[BacklogItem, ...]]:
    """Return the items in at most ``parallelism`` shares of about equal work, none empty.

    The items of one queue stay together, for they are measured in one pass over it; small
    queues are packed, because a task costs more than they do. In a share the order is kept.
    """
    queues: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        queues[item.root, item.topic, item.queue_id].append(number)
    weights = {
        key: max(items[number].lag for number in numbers) + _ITEM_UNITS * len(numbers)
        for key, numbers in queues.items()
    }
    count = min(parallelism, len(queues), -(-sum(weights.values()) // _UNITS_PER_TASK))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, share) for share in range(count)]
    for key in sorted(queues, key=lambda key: -weights[key]):
        load, least = heapq.heappop(loads)
        heapq.heappush(loads, (load + weights[key], least))
        shares[least] += queues[key]
    return [tuple(items[number] for number in sorted(share)) for share in shares if share]


@dataclass(frozen=True, slots=True, eq=False)
class PackedItems:
    """Items as they travel: what many of them have in common is there once.

    Item i is ``queues[queue[i]]`` for the group ``groups[group[i]]``, which stands at
    ``committed[i]`` unless ``never[i]``.
    """

    queues: tuple[tuple[str, tuple[str, ...], str, str, int, int, int, bool], ...]
    groups: tuple[tuple[str, str | None, str | None], ...]
    queue: Int32s
    group: Int32s
    committed: Int64s
    never: Mask

    @classmethod
    def of(cls, items: Iterable[BacklogItem]) -> "PackedItems":
        """Pack items."""
        queues: dict[tuple[str, tuple[str, ...], str, str, int, int, int, bool], int] = {}
        groups: dict[tuple[str, str | None, str | None], int] = {}
        rows = []
        for i in items:
            queue = (
                i.root, i.commit_log, i.broker_name, i.topic, i.queue_id, i.low, i.high,
                i.topic_gone,
            )  # fmt: skip
            group = i.group, i.subscription, i.expression_type
            number = queues.setdefault(queue, len(queues))
            committed = i.consumer_offset
            rows.append(
                (number, groups.setdefault(group, len(groups)), committed or 0, committed is None)
            )
        numbers = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(
            tuple(queues),
            tuple(groups),
            numbers[0].astype(np.int32),
            numbers[1].astype(np.int32),
            numbers[2].copy(),
            numbers[3].astype(np.bool_),
        )

    def items(self) -> list[BacklogItem]:
        """Return the items, in their order."""
        columns = (self.queue, self.group, self.committed, self.never)
        found = []
        for queue, group, committed, never in zip(*(c.tolist() for c in columns), strict=True):
            root, commit_log, broker, topic, queue_id, low, high, gone = self.queues[queue]
            name, subscription, kind = self.groups[group]
            found.append(
                BacklogItem(
                    root, commit_log, broker, name, topic, queue_id, low, high,
                    None if never else committed, subscription, gone, kind,
                )
            )  # fmt: skip
        return found


class _Subscription(NamedTuple):
    expression: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class _Broker:
    """What one store knows of topics, groups and offsets, read once."""

    snapshot: Snapshot
    topics: dict[str, TopicConfig]
    committed: dict[tuple[str, str], dict[int, int]]
    filters: dict[tuple[str, str], FilterExpression]
    bounds: dict[str, dict[int, tuple[int, int]]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "_Broker":
        bounds: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for queue in snapshot.queues:
            bounds[queue.topic][queue.queue_id] = queue.low, queue.high
        root = snapshot.store.root
        return cls(
            snapshot,
            broker_config.topics(root),
            broker_config.consumer_offsets(root),
            broker_config.filter_expressions(root),
            dict(bounds),
        )

    @property
    def groups(self) -> set[str]:
        return {group for _, group in self.committed}

    def knows(self, topic: str) -> bool:
        return topic in self.topics or topic in self.bounds

    def items(self, request: BacklogRequest) -> Iterator[BacklogItem]:
        chosen = group_test(request.groups)
        store, name = self.snapshot.store, self.snapshot.broker_name
        for group, topic in self._pairs(request):
            if not chosen(group):
                continue
            committed = self.committed.get((topic, group), {})
            subscription = self._subscription(request, group, topic)
            gone = not self.knows(topic)
            held = self.bounds.get(topic, {})
            for queue_id in self._queue_ids(topic, committed):
                low, high = held.get(queue_id, (0, 0))
                yield BacklogItem(
                    store.root, store.commit_log, name, group, topic, queue_id, low, high,
                    committed.get(queue_id), subscription.expression, gone, subscription.kind,
                )  # fmt: skip

    def _subscription(self, request: BacklogRequest, group: str, topic: str) -> _Subscription:
        told = request.subscription(group, topic)
        if told is not None:
            return _Subscription(told, TAG)
        found = self.filters.get((topic, group))
        if found is None or found.kind.upper() != SQL92:
            return _Subscription(None, None)
        return _Subscription(found.expression, SQL92)

    def _pairs(self, request: BacklogRequest) -> list[tuple[str, str]]:
        pairs = {(group, topic) for topic, group in self.committed}
        for group, expressions in request.subscriptions.items():
            pairs |= {(group, topic) for topic in expressions if self.knows(topic)}
        return sorted(pairs)

    def _queue_ids(self, topic: str, committed: Iterable[int]) -> list[int]:
        readable = self.topics[topic].read_queue_nums if topic in self.topics else 0
        return sorted({*range(readable), *self.bounds.get(topic, ()), *committed})


def check_groups(groups: str | None, known: Callable[[], set[str]]) -> None:
    """Raise UnknownTopicError if the option names a group that is not ``known``."""
    if groups is None or group_pattern(groups):
        return
    for group in sorted(group_names(groups) - (there := known())):
        raise UnknownTopicError(_unknown("groups", "group", group, there))


def _check_groups(brokers: Sequence[_Broker], request: BacklogRequest) -> None:
    committed: set[str] = set().union(*(broker.groups for broker in brokers))
    told = request.subscriptions

    def known() -> set[str]:
        # A group that is configured but never committed has no rows; it is no mistake.
        return committed.union(*(broker_config.groups(b.snapshot.store.root) for b in brokers))

    check_groups(request.groups, lambda: known() | set(told))
    # A group that never committed has rows of the topics that its subscription names only.
    idle = {group for group in told if not set(told[group]) - {ANY_TOPIC}} - committed
    if idle:
        for group in sorted(idle - known()):
            raise UnknownTopicError(_unknown("subscriptions", "group", group, known()))


def _check_topics(brokers: Sequence[_Broker], request: BacklogRequest) -> None:
    for group, expressions in sorted(request.subscriptions.items()):
        for topic in sorted(set(expressions) - {ANY_TOPIC}):
            committed = any((topic, group) in broker.committed for broker in brokers)
            if not committed and not any(broker.knows(topic) for broker in brokers):
                known = {name for b in brokers for name in (*b.topics, *b.bounds)}
                raise UnknownTopicError(_unknown("subscriptions", "topic", topic, known))


def _unknown(option: str, kind: str, name: str, known: set[str]) -> str:
    close = near(name, known) or sorted(known)[:3]
    hint = f"did you mean {', '.join(map(shown, close))}?" if close else f"there is no {kind}"
    return f"option {option}: the store knows no {kind} {shown(name)}; {hint}"

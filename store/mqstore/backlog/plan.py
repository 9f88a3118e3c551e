"""Lists the queues that a backlog has rows for, group × topic × queue; measures nothing.

The groups are those of consumerOffset.json, online or not, and those that ``subscriptions``
names; a group's topics likewise. A topic's queues are 0..readQueueNums−1 of topics.json,
those on disk and those the group has an offset for, so that a queue without a committed offset
has a row too. A group subscribes to what ``subscriptions`` says, else to what the broker knows: a
store has the expression in consumerFilter.json if it is SQL92, the broker of a cluster reports
those of groups that are online.

Reference: AdminBrokerProcessor#getConsumeStats, ConsumerOffsetManager#whichTopicByConsumer.
"""

import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from mqstore.backlog.items import BacklogItem, broker_filter
from mqstore.backlog.light import left_out_of_cluster
from mqstore.backlog.request import (
    ANY_TOPIC,
    BacklogRequest,
    group_names,
    group_pattern,
    named_groups,
)
from mqstore.backlog.schema import SQL92, TAG
from mqstore.backlog.standing import Standing
from mqstore.backlog.unread import note_tiered, note_unread
from mqstore.backlog.unseen import warn_of_hidden, without_popping
from mqstore.errors import (
    InvalidOptionError,
    StoreError,
    UnknownGroupError,
    UnknownTopicError,
    shown,
)
from mqstore.files.config.broker_config import FilterExpression, TopicConfig
from mqstore.format.arrays import Span, TopicQueue
from mqstore.format.names import is_broadcast_group, is_system_group
from mqstore.options.grammar import Sql92
from mqstore.pop.look import offsets_and_bounds, pop_state
from mqstore.pop.state import PULL, PopState
from mqstore.read.broker_state import BrokerState, ConnectedGroup, note_left_out
from mqstore.read.capabilities import unchanged_since, unreadable
from mqstore.read.known_names import unknown
from mqstore.read.source import BoundsSource, Origin, Snapshot
from mqstore.read.tags import SUB_ALL

_LOG = logging.getLogger(__name__)
MAX_ITEMS: Final = 5_000_000
_UNITS_PER_TASK: Final = 1_000_000  # about 0.1 s of ConsumeQueue, some seconds of tag strings
_OF_ITEMS: Final = (
    *("committed", "bounds", "topics", "filters", "online", "hides"),
    *("hidden_groups", "hidden_topics", "local_lows"),
)
_EVERY: Final = (None, "", SUB_ALL)
_ITEM_UNITS: Final = 100  # what a row costs beside its units, in units


def plan(snapshot: Snapshot, request: BacklogRequest) -> list[BacklogItem]:
    """Return the items of one store, in the order of broker, group, topic, queue.

    The snapshot must be of all topics; its origin is opened. Raises UnknownGroupError for a group,
    and UnknownTopicError for a topic of a subscription, that the store does not know, and what
    reading config/ raises.
    Subscriptions may name a group that never committed, if they name topics.
    """
    with closing(snapshot.origin.bounds(snapshot.broker_name)) as source:
        return plan_all([source], [snapshot], request)


def plan_all(
    sources: Sequence[BoundsSource], snapshots: Sequence[Snapshot], request: BacklogRequest
) -> list[BacklogItem]:
    """As ``plan``, of several stores: each named group must be known to one of them."""
    return Planner(request).plan(sources, snapshots)


class Planner:
    """Plans the same request again and again: items of a broker where nothing changed are kept."""

    def __init__(self, request: BacklogRequest) -> None:
        self._request = request
        self._kept: dict[Origin, _Planned] = {}

    def plan(
        self, sources: Sequence[BoundsSource], snapshots: Sequence[Snapshot]
    ) -> list[BacklogItem]:
        """Return what ``plan_all`` returns; raises as it does."""
        request = self._request
        looks = [unchanged_since(source) for source in sources]
        brokers = [self._broker(*one) for one in zip(sources, snapshots, looks, strict=True)]
        _check_groups(brokers, request)
        _check_topics(brokers, request)
        items: list[BacklogItem] = []
        kept = {}
        for broker, snapshot, look in zip(brokers, snapshots, looks, strict=True):
            origin = snapshot.origin
            of_broker = self._items(broker, self._kept.get(origin), MAX_ITEMS - len(items))
            is_of_look = broker.snapshot.queues == snapshot.queues  # And not of a later one.
            kept[origin] = _Planned(look if is_of_look else None, broker, of_broker)
            items += of_broker
        self._kept = kept
        refused = (error for broker in brokers for error in broker.refusals(request))
        if not items and (first := next(refused, None)) is not None:
            raise first
        return items

    def _broker(self, source: BoundsSource, snapshot: Snapshot, look: int | None) -> "_Broker":
        """Return what a broker has; as before where looks found no change since."""
        kept = self._kept.get(snapshot.origin)
        if (
            kept is not None
            and look is not None
            and look == kept.look
            and not kept.broker.pops.modes
        ):
            return replace(kept.broker, snapshot=snapshot)
        return _Broker.of(source, snapshot, self._request)

    def _items(self, broker: "_Broker", kept: "_Planned | None", most: int) -> list[BacklogItem]:
        if kept is not None and broker.stands_as(kept.broker):
            return kept.items
        found = list(islice(broker.items(self._request), most + 1))
        if len(found) > most:
            expected = f"the stores have more than {MAX_ITEMS:,} rows: name fewer groups"
            raise InvalidOptionError("groups", self._request.groups or "", expected)
        if broker.pops.modes:
            found = without_popping(found)
        if broker.hides:
            warn_of_hidden(found, broker.hides)
        return found


class _Planned(NamedTuple):
    """A broker and its items; ``look`` is the number of the look that last found a change."""

    look: int | None
    broker: "_Broker"
    items: list[BacklogItem]


def split(items: Sequence[BacklogItem], parallelism: int) -> list[tuple[BacklogItem, ...]]:
    """Return the items in at most ``parallelism`` shares of about equal work, none empty.

    The items of one queue stay together, for they are measured in one pass over it; small
    queues are packed, because a task costs more than they do. In a share the order is kept.
    """
    queues: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        queues[item.broker_name, item.topic, item.queue_id].append(number)
    lag = Standing.of(items).lag.tolist()
    weights = {
        key: max(lag[number] for number in numbers) + _ITEM_UNITS * len(numbers)
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


def _expressions(
    online: Mapping[str, ConnectedGroup],
) -> dict[tuple[str, str], FilterExpression]:
    return {
        (topic, group): expression
        for group, found in online.items()
        for topic, expression in found.expressions.items()
    }


class _Subscription(NamedTuple):
    expression: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class _Broker:
    """What one store knows of topics, groups and offsets, read once.

    ``online`` are the groups with consumers; None where it is not known.
    """

    config: BrokerState
    snapshot: Snapshot
    topics: Mapping[str, TopicConfig]
    committed: Mapping[tuple[str, str], Mapping[int, int]]
    filters: Mapping[tuple[str, str], FilterExpression]
    bounds: dict[str, dict[int, Span]]
    hidden_groups: Mapping[str, StoreError]
    """Groups whose subscriptions this user may not see, and the refusals."""
    hidden_topics: Mapping[str, StoreError]
    """Topics that are not shown, as this user may not, or no cluster does, and the refusals."""
    online: Mapping[str, ConnectedGroup] | None
    hides: str
    """Why groups may have consumers that ``online`` lacks; empty: they have none."""
    pops: PopState
    local_lows: Mapping[TopicQueue, int]

    @classmethod
    def of(cls, source: BoundsSource, snapshot: Snapshot, request: BacklogRequest) -> "_Broker":
        config, chosen = source.config, request.group_test()
        topics = config.topics()
        committed, snapshot = offsets_and_bounds(source, snapshot)
        bounds: defaultdict[str, dict[int, Span]] = defaultdict(dict)
        for queue in snapshot.queues:
            bounds[queue.topic][queue.queue_id] = queue.low, queue.high
        facts = config.pop_facts()
        pops = pop_state(source, snapshot, chosen, facts, committed, request.groups)
        named = {group for _, group in (*committed, *pops.modes)} | set(request.subscriptions)
        groups = sorted(filter(chosen, named))
        hidden: dict[str, StoreError] = {}
        asked_for = groups if request.with_members else []
        online = config.online(asked_for, hidden.__setitem__)
        filters = config.filter_expressions(asked_for) if online is None else _expressions(online)
        online = online if request.with_members else None
        hides = "" if online is None else config.hidden_consumers()
        # Those whose subscriptions were given need not be seen.
        given = request.subscriptions
        asked = {group: error for group, error in hidden.items() if group not in given}
        note_left_out(asked, named_groups(request.groups))
        wanted = {topic for topic, group in (*committed, *pops.modes) if chosen(group)}
        wanted |= {topic for given in request.subscriptions.values() for topic in given}
        unread = unreadable(source, [q for q in snapshot.queues if q.topic in wanted])
        is_live = facts.order_info is None
        light = left_out_of_cluster(wanted, bounds) if is_live else {}
        refused = {**dict(snapshot.refused), **unread, **light}
        seen = topics, committed, filters, dict(bounds)
        local_lows = {
            (queue.topic, queue.queue_id): queue.local_low
            for queue in snapshot.queues
            if queue.local_low is not None
        }
        return cls(config, snapshot, *seen, hidden, refused, online, hides, pops, local_lows)

    def stands_as(self, other: "_Broker") -> bool:
        """Tell whether the items are those of another look; those of POP groups change by time."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in _OF_ITEMS)
        has_pops = self.pops.modes or other.pops.modes
        return not has_pops and all(one is before or one == before for one, before in pairs)

    @property
    def groups(self) -> set[str]:
        return {group for _, group in (*self.committed, *self.pops.modes)}

    def knows(self, topic: str) -> bool:
        return topic in self.topics or topic in self.bounds

    def consumers(self, group: str) -> int | None:
        """Return how many consumers are connected; None where that is not known.

        Brokers consume as RocketMQ's own groups themselves.
        """
        if self.online is None or group in self.hidden_groups:
            return None
        if group in self.online:
            return self.online[group].clients
        is_own = is_system_group(group) or is_broadcast_group(group)
        return None if is_own or self.hides else 0

    def items(self, request: BacklogRequest) -> Iterator[BacklogItem]:
        chosen = request.group_test()
        origin, name = self.snapshot.origin, self.snapshot.broker_name
        unread = {
            (queue.topic, queue.queue_id)
            for queue in self.snapshot.queues
            if queue.tier_low is not None and queue.local_low is not None
        }
        for group, topic in self._pairs(request):
            if not chosen(group) or self._refusal(request, group, topic) is not None:
                continue
            committed = self.committed.get((topic, group), {})
            subscription = self._subscription(request, group, topic)
            gone, consumers = not self.knows(topic), self.consumers(group)
            held, mode = self.bounds.get(topic, {}), self.pops.modes.get((topic, group), PULL)
            if topic in self.topics:
                note_unread(topic, self.topics[topic].read_queue_nums, held)
            for queue_id in self._queue_ids(topic, committed):
                low, high = held.get(queue_id, (0, 0))
                if (topic, queue_id) in unread and subscription.expression not in _EVERY:
                    before = self.local_lows[topic, queue_id] - max(committed.get(queue_id, 0), low)
                    note_tiered(group, topic, queue_id, before)
                queue = self.pops.queue(topic, group, queue_id)
                taken_ms = self.snapshot.taken_ms
                yield BacklogItem(
                    origin, name, group, topic, queue_id, low, high,
                    committed.get(queue_id), subscription.expression, gone, subscription.kind,
                    consumers, mode,
                    None if queue is None else queue.standing(low, high, taken_ms),
                    self.pops.bases.get((topic, group)),
                    self.local_lows.get((topic, queue_id)),
                )  # fmt: skip

    def refusals(self, request: BacklogRequest) -> Iterator[StoreError]:
        """Yield why topics of groups that were asked for are left out."""
        chosen = request.group_test()
        for group, topic in self._pairs(request):
            error = self._refusal(request, group, topic) if chosen(group) else None
            if error is not None:
                yield error

    def _refusal(self, request: BacklogRequest, group: str, topic: str) -> StoreError | None:
        is_given = request.subscription(group, topic) is not None
        of_group = None if is_given else self.hidden_groups.get(group)
        return self.hidden_topics.get(topic) or of_group

    def _subscription(self, request: BacklogRequest, group: str, topic: str) -> _Subscription:
        given = request.subscription(group, topic)
        if given is not None:
            return _Subscription(str(given), SQL92 if isinstance(given, Sql92) else TAG)
        found = self.filters.get((topic, group))
        if found is None or found.kind.upper() not in (SQL92, TAG):
            return _Subscription(None, None)
        kind = found.kind.upper()
        if kind == SQL92 and broker_filter(found.expression) is None:
            names = shown(group), shown(topic)
            _LOG.warning("the SQL92 of group %s for topic %s is not valid: all count", *names)
        return _Subscription(found.expression, kind)

    def _pairs(self, request: BacklogRequest) -> list[tuple[str, str]]:
        pairs = {(group, topic) for topic, group in self.committed}
        pairs |= {(group, topic) for topic, group in self.pops.modes if self.knows(topic)}
        for group, expressions in request.subscriptions.items():
            pairs |= {(group, topic) for topic in expressions if self.knows(topic)}
        return sorted(pairs)

    def _queue_ids(self, topic: str, committed: Iterable[int]) -> list[int]:
        readable = self.topics[topic].read_queue_nums if topic in self.topics else 0
        return sorted({*range(readable), *self.bounds.get(topic, ()), *committed})


def check_groups(groups: str | None, known: Callable[[], set[str]]) -> None:
    """Raise UnknownGroupError if the option names a group that is not ``known``."""
    if groups is None or group_pattern(groups):
        return
    for group in sorted(group_names(groups) - (there := known())):
        raise UnknownGroupError(unknown("groups", "group", group, there))


def _check_groups(brokers: Sequence[_Broker], request: BacklogRequest) -> None:
    committed: set[str] = set().union(*(broker.groups for broker in brokers))
    given = request.subscriptions

    def known() -> set[str]:
        # A group that is configured but never committed has no rows; it is no mistake.
        return committed.union(*(broker.config.groups() for broker in brokers))

    check_groups(request.groups, lambda: known() | set(given))
    # A group that never committed has rows of the topics that its subscription names only.
    idle = {group for group in given if not set(given[group]) - {ANY_TOPIC}} - committed
    if idle:
        for group in sorted(idle - known()):
            raise UnknownGroupError(unknown("subscriptions", "group", group, known()))


def _check_topics(brokers: Sequence[_Broker], request: BacklogRequest) -> None:
    for group, expressions in sorted(request.subscriptions.items()):
        for topic in sorted(set(expressions) - {ANY_TOPIC}):
            committed = any((topic, group) in broker.committed for broker in brokers)
            if not committed and not any(broker.knows(topic) for broker in brokers):
                known = {name for b in brokers for name in (*b.topics, *b.bounds)}
                raise UnknownTopicError(unknown("subscriptions", "topic", topic, known))

"""Rates of what is stored and consumed, from looks at stores a moment apart.

A look reads what changed: the unit behind the last one of each queue (see StoreTail), and the
offsets in config/. Of a backlog, however long it is, only the first message is read, to tell LATE;
of a group with an expression as many as do not pass.

Brokers write their groups' offsets every five seconds (BrokerConfig#flushConsumerOffsetInterval),
so rates are those of the last ``WINDOW_S`` seconds.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from mqlog_jobs.top.queues import OpenedQueues, QueueFlow
from mqstore.backlog import BacklogItem, BacklogRequest, Statuses, plan_all
from mqstore.backlog.schema import NO_CONSUMERS, OK
from mqstore.backlog.standing import Standing
from mqstore.errors import StoreError, is_of_absence
from mqstore.read.capabilities import Tail, followable
from mqstore.read.queues import QueueFilter
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.read.system_topics import system_topics
from mqstore.tables.asides import Aside, asides

WINDOW_S: Final = 30.0
_MOST_LOOKS: Final = 120  # that are kept, whatever the interval
_MOST_READ: Final = 2_000
"""Queues of which one look reads for how long the first message waits."""

GroupTopic: TypeAlias = tuple[str | None, str]
"""A group, None for a topic that no group consumes, and a topic."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A group in a topic, over all brokers and queues; rates are messages a second.

    ``lag`` is None of a topic without a group, a rate of a first look; ``lags`` are those of the
    last looks, the newest last; ``consumers`` is None where it is not known. ``caught_up_s`` is the
    time until the lag is 0 if both rates stay: None if it is not known or never comes.
    ``inflight`` and ``due`` are messages of the lag that a POP group popped; None of others.
    """

    group: str | None
    topic: str
    lag: int | None
    stored: float | None
    consumed: float | None
    lags: tuple[int, ...] = ()
    statuses: tuple[str, ...] = ()
    consumers: int | None = None
    inflight: int | None = None
    due: int | None = None

    @property
    def caught_up_s(self) -> float | None:
        """Seconds until nothing is waiting any more."""
        if self.lag == 0:
            return 0.0
        if self.lag is None or self.stored is None or self.consumed is None:
            return None
        faster = self.consumed - self.stored
        return self.lag / faster if faster > 0 else None


@dataclass(frozen=True, slots=True)
class Measured:
    """One look: the flows, and what was looked at.

    ``away`` are brokers that did not answer, ``beside`` is what waits beside the lags.
    """

    flows: tuple[Flow, ...]
    brokers: tuple[str, ...]
    queues: int
    stored: float | None
    away: tuple[str, ...]
    beside: Aside = field(default_factory=Aside)


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look found: counters that only rise, and lags."""

    at_s: float
    stored: dict[str, int]
    consumed: dict[GroupTopic, int]
    lags: dict[GroupTopic, int]
    statuses: dict[GroupTopic, set[str]]
    consumers: dict[GroupTopic, int]
    beside: Aside
    popped: dict[GroupTopic, tuple[int, int]] = field(default_factory=dict)


class Meter:
    """Looks at stores that are open, again and again. ``close`` it."""

    def __init__(
        self,
        stores: OpenStores,
        request: BacklogRequest,
        topic: str | None = None,
        *,
        system: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take tails of all queues; the first look is that of the first ``measure``.

        ``topic``: flows are of this topic only.

        Raises what taking a tail raises.
        """
        self._stores = stores
        self._request = request
        self._topic = topic
        self._system = system
        self._clock = clock
        self._looks: deque[_Look] = deque(maxlen=_MOST_LOOKS)
        self._known: frozenset[str] = frozenset()
        self._own: frozenset[str] = frozenset()
        self._items: Sequence[BacklogItem] = ()
        self._statuses = Statuses(request, _MOST_READ)
        self._words: Sequence[str] = ()
        self._snapshots: Sequence[Snapshot] = ()
        self._opened: OpenedQueues | None = None
        self._measured: Measured | None = None
        self._tails = _tails(stores.sources)

    def close(self) -> None:
        """Close the tails."""
        for tail in self._tails:
            tail.close()

    def measure(self) -> Measured:
        """Look at the stores and return the rates since the oldest look of the window.

        What groups have on a broker that is away is left out.
        Raises what a look raises: StoreReplacedError, CorruptConfigError, UnknownGroupError.
        """
        self._tails += _tails(self._stores.join())
        for tail in self._tails:
            tail.look(at_once=True)
        snapshots = [tail.snapshot for tail in self._tails]
        try:
            look = self._look(snapshots)
        except StoreError as error:
            if self._measured is None or not is_of_absence(error):
                raise
            return replace(self._measured, away=(*self._away(snapshots), str(error)))
        if self._opened is not None:
            self._opened.note(look.at_s, self._items, self._words, snapshots)
        since = next((one for one in self._looks if one.at_s >= look.at_s - WINDOW_S), None)
        if since is None and self._looks:
            since = self._looks[-1]  # The interval is longer than the window.
        while self._looks and since is not None and self._looks[0].at_s < since.at_s:
            self._looks.popleft()
        self._looks.append(look)
        change = _Change(look, since)
        own = [
            rate
            for topic in look.stored
            if not self._hides(topic)
            if (rate := change.stored(topic)) is not None
        ]
        self._measured = Measured(
            tuple(self._flows(change)),
            tuple(snapshot.broker_name for snapshot in snapshots),
            sum(not self._hides(queue.topic) for one in snapshots for queue in one.queues),
            sum(own) if own else None,
            self._away(snapshots),
            look.beside,
        )
        return self._measured

    def _away(self, snapshots: Sequence[Snapshot]) -> tuple[str, ...]:
        return tuple(
            f"{snapshot.broker_name}: {tail.away}"
            for snapshot, tail in zip(snapshots, self._tails, strict=True)
            if tail.away is not None
        )

    def queues(self, group: str | None, topic: str) -> list[QueueFlow]:
        """Return the queues of a group, or of a topic without one, as of the last look.

        Rates are those since the first call for this group, and of a window at most.
        """
        if self._opened is None or self._opened.pair != (group, topic):
            self._opened = OpenedQueues(group, topic, WINDOW_S)
            self._opened.note(self._looks[-1].at_s, self._items, self._words, self._snapshots)
        return self._opened.flows()

    def _look(self, snapshots: Sequence[Snapshot]) -> _Look:
        at_s = self._clock()
        here = [number for number, tail in enumerate(self._tails) if tail.away is None]
        sources = [self._stores.sources[number] for number in here]
        items = plan_all(sources, [snapshots[number] for number in here], self._request)
        beside = sum(asides(snapshots, items).values(), Aside())
        if self._topic is not None:
            items = [item for item in items if item.is_of(lambda topic, _: topic == self._topic)]
            beside = Aside()
        as_of_ms = max((one.taken_ms for one in snapshots), default=0)
        words = self._statuses.of(items, as_of_ms)
        self._items, self._words, self._snapshots = items, words, snapshots
        self._learn(snapshots)
        stored: defaultdict[str, int] = defaultdict(int)
        for snapshot in snapshots:
            for queue in snapshot.queues:
                if self._topic in (None, queue.topic):
                    stored[queue.topic] += queue.high
        look = _Look(at_s, dict(stored), {}, {}, defaultdict(set), {}, beside)
        if items:
            _add(look, items, words)
        return look

    def _learn(self, snapshots: Sequence[Snapshot]) -> None:
        """Find out which topics are RocketMQ's own, when there are new ones."""
        topics = frozenset(queue.topic for one in snapshots for queue in one.queues)
        if topics == self._known:
            return
        self._own = frozenset().union(*map(system_topics, snapshots))
        self._known = topics

    def _hides(self, topic: str) -> bool:
        if self._topic is not None:
            return topic != self._topic
        return not self._system and topic in self._own

    def _flows(self, change: "_Change") -> list[Flow]:
        look = change.now
        flows = []
        for pair, lag in look.lags.items():
            group, topic = pair
            lags = tuple(one.lags[pair] for one in self._looks if pair in one.lags)
            rates = change.stored(topic), change.consumed(pair)
            # Who moves an offset is there, whatever the broker knows of it.
            not_said = {OK, NO_CONSUMERS} if rates[1] else {OK}
            statuses = tuple(sorted(look.statuses[pair] - not_said))
            consumers = look.consumers.get(pair)
            popped = look.popped.get(pair, (None, None))
            flows.append(Flow(group, topic, lag, *rates, lags, statuses, consumers, *popped))
        if self._request.groups is None:
            consumed = {topic for _, topic in look.lags}
            flows += [
                Flow(None, topic, None, change.stored(topic), None)
                for topic in look.stored
                if topic not in consumed and not self._hides(topic)
            ]
        return flows


def _tails(sources: Sequence[BoundsSource]) -> list[Tail]:
    every = QueueFilter()
    return [
        followable(source).tail(every, strict=False, fail_on_data_loss=False) for source in sources
    ]


def _add(look: _Look, items: Sequence[BacklogItem], words: Sequence[str]) -> None:
    """Add the lags of the groups, and how far they have consumed."""
    standing = Standing.of(items)
    consumed = standing.consumed.clip(max=standing.high).tolist()
    columns = zip(items, standing.lag.tolist(), consumed, words, strict=True)
    for item, lag, queue_offset, status in columns:
        pair = item.group, item.topic
        look.lags[pair] = look.lags.get(pair, 0) + lag
        look.consumed[pair] = look.consumed.get(pair, 0) + queue_offset
        look.statuses[pair].add(status)
        popped = item.popped
        if popped is not None and popped.inflight is not None and popped.due is not None:
            inflight, due = look.popped.get(pair, (0, 0))
            look.popped[pair] = inflight + popped.inflight, due + popped.due
        if item.consumers is not None:
            look.consumers[pair] = max(look.consumers.get(pair, 0), item.consumers)


@dataclass(frozen=True, slots=True)
class _Change:
    """Two looks; rates between them are None where there is nothing to compare with."""

    now: _Look
    since: _Look | None

    def stored(self, topic: str) -> float | None:
        """Return how many messages of the topic were stored a second."""
        before = None if self.since is None else self.since.stored.get(topic)
        return self._rate(self.now.stored.get(topic, 0), before)

    def consumed(self, pair: GroupTopic) -> float | None:
        """Return how many messages of the topic the group consumed a second."""
        before = None if self.since is None else self.since.consumed.get(pair)
        return self._rate(self.now.consumed[pair], before)

    def _rate(self, now: int, before: int | None) -> float | None:
        if self.since is None or before is None or self.now.at_s <= self.since.at_s:
            return None
        return (now - before) / (self.now.at_s - self.since.at_s)

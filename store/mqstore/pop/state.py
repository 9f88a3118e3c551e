"""What POP groups have not acknowledged: a function of checkpoints, entries and offsets.

A POP group's committed offset is the next offset to pop, not its progress. Not acknowledged are
the messages that were never popped, from ``next`` on, and the open ones before it: popped, and
named by no acknowledgement. Classic pops are open by their checkpoints, those of the KV service
by its entries, pops in order by consumerOrderInfo.json.

Reference: PopMessageProcessor, PopReviveService, PopConsumerService, ConsumerOrderInfoManager.
"""

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from mqstore.format.arrays import Int64s, TopicGroup
from mqstore.format.names import RETRY_PREFIX, is_system_group, is_system_topic
from mqstore.format.pop import KvPops, OrderInfo, retry_topics, topic_of_retries
from mqstore.pop.checkpoints import OpenOffsets

PULL: Final = "PULL"
POP: Final = "POP"
POP_FIFO: Final = "POP_FIFO"
POP_KV: Final = "POP_KV"
READY: Final = "READY"  # never popped
INFLIGHT: Final = "INFLIGHT"  # popped, and invisible
DUE: Final = "DUE"  # popped, and to be delivered again
NOT_POPPED: Final = -1
"""For a time of a message that is not known to be popped."""
_MOST_UNNAMED: Final = 1_000_000
"""Of more, all are ready from the first on."""
KV_UNKNOWN: Final = "KV_UNKNOWN"  # what a KV service has of it cannot be read, or if it pops
POP_UNKNOWN: Final = "POP_UNKNOWN"  # popped messages are told by topics that cannot be read
UNKNOWN_POPS: Final = (KV_UNKNOWN, POP_UNKNOWN)
POP_BUFFERED: Final = "POP_BUFFERED"  # acknowledgements of some seconds are in memory alone

GroupOffsets: TypeAlias = Mapping[TopicGroup, Mapping[int, int]]
GroupQueue: TypeAlias = tuple[str, str, int]
_NOTHING: Final = np.empty(0, np.int64)


_PopColumns: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s]


@dataclass(frozen=True, slots=True)
class PopSources:
    """What the state of one broker's POP groups follows from. Offsets are by queueId.

    ``opened`` is what its checkpoints leave open, ``named`` the pairs that any checkpoint names.
    ``committed`` are next offsets to pop, ``pulled`` those of the KV service. ``modes`` are the
    pairs that an administrator switched to POP; ``topics`` are those that the broker has.
    ``kv`` None: the KV service has entries that cannot be read. ``set_back`` are the queues whose
    offset was set back to before what was popped: all from it on is popped again. ``pulling`` are
    pairs that are known to pull. ``is_live``: a running broker told the offsets, ``is_buffered``
    and has checkpoints and acknowledgements in its memory alone. ``is_hidden``: the topics that
    have them cannot be read.
    """

    opened: OpenOffsets
    named: Set[TopicGroup] = frozenset()
    committed: GroupOffsets = field(default_factory=dict)
    pulled: GroupOffsets = field(default_factory=dict)
    order_info: Mapping[TopicGroup, Mapping[int, OrderInfo]] = field(default_factory=dict)
    modes: Set[TopicGroup] = frozenset()
    kv: KvPops | None = field(default_factory=KvPops)
    pulling: Set[TopicGroup] = frozenset()
    topics: Container[str] = frozenset()
    set_back: Set[GroupQueue] = frozenset()
    is_live: bool = False
    is_buffered: bool = False
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class PopQueue:
    """One queue of a POP group: n messages that are popped and open, int64[n] each.

    ``queue_offsets`` ascend. ``next`` is the offset behind everything that was popped;
    ``committed`` is what the broker would pop next if it started on these files. ``deliveries``
    are 0 where they are not known. A message between the two that no checkpoint names is not known
    to be popped, as a broker with enablePopBufferMerge may have lost its checkpoint: it is among
    the n, and its times are NOT_POPPED.
    """

    next: int
    committed: int | None
    queue_offsets: Int64s
    visible_ms: Int64s
    pop_ms: Int64s
    deliveries: Int64s
    is_live: bool = False
    status: str = ""

    @property
    def first(self) -> int:
        """The first message that is not acknowledged, or would be the first."""
        return int(self.queue_offsets[0]) if len(self.queue_offsets) else self.next

    def standing(self, low: int, high: int, as_of_ms: int) -> "PopStanding":
        """Return the numbers of a queue that holds [low, high); epoch ms."""
        begin = min(max(self.next, low), high)
        if self.status in UNKNOWN_POPS:
            expired = max(low - self.next, 0)
            return PopStanding(
                begin, high - begin, None, None, None, expired, _NOTHING, self.status
            )
        if not len(self.queue_offsets):
            again = None if self.is_live else begin - min(max(self.committed or 0, low), begin)
            expired = max(low - self.next, 0)
            return PopStanding(begin, high - begin, 0, 0, again, expired, _NOTHING, self.status)
        held = (self.queue_offsets >= low) & (self.queue_offsets < begin)
        open_, visible = self.queue_offsets[held], self.visible_ms[held]
        unpopped = int(np.count_nonzero(visible == NOT_POPPED))
        due = int(np.count_nonzero(visible < as_of_ms)) - unpopped
        again = None if self.is_live else begin - min(max(self.committed or 0, low), begin)
        if again is not None:
            again -= unpopped  # They lie between the two, and are ready already.
        expired = max(low - self.next, 0) + int(np.count_nonzero(self.queue_offsets < low))
        ready, inflight = high - begin + unpopped, len(open_) - due - unpopped
        return PopStanding(begin, ready, inflight, due, again, expired, open_, self.status)


@dataclass(frozen=True, slots=True, eq=False)
class PopStanding:
    """Numbers of messages held: never popped, in flight, due to be delivered again. Pickles.

    ``begin`` is the first offset never popped, ``redelivered`` what a broker that started on
    these files would pop again; ``open`` are the offsets before ``begin`` that are not
    acknowledged. None: it cannot be known, and ``status`` says why.
    """

    begin: int
    ready: int
    inflight: int | None
    due: int | None
    redelivered: int | None
    expired: int
    open: Int64s
    status: str = ""

    @property
    def unacknowledged(self) -> int | None:
        """All that is held and not acknowledged."""
        if self.inflight is None or self.due is None:
            return None
        return self.ready + self.inflight + self.due


class PopState:
    """The POP groups of one broker. Arrays: 40 bytes for each open message."""

    def __init__(self, sources: PopSources) -> None:
        self._sources = sources
        self._numbers: dict[GroupQueue, int] = {}
        columns = _joined(sources, self._numbers)
        queue, places, visible, pops, deliveries = columns
        self._columns = places, visible, pops, deliveries
        count = len(self._numbers)
        self._edges = np.searchsorted(queue, np.arange(count + 1))
        self._named = {name: number for number, name in enumerate(sources.opened.names)}
        self._ends = _ends(sources, self._numbers, queue, places)
        self.modes: Mapping[TopicGroup, str]
        """How each pair pops; a pair that is not here pulls."""
        self.bases: Mapping[TopicGroup, str]
        """The topic that a retry topic and its group belong to."""
        kv = _KvPairs.of(sources)
        self._unproven = kv.unproven
        self.modes, self.bases = _modes(sources, kv)

    def names(self) -> Iterable[GroupQueue]:
        """Return (topic, group, queueId) of queues that something is known of."""
        return self._numbers.keys()

    def queue(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return one queue; None for a group that pulls the topic."""
        mode = self.modes.get((topic, group))
        if mode is None:
            return None
        committed = self._sources.committed.get((topic, group), {}).get(queue_id)
        pulled = None
        if mode == POP_KV:
            pulled = self._sources.pulled.get((topic, group), {}).get(queue_id)
        number = self._numbers.get((topic, group, queue_id))
        begin = max(committed or 0, pulled or 0)
        sources = self._sources
        status = POP_BUFFERED if sources.is_buffered else ""
        base = self.bases.get((topic, group), topic)
        if mode == POP_KV and (sources.kv is None or (base, group) in self._unproven):
            status = KV_UNKNOWN
        elif mode == POP and sources.is_hidden:
            status = POP_UNKNOWN
        if number is None:
            nothing = (_NOTHING,) * 4
            return PopQueue(begin, committed, *nothing, sources.is_live, status)
        start, end = self._edges[number : number + 2].tolist()
        if mode == POP_FIFO:  # The offset is that of the first that is not acknowledged.
            start += int(np.searchsorted(self._columns[0][start:end], begin))
        places, visible, pops, deliveries = (column[start:end] for column in self._columns)
        columns = places, visible, pops, deliveries
        if (topic, group, queue_id) in sources.set_back:
            before = places < begin
            columns = places[before], visible[before], pops[before], deliveries[before]
        else:
            begin = max(begin, int(self._ends[number]))
        if mode == POP and committed is not None and committed < begin:
            begin, columns = self._with_unnamed((topic, group, queue_id), committed, begin, columns)
        return PopQueue(begin, committed, *columns, sources.is_live, status)

    def _with_unnamed(
        self, name: GroupQueue, committed: int, end: int, columns: _PopColumns
    ) -> tuple[int, _PopColumns]:
        """Return where what was never popped begins, and the columns with what no pop names."""
        opened = self._sources.opened
        number = self._named.get(name, -1)
        start, stop = np.searchsorted(opened.named_queue, [number, number + 1])
        named = opened.named_offsets[start:stop]
        named = named[(named >= committed) & (named < end)]
        if len(named) == end - committed:
            return end, columns
        if end - committed > _MOST_UNNAMED:
            gaps = np.flatnonzero(named != committed + np.arange(len(named)))
            return committed + (int(gaps[0]) if len(gaps) else len(named)), columns
        unnamed = np.setdiff1d(np.arange(committed, end), named, assume_unique=True)
        never = np.full(len(unnamed), NOT_POPPED)
        added = unnamed, never, never, np.zeros_like(unnamed)
        places, visible, pops, deliveries = map(np.concatenate, zip(columns, added, strict=True))
        order = np.argsort(places, kind="stable")
        return end, (places[order], visible[order], pops[order], deliveries[order])


@dataclass(frozen=True, slots=True)
class _KvPairs:
    """The (topic, group) of the KV service: those that pop by it, and those that may.

    ``owners`` are the groups that popped each retry topic, as far as it shows.
    """

    proven: Set[TopicGroup]
    unproven: Set[TopicGroup]
    owners: Mapping[str, Set[str]]

    @classmethod
    def of(cls, sources: PopSources) -> "_KvPairs":
        """Return them; none where the service was never used.

        A group that pops a topic commits offsets of the pair's retry topic once that is there, as
        no group does that pulls. Before, and where no entry is left, a group that pops has no
        more than a group that pulls: an offset of the topic.
        """
        kv = sources.kv
        if kv is not None and not (kv.is_used or kv.pairs):
            return cls(frozenset(), frozenset(), {})
        seen = {*(kv.pairs if kv is not None else ()), *(sources.modes - sources.named)}
        owners: dict[str, set[str]] = {}
        for topic, group in (*seen, *sources.committed):
            base = topic_of_retries(group, topic)
            if base is not None:
                seen |= {(topic, group), (base, group)}
                owners.setdefault(topic, set()).add(group)
        unproven = {
            (topic, group)
            for topic, group in sources.committed
            if not (is_system_topic(topic) or topic.startswith(RETRY_PREFIX))
            and not is_system_group(group)
        }
        unproven -= seen | sources.named | sources.modes | sources.pulling
        unproven -= set(sources.order_info)
        return cls(seen, unproven, owners)

    def may_pop(self, retry: str, pair: TopicGroup) -> bool:
        """Tell whether a retry topic is of a pair, which may share it where it has such a name."""
        owners = self.owners.get(retry, frozenset())
        return pair not in self.unproven or not owners or pair[1] in owners


def _modes(
    sources: PopSources, kv: _KvPairs
) -> tuple[dict[TopicGroup, str], dict[TopicGroup, str]]:
    """Return the mode of each pair and of its retry topics, and the topics of the latter."""
    modes = dict.fromkeys(sources.named, POP)
    modes |= dict.fromkeys(((topic, group) for topic, group, _ in sources.opened.names), POP)
    modes |= dict.fromkeys(sources.modes, POP)
    # What a group of mode POP once popped in order may be history: its batch is not open then.
    for pair, queues in sources.order_info.items():
        is_open = any(not all(info.acknowledged) for info in queues.values())
        if is_open or pair not in modes:
            modes[pair] = POP_FIFO
    modes |= dict.fromkeys((*kv.proven, *kv.unproven), POP_KV)
    bases: dict[TopicGroup, str] = {}
    for topic, group in [*modes, *sources.committed]:
        if topic.startswith(RETRY_PREFIX):
            continue
        for retry in retry_topics(group, topic):
            if (retry, group) in modes:
                modes.setdefault((topic, group), POP)  # Its own checkpoints are gone.
            elif retry in sources.topics and kv.may_pop(retry, (topic, group)):
                mode = modes.get((topic, group))
                if mode is not None:
                    modes[retry, group] = POP if mode == POP_FIFO else mode
            if (retry, group) in modes:
                bases[retry, group] = topic
    return modes, bases


_OpenColumns: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s, Int64s]


def _joined(sources: PopSources, numbers: dict[GroupQueue, int]) -> _OpenColumns:
    """Return queue, queue offset, visible time, pop time, deliveries of each open message once.

    Sorted by queue and offset; of several, the one that is visible last. Queues get ``numbers``.
    """
    opened = sources.opened
    for name in opened.names:
        numbers.setdefault(name, len(numbers))
    of_queue = np.array([numbers[name] for name in opened.names], np.int64)
    nothing = np.zeros(len(opened.queue), np.int64)
    classic = (
        of_queue[opened.queue] if len(opened.names) else _NOTHING,
        opened.queue_offsets,
        opened.visible_ms,
        opened.pop_ms,
        nothing,
    )
    rows = array("q")
    for row in chain(_of_entries(sources.kv, numbers), _of_batches(sources.order_info, numbers)):
        rows.extend(row)
    others = np.array(rows, np.int64).reshape(-1, 5).T
    queue, places, visible, pops, deliveries = (
        np.concatenate(pair) for pair in zip(classic, others, strict=True)
    )
    order = np.lexsort((visible, places, queue))
    last = np.ones(len(order), np.bool_)
    last[:-1] = (queue[order][1:] != queue[order][:-1]) | (places[order][1:] != places[order][:-1])
    chosen = order[last]
    return queue[chosen], places[chosen], visible[chosen], pops[chosen], deliveries[chosen]


def _of_entries(kv: KvPops | None, numbers: dict[GroupQueue, int]) -> Iterator[tuple[int, ...]]:
    for entry in () if kv is None else kv.entries:
        name = entry.topic, entry.group, entry.queue_id
        number = numbers.setdefault(name, len(numbers))
        place = entry.queue_offset
        yield number, place, entry.visible_ms, entry.pop_ms, entry.deliveries


def _of_batches(
    order_info: Mapping[TopicGroup, Mapping[int, OrderInfo]], numbers: dict[GroupQueue, int]
) -> Iterator[tuple[int, ...]]:
    for (topic, group), queues in order_info.items():
        for queue_id, info in queues.items():
            number = numbers.setdefault((topic, group, queue_id), len(numbers))
            each = zip(info.queue_offsets, info.acknowledged, info.visible_ms, strict=True)
            for place, done, visible in each:
                if not done:
                    yield number, place, visible, info.pop_ms, 0


def _ends(
    sources: PopSources, numbers: Mapping[GroupQueue, int], queue: Int64s, places: Int64s
) -> Int64s:
    """Return the offset behind the last message that was popped of each queue."""
    ends = np.zeros(len(numbers), np.int64)
    np.maximum.at(ends, queue, places + 1)
    for name, end in zip(sources.opened.names, sources.opened.ends.tolist(), strict=True):
        ends[numbers[name]] = max(ends[numbers[name]], end)
    for (topic, group), queues in sources.order_info.items():
        for queue_id, info in queues.items():
            number = numbers[topic, group, queue_id]
            ends[number] = max(ends[number], max(info.queue_offsets, default=-1) + 1)
    return ends

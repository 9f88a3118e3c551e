"""Whose messages a retry or dead-letter topic has, and what became of those that POP delivers.

The retry topic of a group that pulls is ``%RETRY%group``; that of a POP group and a topic is
``%RETRY%group_topic`` (V1) or ``%RETRY%group+topic`` (V2). V1 is ambiguous: two groups may share
one, and the group is never found by a split of the name alone. Checkpoints name groups and topics,
and so do committed offsets: the broker commits one of the group when it makes the topic. Without
both, the groups and topics that exist tell.

Reference: KeyBuilder#buildPopRetryTopic, PopReviveService#initPopRetryOffset.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqstore.format.arrays import Int64s
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX, TIMER_TOPIC
from mqstore.pop.look import pop_state, snapshot_of_pops
from mqstore.pop.state import (
    DUE,
    INFLIGHT,
    NOT_POPPED,
    READY,
    UNKNOWN_POPS,
    GroupOffsets,
    PopQueue,
    PopState,
)
from mqstore.read.source import BoundsSource, Snapshot

POP_DONE: Final = "DONE"


@dataclass(frozen=True, slots=True, eq=False)
class RetryOwner:
    """A group whose messages a topic has; ``origin_topic`` is that of a POP retry topic.

    ``committed`` and ``popped`` are by queueId. ``has_checkpoints``: acknowledgements were read,
    so what is not open was acknowledged or copied again. ``as_of_ms`` is when that was.
    """

    group: str
    origin_topic: str | None = None
    committed: Mapping[int, int] = field(default_factory=dict)
    popped: Mapping[int, PopQueue] = field(default_factory=dict)
    has_checkpoints: bool = False
    as_of_ms: int = 0

    def states(self, queue_id: int, places: Int64s) -> list[str | None]:
        """Return the state of messages by their queue offsets; None: a group pulls, or unknown."""
        committed, queue = self.committed.get(queue_id), self.popped.get(queue_id)
        if self.origin_topic is None or (committed is None and queue is None):
            return [None] * len(places)
        is_known = self.has_checkpoints and (queue is None or queue.status not in UNKNOWN_POPS)
        begin = (committed or 0) if queue is None else queue.next
        found = np.where(places >= begin, READY, POP_DONE if is_known else "")
        if queue is not None and is_known and len(queue.queue_offsets):
            rows = np.searchsorted(queue.queue_offsets, places)
            rows = np.minimum(rows, len(queue.queue_offsets) - 1)
            visible = queue.visible_ms[rows]
            waiting = np.where(visible < self.as_of_ms, DUE, INFLIGHT)
            waiting = np.where(visible == NOT_POPPED, READY, waiting)
            is_open = (queue.queue_offsets[rows] == places) & (places < begin)
            found = np.where(is_open, waiting, found)
        return [state or None for state in found.tolist()]

    def consumed(self, queue_id: int, places: Int64s) -> list[bool | None]:
        """Tell of messages by their queue offsets whether the group has done with them."""
        if self.origin_topic is not None:
            states = self.states(queue_id, places)
            return [None if state is None else state == POP_DONE for state in states]
        done = self.committed.get(queue_id)
        return [None if done is None else place < done for place in places.tolist()]


@dataclass(frozen=True, slots=True)
class ChosenOwners:
    """The groups of topics of retries and dead letters; rows of ``groups`` alone are wanted."""

    by_topic: Mapping[str, Sequence[RetryOwner]]
    groups: frozenset[str]

    def of(self, topics: Set[str]) -> "ChosenOwners":
        """Return those of the topics alone."""
        return ChosenOwners({topic: self.by_topic[topic] for topic in topics}, self.groups)


def is_source(topic: str) -> bool:
    """Tell whether a topic has messages that consumers failed on: of retries, or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def owner_of(topic: str, groups: Set[str], topics: Container[str] = ()) -> tuple[str, str | None]:
    """Return the group of a retry or dead-letter topic and, of a POP retry topic, the topic.

    By the ``groups`` and ``topics`` that exist. Where no pair of them has such a name, the longest
    group that it begins with is taken; where there is none, the name is that of a group.
    """
    name = _name(topic)
    pairs = list(_pairs(name)) if topic.startswith(RETRY_PREFIX) else []
    if name not in groups:
        for group, origin in pairs:
            if group in groups and origin in topics:
                return group, origin
        for group, origin in pairs:
            if group in groups or f"{group}+{origin}" == name:
                return group, origin
    return name, None


def chosen_owners(
    source: BoundsSource,
    snapshot: Snapshot,
    groups: Callable[[str], object],
    option: str | None = None,
) -> ChosenOwners:
    """Return the owners of the topics of retries and dead letters, one that passes ``groups`` each.

    Checkpoints are read where a POP retry topic is there, of the groups that pass; ``option`` is
    the text that chose them. Raises as ``pop_state``.
    """
    found = _owners(source, snapshot, groups, option)
    by_topic = {
        topic: its for topic, its in found.items() if any(groups(owner.group) for owner in its)
    }
    names = (owner.group for its in by_topic.values() for owner in its)
    return ChosenOwners(by_topic, frozenset(name for name in names if groups(name)))


def _owners(
    source: BoundsSource,
    snapshot: Snapshot,
    groups: Callable[[str], object],
    option: str | None,
) -> dict[str, list[RetryOwner]]:
    config = source.config
    committed, topics = config.consumer_offsets(), config.topics()
    known = {group for _, group in committed} | config.groups()
    held = {queue.topic for queue in snapshot.queues if is_source(queue.topic)}
    found = {topic: _named(topic, committed, known, topics) for topic in held}
    has_pops = any(origin is not None for pairs in found.values() for _, origin in pairs)
    of_pops = snapshot_of_pops(source, ()) if has_pops else None
    state = None
    if of_pops is not None:
        state = pop_state(source, of_pops, groups, config.pop_facts(), committed, option)
        for (retry, group), base in state.bases.items():
            if retry in found:
                others = {pair for pair in found[retry] if pair[0] != group}
                found[retry] = others | {(group, base)}
    return {
        topic: [
            _owner(topic, pair, committed, snapshot if of_pops is None else of_pops, state)
            for pair in sorted(pairs, key=str)
        ]
        for topic, pairs in found.items()
    }


def _named(
    topic: str, committed: GroupOffsets, groups: Set[str], topics: Container[str]
) -> set[tuple[str, str | None]]:
    """Return the groups of a topic with the topics of POP, by offsets, else by names."""
    name, of_retries = _name(topic), topic.startswith(RETRY_PREFIX)
    found: set[tuple[str, str | None]] = set()
    if (topic, name) in committed:
        found.add((name, None))
    if of_retries:
        found |= {pair for pair in _pairs(name) if (topic, pair[0]) in committed}
    return found or {owner_of(topic, groups, topics)}


def _owner(
    topic: str,
    pair: tuple[str, str | None],
    committed: GroupOffsets,
    snapshot: Snapshot,
    state: PopState | None,
) -> RetryOwner:
    group, origin = pair
    popped = {}
    queue_ids = [queue.queue_id for queue in snapshot.queues if queue.topic == topic]
    for queue_id in queue_ids:
        found = None if state is None else state.queue(topic, group, queue_id)
        if found is not None:
            popped[queue_id] = found
    has_timers = any(queue.topic == TIMER_TOPIC for queue in snapshot.queues)
    return RetryOwner(
        group,
        origin,
        committed.get((topic, group), {}),
        popped,
        state is not None and has_timers,
        snapshot.taken_ms,
    )


def _name(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)


def _pairs(name: str) -> Iterator[tuple[str, str]]:
    """Yield the groups and topics that a name may be made of, the longest group first.

    No group has a ``+`` in its name: Validators#checkGroup.
    """
    group, plus, origin = name.partition("+")
    if plus and group and origin:
        yield group, origin
        return
    for at in range(len(name) - 2, 0, -1):
        if name[at] == "_":
            yield name[:at], name[at + 1 :]

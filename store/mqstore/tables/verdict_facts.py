"""What is found out about consumer groups beside their backlog, for the verdicts.

Each function reads what it can, within bounds, and leaves out what it cannot.

Reference: AbstractSendMessageProcessor#consumerSendMsgBack for the topics of retries and dead
letters; ScheduleMessageService for retries that wait for their time.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from mqstore.backlog import BacklogItem
from mqstore.backlog.standing import Standing
from mqstore.errors import StoreError
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from mqstore.read.broker_state import GroupMember
from mqstore.read.capabilities import ShowsMembers
from mqstore.read.heads import NO_TIMESTAMP
from mqstore.read.queues import QueueBounds
from mqstore.read.source import BoundsSource, Origin, QueueSlice, Snapshot
from mqstore.tables.absence import raise_absence
from mqstore.tables.looks import PastLook, QueueOfBroker
from mqstore.tables.retry_owners import is_source, owner_of
from mqstore.tables.table import TableRequest
from mqstore.verdicts.bounds import RECENT_MS
from mqstore.verdicts.facts import Look

_LOG: Final = logging.getLogger(__name__)

_MOST_RECEIVING: Final = 500
"""Queues whose last messages are looked for: each costs a bisection."""
_MOST_RETRIED: Final = 500
"""Messages of a queue of retries that are looked at."""
_MOST_ASKED: Final = 256
"""Members of groups that are asked for what they subscribe to: each answers by itself."""
_ASKING_S: Final = 30.0
"""So long members are asked: one that hangs holds up the others."""
_FIRST_RETRY_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class BesideGroups:
    """What lies beside the queues of groups: messages to be retried, dead letters."""

    retried: tuple[QueueSlice, ...] = ()
    dead: tuple[QueueSlice, ...] = ()
    group_of: Mapping[str, str] = field(default_factory=dict)


def stored_ms(origin: Origin, queue: QueueOfBroker, queue_offset: int) -> int | None:
    """Return when the message there was stored (epoch ms); None if that cannot be known."""
    _, topic, queue_id = queue
    try:
        with closing(origin.records()) as source:
            units = source.at((topic, queue_id), [queue_offset])
            if units is None:
                return None
            found_ms = int(source.store_timestamps(units)[0])
    except (StoreError, OSError) as error:
        raise_absence(error)
        _LOG.info("the time of a message is not known: %s", error)
        return None
    return None if found_ms == NO_TIMESTAMP else found_ms


def members_of(
    pairs: Sequence[tuple[BoundsSource, Snapshot]], items: Sequence[BacklogItem]
) -> dict[str, tuple[GroupMember, ...]]:
    """Return the members of groups, of each once: they are connected to several brokers.

    At most _MOST_ASKED members are asked, and none after _ASKING_S, for one that hangs costs a
    time-out; a group of which one cannot be asked is left out.
    """
    online = {item.group: item.consumers for item in items if item.consumers}
    found: dict[str, tuple[GroupMember, ...]] = {}
    left, end = _MOST_ASKED, time.monotonic() + _ASKING_S
    for group in sorted(online):
        by_client: dict[str, GroupMember] = {}
        for source, _ in pairs if left > 0 and time.monotonic() < end else ():
            shown = source.members(group) if isinstance(source, ShowsMembers) else None
            if shown is None:
                break
            left -= len(shown)
            by_client |= {member.client_id: member for member in shown}
        else:
            found[group] = tuple(by_client.values())
    return {group: members for group, members in found.items() if members}


_GroupTopic: TypeAlias = tuple[str, str]


def looks_of(
    looks: Sequence[PastLook], items: Sequence[BacklogItem], as_of_ms: int
) -> dict[tuple[str, QueueOfBroker], Look]:
    """Return the queues of groups at an earlier look; without those that no look has.

    It is the oldest one of the last RECENT_MS that knows all offsets that a group has committed in
    a topic by now: a group that was not there yet, or a queue that it had not, did not stand since.
    Where there is none, it is the oldest one that has the queue.
    """
    recent = [look for look in looks if 0 < as_of_ms - look.at_ms <= RECENT_MS]
    committed: defaultdict[_GroupTopic, set[tuple[str, QueueOfBroker]]] = defaultdict(set)
    for item in items if recent else ():
        if item.consumer_offset is not None:
            committed[item.group, item.topic].add((item.group, _queue_of(item)))
    whole = {
        pair: next((look for look in recent if look.committed.keys() >= queues), None)
        for pair, queues in committed.items()
    }
    found = {}
    for item in items if recent else ():
        queue = _queue_of(item)
        chosen = whole.get((item.group, item.topic))
        candidates = recent if chosen is None else [chosen, *recent]
        look = next((one for one in candidates if queue in one.ends), None)
        if look is not None:
            done = look.committed.get((item.group, queue))
            rest_ms = _rest_ms(looks, item, as_of_ms)
            found[item.group, queue] = Look(done, look.ends[queue], as_of_ms - look.at_ms, rest_ms)
    return found


def _queue_of(item: BacklogItem) -> QueueOfBroker:
    return item.broker_name, item.topic, item.queue_id


def _rest_ms(looks: Sequence[PastLook], item: BacklogItem, as_of_ms: int) -> int:
    """Return for how long at most the offset stood between looks, and moved after them."""
    queue = _queue_of(item)
    points = [
        (look.at_ms, look.committed.get((item.group, queue)), look.ends[queue])
        for look in looks
        if queue in look.ends
    ]
    points.append((as_of_ms, item.consumer_offset, item.high))
    longest, since_ms = 0, points[0][0]
    for (_, before, end), (at_ms, after, _) in pairwise(points):
        if before is None or after is None or before >= end:
            since_ms = at_ms  # Nothing waited.
        elif after != before:
            longest, since_ms = max(longest, at_ms - since_ms), at_ms
    return longest


def received_by(
    pairs: Sequence[tuple[BoundsSource, Snapshot]], items: Sequence[BacklogItem]
) -> dict[QueueOfBroker, int]:
    """Return how many messages queues received in the RECENT_MS before their topic's last one.

    Of topics with several queues in which a group lags; not of more than _MOST_RECEIVING queues.
    """
    lags = Standing.of(items).lag.tolist() if items else []
    behind = {item.topic for item, lag in zip(items, lags, strict=True) if lag}
    found: dict[QueueOfBroker, int] = {}
    left = _MOST_RECEIVING
    for topic in sorted(behind):
        queues = [(s, h, q) for s, h in pairs for q in h.queues if q.topic == topic]
        if len(queues) < 2 or len(queues) > left:
            continue
        left -= len(queues)
        last_ms = max((_last_ms(held, queue) for _, held, queue in queues), default=0)
        for source, held, queue in queues if last_ms else ():
            try:
                (first,) = source.first_at([queue], [last_ms - RECENT_MS])
            except (StoreError, OSError) as error:
                raise_absence(error)
                _LOG.info("what a queue received is not known: %s", error)
                continue
            found[held.broker_name, topic, queue.queue_id] = queue.high - first
    return found


def _last_ms(held: Snapshot, queue: QueueBounds) -> int:
    if not queue.messages:
        return 0
    place = held.broker_name, queue.topic, queue.queue_id
    return stored_ms(held.origin, place, queue.high - 1) or 0


def asides_of(
    pairs: Sequence[tuple[BoundsSource, Snapshot]],
    request: TableRequest,
    items: Sequence[BacklogItem],
) -> BesideGroups:
    """Return the queues of retries and dead letters of the chosen groups; ``items`` are theirs.

    Of a POP group those retries too that are popped and not acknowledged.
    """
    chosen = request.group_choice(request.known_groups)
    known = {item.group for item in items} | request.known_groups()
    popped = {
        _queue_of(item): item.popped.open.tolist()[:_MOST_RETRIED]
        for item in items
        if item.popped is not None and item.topic.startswith(RETRY_PREFIX)
    }
    retried: list[QueueSlice] = []
    dead: list[QueueSlice] = []
    # The first retries wait in the schedule topic, and the retry topic may have no queue yet.
    group_of = {f"{RETRY_PREFIX}{group}": group for group in known if chosen(group)}
    for source, held in pairs:
        committed, topics = source.config.consumer_offsets(), source.config.topics()
        for queue in held.queues:
            if not is_source(queue.topic):
                continue
            group, _ = owner_of(queue.topic, known, topics)
            if not chosen(group):
                continue
            group_of[queue.topic] = group
            if queue.topic.startswith(DLQ_PREFIX):
                dead += _piece(held, queue, queue.low, queue.high)
            else:
                done = committed.get((queue.topic, group), {}).get(queue.queue_id, 0)
                start = min(max(done, queue.low), queue.high)
                for at in popped.get((held.broker_name, queue.topic, queue.queue_id), ()):
                    retried += _piece(held, queue, at, min(at + 1, start))
                retried += _piece(held, queue, start, min(queue.high, start + _MOST_RETRIED))
        retried += _scheduled(source, held)
    return BesideGroups(tuple(retried), tuple(dead), group_of)


def _scheduled(source: BoundsSource, held: Snapshot) -> Iterator[QueueSlice]:
    """Yield the first messages that wait for their time on the levels of retries."""
    queues = [queue for queue in held.queues if queue.topic == SCHEDULE_TOPIC]
    delivered = source.config.delay_offsets() if queues else {}
    for queue in queues:
        level = queue.queue_id + 1
        start = min(max(delivered.get(level, 0), queue.low), queue.high)
        if level >= _FIRST_RETRY_LEVEL:
            yield from _piece(held, queue, start, min(queue.high, start + _MOST_RETRIED))


def _piece(held: Snapshot, queue: QueueBounds, start: int, end: int) -> list[QueueSlice]:
    start = max(start, queue.readable_low)
    place = queue.topic, queue.queue_id, start, end
    return [QueueSlice(held.origin, held.broker_name, *place)] if start < end else []

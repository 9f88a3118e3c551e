"""Verdicts: why consumer groups are behind. The facts are gathered here, the rules judge them.

Nothing that could not be found out is a fact: then a rule that needs it does not speak.

Reference: AbstractSendMessageProcessor#consumerSendMsgBack for the topics of retries and dead
letters; ScheduleMessageService for retries that wait for their time.
"""

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mqstore import backlog
from mqstore.backlog import BacklogItem, BacklogRequest, PackedItems
from mqstore.backlog.standing import Standing
from mqstore.errors import StoreError
from mqstore.format import properties
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from mqstore.read.broker_state import GroupMember
from mqstore.read.capabilities import ShowsMembers
from mqstore.read.heads import NO_TIMESTAMP
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, Origin, QueueSlice, Snapshot
from mqstore.tables import retries
from mqstore.tables.backlogs import planned_items
from mqstore.tables.columns import Columns, TableRow, batches, schema, text
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, Table, TableRequest
from mqstore.verdicts.facts import GroupFacts, Look, QueueFacts, Retried, TopicFacts, Verdict
from mqstore.verdicts.rules import RECENT_MS, verdicts

_LOG: Final = logging.getLogger(__name__)

COLUMNS: Final[Columns] = (
    ("group", pa.string(), False, "consumer group"),
    ("verdict", pa.string(), False, "one word for the reason"),
    ("topic", pa.string(), True, "topic; null: it is about all of the group"),
    ("brokerName", pa.string(), True, "name of the store's broker; null: about all queues"),
    ("queueId", pa.int32(), True, "queue; null: about all queues"),
    ("evidence", pa.string(), False, "what shows it, as a sentence"),
    ("numbers", pa.string(), False, "the numbers that were compared, as a JSON object"),
    ("next", pa.string(), False, "a command that shows more; PLACE is the place that was read"),
)
SCHEMA: Final = schema(COLUMNS)

_MOST_RECEIVING: Final = 500
"""Queues whose last messages are looked for: each costs a bisection."""
_MOST_RETRIED: Final = 500
"""Messages of a queue of retries that are looked at."""
_MOST_ASKED: Final = 256
"""Members of groups that are asked for what they subscribe to: each answers by itself."""
_FIRST_RETRY_LEVEL: Final = 3
_BrokerQueue: TypeAlias = tuple[str, str, int]
"""A broker's name, a topic and a queueId."""


@dataclass(frozen=True, slots=True)
class _Aside:
    """What lies beside the queues of groups: messages to be retried, dead letters."""

    retried: tuple[QueueSlice, ...] = ()
    dead: tuple[QueueSlice, ...] = ()
    group_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerdictsPart:
    """Groups to judge: their queues, and what was found on the driver. Pickles into a task."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    looks: Mapping[tuple[str, _BrokerQueue], Look]
    received: Mapping[_BrokerQueue, int]
    aside: _Aside
    members: Mapping[str, tuple[GroupMember, ...]]

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the verdicts, group by group, the most telling ones first."""
        yield from batches(map(_row, self._verdicts()), SCHEMA)

    def _verdicts(self) -> Iterator[Verdict]:
        items = self.items.items()
        origins = {(one.broker_name, one.topic, one.queue_id): one.origin for one in items}
        topics: defaultdict[tuple[str, str], list[QueueFacts]] = defaultdict(list)
        for measured in backlog.measure_in_batches(items, self.request, self.as_of_ms):
            for row in measured.to_pylist():
                if not row["topic"].startswith(RETRY_PREFIX):
                    topics[row["group"], row["topic"]].append(self._queue(row, origins))
        retried, dead = self._retried(), self._dead()
        groups = sorted({group for group, _ in topics} | set(retried) | set(dead))
        for group in groups:
            found = [
                TopicFacts(group, topic, self.as_of_ms, tuple(queues))
                for (of, topic), queues in sorted(topics.items(), key=lambda one: one[0])
                if of == group
            ]
            count, newest_ms = dead.get(group, (0, None))
            held = tuple(topic for topic in found if not topic.is_gone)
            again = tuple(retried.get(group, ()))
            facts = GroupFacts(group, held, count, newest_ms, again, self.members.get(group))
            yield from verdicts(facts)

    def _queue(self, row: dict[str, Any], origins: Mapping[_BrokerQueue, Origin]) -> QueueFacts:
        place = row["brokerName"], row["topic"], row["queueId"]
        facts = QueueFacts(
            broker_name=row["brokerName"],
            queue_id=row["queueId"],
            broker_offset=row["brokerOffset"],
            consumer_offset=row["consumerOffset"],
            min_offset=row["minOffset"],
            lag=row["lag"],
            matching=row["lagMatching"],
            expired=row["expired"],
            status=row["status"],
            subscription=row["subscription"],
            expression_type=row["expressionType"],
            consumers=row["consumers"],
            last_consumed_ms=_epoch_ms(row["lastConsumedStoreTimestamp"]),
            received=self.received.get(place),
            before=self.looks.get((row["group"], place)),
        )
        since = _epoch_ms(row["firstUnconsumedStoreTimestamp"])
        if facts.lag and (facts.matching < facts.lag or since is None):
            since = _stored_ms(origins[place], place, facts.start)
        return replace(facts, waiting_since_ms=since)

    def _retried(self) -> dict[str, list[Retried]]:
        """Return the messages of each group that will be delivered again."""
        found: defaultdict[str, dict[str, Retried]] = defaultdict(dict)
        settings = ScanSettings(
            columns=("msgId", "keys", "reconsumeTimes", "properties"),
            on_corrupt="skip",
            fail_on_data_loss=False,
        )
        for piece in self.aside.retried:
            for rows in scan([piece], settings):
                real = text(rows, properties.REAL_TOPIC).to_pylist()
                origin = text(rows, properties.RETRY_TOPIC).to_pylist()
                names = ("msgId", "keys", "reconsumeTimes")
                columns = (rows[name].to_pylist() for name in names)
                for msg_id, keys, times, topic, of in zip(*columns, real, origin, strict=True):
                    retry = topic if piece.topic == SCHEDULE_TOPIC else piece.topic
                    group = self.aside.group_of.get(retry or "")
                    known = found[group].get(msg_id) if group else None
                    if group and (known is None or known.times < times):
                        found[group][msg_id] = Retried(msg_id, keys, of, times)
        return {
            group: sorted(of.values(), key=lambda one: -one.times) for group, of in found.items()
        }

    def _dead(self) -> dict[str, tuple[int, int | None]]:
        """Return of each group the number of dead letters, and when the last one was stored."""
        counts = Counter[str]()
        newest: dict[str, int] = {}
        for piece in self.aside.dead:
            group = self.aside.group_of[piece.topic]
            counts[group] += piece.end - piece.start
            place = piece.broker_name, piece.topic, piece.queue_id
            stored_ms = _stored_ms(piece.origin, place, piece.end - 1)
            if stored_ms is not None:
                newest[group] = max(newest.get(group, 0), stored_ms)
        return {group: (count, newest.get(group)) for group, count in counts.items()}


def _stored_ms(origin: Origin, queue: _BrokerQueue, queue_offset: int) -> int | None:
    """Return when the message there was stored (epoch ms); None if that cannot be known."""
    _, topic, queue_id = queue
    try:
        with closing(origin.records()) as source:
            units = source.at((topic, queue_id), [queue_offset])
            if units is None:
                return None
            stored_ms = int(source.store_timestamps(units)[0])
    except (StoreError, OSError) as error:
        _LOG.info("the time of a message is not known: %s", error)
        return None
    return None if stored_ms == NO_TIMESTAMP else stored_ms


def _epoch_ms(moment: Any) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def _row(verdict: Verdict) -> TableRow:
    return (
        verdict.group, verdict.word, verdict.topic, verdict.broker_name, verdict.queue_id,
        verdict.evidence, json.dumps(dict(verdict.numbers)), verdict.next,
    )  # fmt: skip


def _planned(request: TableRequest) -> list[VerdictsPart]:
    first = _first_look(request)
    snapshots = request.stores.held_of(lambda _: True)
    items, asked, as_of_ms = planned_items(request, snapshots)
    looks = {}
    for item in items:
        committed, ends = first.get(item.broker_name, ({}, {}))
        end = ends.get((item.topic, item.queue_id))
        if end is not None:
            place = item.broker_name, item.topic, item.queue_id
            consumer_offset = committed.get((item.topic, item.group), {}).get(item.queue_id)
            looks[item.group, place] = Look(consumer_offset, *end)
    pairs = list(zip(request.stores.sources, snapshots, strict=True))
    aside = _aside(pairs, request, {item.group for item in items})
    received = _received(pairs, items)
    members = _members(pairs, items)
    packed = PackedItems.of(items)
    return [VerdictsPart(packed, asked, as_of_ms, looks, received, aside, members)]


def _members(
    pairs: Sequence[tuple[BoundsSource, Snapshot]], items: Sequence[BacklogItem]
) -> dict[str, tuple[GroupMember, ...]]:
    """Return the members of groups, of each once: they are connected to several brokers.

    At most _MOST_ASKED members are asked; a group of which one cannot be is left out.
    """
    online = {item.group: item.consumers for item in items if item.consumers}
    found: dict[str, tuple[GroupMember, ...]] = {}
    left = _MOST_ASKED
    for group in sorted(online):
        by_client: dict[str, GroupMember] = {}
        for source, _ in pairs if left > 0 else ():
            shown = source.members(group) if isinstance(source, ShowsMembers) else None
            if shown is None:
                break
            left -= len(shown)
            by_client |= {member.client_id: member for member in shown}
        else:
            found[group] = tuple(by_client.values())
    return {group: members for group, members in found.items() if members}


_Offsets: TypeAlias = Mapping[tuple[str, str], Mapping[int, int]]
_Ends: TypeAlias = dict[tuple[str, int], tuple[int, int]]


def _first_look(request: TableRequest) -> dict[str, tuple[_Offsets, _Ends]]:
    """Return the offsets of groups and the ends of queues by broker, and wait for ``lookAgain``.

    Nothing without that option. An end has the ms until the second look beside it.
    """
    if request.look_again_ms is None:
        return {}
    start = time.monotonic()
    snapshots = request.stores.held_of(lambda _: True)
    found = [
        (held.broker_name, source.config.consumer_offsets(), held.queues)
        for source, held in zip(request.stores.sources, snapshots, strict=True)
    ]
    Event().wait(request.look_again_ms / 1000)
    ms = round((time.monotonic() - start) * 1000)
    return {
        name: (committed, {(q.topic, q.queue_id): (q.high, ms) for q in queues})
        for name, committed, queues in found
    }


def _received(
    pairs: Sequence[tuple[BoundsSource, Snapshot]], items: Sequence[BacklogItem]
) -> dict[_BrokerQueue, int]:
    """Return how many messages queues received in the RECENT_MS before their topic's last one.

    Of topics with several queues in which a group lags; not of more than _MOST_RECEIVING queues.
    """
    lags = Standing.of(items).lag.tolist() if items else []
    behind = {item.topic for item, lag in zip(items, lags, strict=True) if lag}
    found: dict[_BrokerQueue, int] = {}
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
                _LOG.info("what a queue received is not known: %s", error)
                continue
            found[held.broker_name, topic, queue.queue_id] = queue.high - first
    return found


def _last_ms(held: Snapshot, queue: QueueBounds) -> int:
    if not queue.messages:
        return 0
    place = held.broker_name, queue.topic, queue.queue_id
    return _stored_ms(held.origin, place, queue.high - 1) or 0


def _aside(
    pairs: Sequence[tuple[BoundsSource, Snapshot]], request: TableRequest, groups: set[str]
) -> _Aside:
    """Return the queues of retries and dead letters of the chosen groups."""
    chosen = request.group_choice(request.known_groups)
    known = groups | request.known_groups()
    retried: list[QueueSlice] = []
    dead: list[QueueSlice] = []
    # The first retries wait in the schedule topic, and the retry topic may have no queue yet.
    group_of = {f"{RETRY_PREFIX}{group}": group for group in known if chosen(group)}
    for source, held in pairs:
        committed = source.config.consumer_offsets()
        for queue in held.queues:
            if not retries.is_source(queue.topic):
                continue
            group = retries.group_of(queue.topic, known)
            if not chosen(group):
                continue
            group_of[queue.topic] = group
            if queue.topic.startswith(DLQ_PREFIX):
                dead += _piece(held, queue, queue.low, queue.high)
            else:
                done = committed.get((queue.topic, group), {}).get(queue.queue_id, 0)
                start = min(max(done, queue.low), queue.high)
                retried += _piece(held, queue, start, min(queue.high, start + _MOST_RETRIED))
        retried += _scheduled(source, held)
    return _Aside(tuple(retried), tuple(dead), group_of)


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
    place = queue.topic, queue.queue_id, start, end
    return [QueueSlice(held.origin, held.broker_name, *place)] if start < end else []


VERDICTS: Final = Table(
    "verdicts",
    COLUMNS,
    _planned,
    options=BY_QUEUE | BY_GROUP | FROM_LOG | {"subscriptions", "lookAgain"},
    owner="group",
)

"""Verdicts: why consumer groups are behind. The facts are gathered here, the rules judge them.

Nothing that could not be found out is a fact: then a rule that needs it does not speak.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from mqstore import backlog
from mqstore.backlog import BacklogRequest, PackedItems
from mqstore.format import properties
from mqstore.format.names import RETRY_PREFIX, SCHEDULE_TOPIC
from mqstore.pop.state import PULL, UNKNOWN_POPS
from mqstore.read.broker_state import GroupMember
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Origin
from mqstore.tables.backlogs import planned_items
from mqstore.tables.columns import Columns, TableRow, batches, schema, text
from mqstore.tables.looks import QueueOfBroker, earlier_looks, log_states
from mqstore.tables.owners import OF_GROUP
from mqstore.tables.retained import Retained, retained
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, LOOKS, Table, TableRequest
from mqstore.tables.verdict_facts import (
    BesideGroups,
    asides_of,
    looks_of,
    members_of,
    received_by,
    stored_ms,
)
from mqstore.verdicts.facts import GroupFacts, Look, QueueFacts, Retried, TopicFacts, Verdict
from mqstore.verdicts.rules import verdicts

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


@dataclass(frozen=True, slots=True)
class VerdictsPart:
    """Groups to judge: their queues, and what was found on the driver. Pickles into a task."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    looks: Mapping[tuple[str, QueueOfBroker], Look]
    received: Mapping[QueueOfBroker, int]
    aside: BesideGroups
    members: Mapping[str, tuple[GroupMember, ...]]
    retention: Retained

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

    def _queue(self, row: dict[str, Any], origins: Mapping[QueueOfBroker, Origin]) -> QueueFacts:
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
            pops=row["mode"] != PULL or row["status"] in UNKNOWN_POPS,
        )
        since = _epoch_ms(row["firstUnconsumedStoreTimestamp"])
        if facts.lag and (facts.matching < facts.lag or since is None):
            since = stored_ms(origins[place], place, facts.start)
        loss = self.retention.loss(row["group"], place, since, self.as_of_ms)
        if since is None and facts.waits_at_least_ms is not None:
            since = self.as_of_ms - facts.waits_at_least_ms  # The message itself cannot be read.
        return replace(facts, waiting_since_ms=since, loss=loss)

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
            newest_ms = stored_ms(piece.origin, place, piece.end - 1)
            if newest_ms is not None:
                newest[group] = max(newest.get(group, 0), newest_ms)
        return {group: (count, newest.get(group)) for group, count in counts.items()}


def _epoch_ms(moment: Any) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def _row(verdict: Verdict) -> TableRow:
    return (
        verdict.group, verdict.word, verdict.topic, verdict.broker_name, verdict.queue_id,
        verdict.evidence, json.dumps(dict(verdict.numbers)), verdict.next,
    )  # fmt: skip


def _planned(request: TableRequest) -> list[VerdictsPart]:
    past = earlier_looks(request)
    snapshots = request.stores.held_of(lambda _: True)
    items, asked, as_of_ms = planned_items(request, snapshots)
    looks = looks_of(past, items, as_of_ms)
    pairs = list(zip(request.stores.sources, snapshots, strict=True))
    aside = asides_of(pairs, request, items)
    received = received_by(pairs, items)
    members = members_of(pairs, items)
    packed = PackedItems.of(items)
    kept = retained(pairs, items, request, log_states(pairs), past, as_of_ms)
    return [VerdictsPart(packed, asked, as_of_ms, looks, received, aside, members, kept)]


VERDICTS: Final = Table(
    "verdicts",
    (*COLUMNS, *OF_GROUP),
    _planned,
    options=BY_QUEUE | BY_GROUP | FROM_LOG | LOOKS | {"subscriptions"},
    owner="group",
)

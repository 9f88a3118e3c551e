"""The two sides of an audit: the brokers of a place, and the slices of their queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mqstore.audit.digests import AuditDigests, Bucket, digests_of
from mqstore.audit.found import MessagePlace
from mqstore.audit.relation import Naming, OffsetRelation, PlacedQueue
from mqstore.audit.rows import AuditRule
from mqstore.read.queues import QueueBounds
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of


@dataclass(frozen=True, slots=True)
class AuditedBroker:
    """One broker of a side, open to be read, and what its queues held when the audit began."""

    name: str
    source: BoundsSource
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class AuditSide:
    """One side of an audit. Brokers have the names by which they are found on the other side."""

    brokers: tuple[AuditedBroker, ...]
    naming: Naming | None = None

    def digests(self, rule: AuditRule) -> AuditDigests:
        """Return the digests of all messages, in one pass. Raises as ``scan``."""
        found = AuditDigests()
        for broker in self.brokers:
            found.merge(digests_of(slices_of(broker.snapshot), rule, broker.name, self.naming))
        return found

    def slices(self) -> list[QueueSlice]:
        """Return the slices of all queues."""
        return [piece for broker in self.brokers for piece in slices_of(broker.snapshot)]

    def of_place(self, place: MessagePlace) -> QueueSlice | None:
        """Return the slice of the whole queue that a message is of."""
        return self.of_queue((place.broker, place.topic, place.queue_id, 0))

    def of_queue(self, bucket: Bucket) -> QueueSlice | None:
        """Return the slice of the whole queue that a bucket is of; None where it holds nothing."""
        name, topic, queue_id, _ = bucket
        for broker in self.brokers:
            queue = broker.snapshot.queue(topic, queue_id) if broker.name == name else None
            if queue is not None:
                found = slices_of(broker.snapshot, [(queue, queue.low, queue.high)])
                return found[0] if found else None
        return None


def audit_sides(
    first: Sequence[tuple[BoundsSource, Snapshot]], second: Sequence[tuple[BoundsSource, Snapshot]]
) -> tuple[AuditSide, AuditSide]:
    """Return both sides. One broker on each is the same broker, whatever their names are."""
    sides = [
        AuditSide(tuple(AuditedBroker(s.broker_name, source, s) for source, s in brokers))
        for brokers in (first, second)
    ]
    if all(len(side.brokers) == 1 for side in sides):
        name = sides[0].brokers[0].name
        sides[1] = AuditSide((replace(sides[1].brokers[0], name=name),))
    return sides[0], sides[1]


def mapped_sides(
    source: Sequence[tuple[BoundsSource, Snapshot]],
    target: Sequence[tuple[BoundsSource, Snapshot]],
    relation: OffsetRelation,
    *,
    only_mapped: bool,
) -> tuple[AuditSide, AuditSide]:
    """Return the sides of the replay that an offset map is of.

    Where a side is one broker, and the map names one, it is that broker.
    """
    queues = relation.sources, relation.targets
    sides = []
    for brokers, mapped, is_target in zip((source, target), queues, (False, True), strict=True):
        audited = tuple(AuditedBroker(s.broker_name, origin, s) for origin, s in brokers)
        naming = Naming(relation, _renamed(audited, mapped), is_target, only_mapped)
        sides.append(AuditSide(audited, naming))
    return sides[0], sides[1]


def _renamed(brokers: Sequence[AuditedBroker], mapped: Sequence[PlacedQueue]) -> Mapping[str, str]:
    names = {broker for broker, _, _ in mapped}
    return {brokers[0].name: names.pop()} if len(brokers) == len(names) == 1 else {}


def unconsumed(
    brokers: Sequence[tuple[BoundsSource, Snapshot]], group: str
) -> list[tuple[BoundsSource, Snapshot]]:
    """Return brokers with what ``group`` has not consumed of their queues, by what it committed.

    A queue in which it committed nothing is there whole.
    """
    found = []
    for source, snapshot in brokers:
        committed = source.config.consumer_offsets()
        queues = tuple(
            _from(queue, committed.get((queue.topic, group), {}).get(queue.queue_id, 0))
            for queue in snapshot.queues
        )
        found.append((source, replace(snapshot, queues=queues)))
    return found


def _from(queue: QueueBounds, start: int) -> QueueBounds:
    low = min(max(queue.low, start), queue.high)
    return queue if low == queue.low else replace(queue, low=low, weight=None, count=None)

"""The two sides of an audit: the brokers of a place, and the slices of their queues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mqstore.audit.digests import AuditDigests, AuditRule, Bucket, digests_of
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

    def digests(self, rule: AuditRule) -> AuditDigests:
        """Return the digests of all messages, in one pass. Raises as ``scan``."""
        found = AuditDigests()
        for broker in self.brokers:
            found.merge(digests_of(slices_of(broker.snapshot), rule, broker.name))
        return found

    def slices(self) -> list[QueueSlice]:
        """Return the slices of all queues."""
        return [piece for broker in self.brokers for piece in slices_of(broker.snapshot)]

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

"""The two sides of an audit: the brokers of a place, and the slices of their queues."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, Protocol, Self, TypeVar

from mqstore.audit.digests import AuditDigests, Bucket, digests_of
from mqstore.audit.found import MessagePlace
from mqstore.audit.relation import Naming, OffsetRelation, PlacedQueue
from mqstore.audit.rows import AuditRule, DigestedRows, digested
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import BATCH_BYTES, ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of

_DESCRIBED_AT_A_TIME: Final = 2_000
_UNNAMED: Final = "broker"
"""What a broker is called whose name is on neither side."""


class Side(Protocol):
    """One side of an audit: the brokers of a place, or a table (``mqstore.audit.parquet``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its brokers."""

    @property
    def described_at_a_time(self) -> int:
        """Of how many differences ``rows_at`` is asked at once."""

    def renamed(self, name: str) -> Self:
        """Return it with that name for its only broker."""

    def of_queues(self, queues: frozenset[PlacedQueue]) -> Self:
        """Return it with these queues alone."""

    def digests(self, rule: AuditRule) -> AuditDigests:
        """Return the digests of all messages, in one pass. Raises as ``scan``."""

    def pieces(self, rule: AuditRule) -> Iterator[tuple[str, DigestedRows]]:
        """Yield brokers and messages of theirs, with their digests. Raises as ``scan``."""

    def rows_at(
        self, places: Sequence[MessagePlace], columns: Sequence[str]
    ) -> Iterable[tuple[MessagePlace, Mapping[str, Any]]]:
        """Yield the messages at places; what has expired meanwhile is not among them."""


OneSide = TypeVar("OneSide", bound=Side)
OtherSide = TypeVar("OtherSide", bound=Side)


@dataclass(frozen=True, slots=True)
class AuditedBroker:
    """One broker of a side, and what its queues held when the audit began. Pickles."""

    name: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class AuditSide:
    """One side of an audit. Brokers have the names by which they are found on the other side.

    It pickles into tasks.
    """

    brokers: tuple[AuditedBroker, ...]
    naming: Naming | None = None

    @classmethod
    def of(cls, brokers: Iterable[tuple[BoundsSource, Snapshot]]) -> "AuditSide":
        """Return the side that these brokers are."""
        return cls(tuple(AuditedBroker(one.broker_name, one) for _, one in brokers))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its brokers."""
        return tuple(broker.name for broker in self.brokers)

    @property
    def described_at_a_time(self) -> int:
        """Of how many differences ``rows_at`` is asked at once."""
        return _DESCRIBED_AT_A_TIME

    def counts(self) -> dict[PlacedQueue, int]:
        """Return how many messages each queue has, at most; queues without any are left out."""
        return {
            (broker.name, queue.topic, queue.queue_id): queue.high - queue.low
            for broker in self.brokers
            for queue in broker.snapshot.queues
            if queue.low < queue.high
        }

    def renamed(self, name: str) -> Self:
        """Return it with that name for its only broker."""
        return replace(self, brokers=(replace(self.brokers[0], name=name),))

    def of_queues(self, queues: frozenset[PlacedQueue]) -> Self:
        """Return it with these queues alone."""
        return replace(self, brokers=tuple(_with_queues(one, queues) for one in self.brokers))

    def digests(self, rule: AuditRule) -> AuditDigests:
        """Return the digests of all messages, in one pass. Raises as ``scan``."""
        found = AuditDigests()
        for broker in self.brokers:
            found.merge(digests_of(slices_of(broker.snapshot), rule, broker.name, self.naming))
        return found

    def pieces(self, rule: AuditRule) -> Iterator[tuple[str, DigestedRows]]:
        """Yield brokers and messages of theirs, with their digests. Raises as ``scan``."""
        for broker in self.brokers:
            slices = slices_of(broker.snapshot)
            for part in digested(slices, rule, merged=True, naming=self.naming):
                yield broker.name, part

    def rows_at(
        self, places: Sequence[MessagePlace], columns: Sequence[str]
    ) -> Iterator[tuple[MessagePlace, Mapping[str, Any]]]:
        """Yield the messages at places; what has expired meanwhile is not among them."""
        needed = tuple(dict.fromkeys(("topic", "queueId", "queueOffset", *columns)))
        settings = ScanSettings(columns=needed, batch_bytes=BATCH_BYTES, fail_on_data_loss=False)
        for _, of_it in groupby(sorted(places, key=attrgetter("broker")), attrgetter("broker")):
            known = {(one.topic, one.queue_id, one.queue_offset): one for one in of_it}
            held: dict[tuple[str, int], QueueSlice | None] = {}
            pieces = []
            for (topic, queue_id, at), one in sorted(known.items(), key=itemgetter(0)):
                if (topic, queue_id) not in held:
                    held[topic, queue_id] = self.of_queue((one.broker, topic, queue_id, 0))
                piece = held[topic, queue_id]
                if piece is not None and piece.start <= at < piece.end:
                    pieces.append(replace(piece, start=at, end=at + 1, weight=None))
            for batch in scan(pieces, settings):
                for row in batch.to_pylist():
                    yield known[row["topic"], row["queueId"], row["queueOffset"]], row

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
) -> tuple[Side, Side]:
    """Return both sides. One broker on each is the same broker, whatever their names are."""
    return matched(AuditSide.of(first), AuditSide.of(second))


def matched(first: OneSide, second: OtherSide) -> tuple[OneSide, OtherSide]:
    """Return both sides. One broker on each is the same broker, whatever their names are."""
    if len(first.names) == len(second.names) == 1:
        name = next((name for side in (first, second) for name in side.names if name), _UNNAMED)
        return first.renamed(name), second.renamed(name)
    return first, second


def _with_queues(broker: AuditedBroker, queues: frozenset[PlacedQueue]) -> AuditedBroker:
    snapshot = broker.snapshot
    kept = tuple(q for q in snapshot.queues if (broker.name, q.topic, q.queue_id) in queues)
    return replace(broker, snapshot=replace(snapshot, queues=kept))


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
        audited = tuple(AuditedBroker(one.broker_name, one) for _, one in brokers)
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

"""A stream over stores: where it stands, where its next micro-batch ends, what that holds.

Queues and topics that turn up later start from their first message; a stream of the topics it
started with passes later topics by. Positions are all that a checkpoint keeps, so this is how a
store that is not the one they are of can be told:

- a position behind the end of its queue, a queue with a position that is not there (any more),
  or that the query does not choose: Spark hands a source the offsets of its place in the plan;
- another broker's name, or another number of stores;
- while a query runs also a store that is replaced by any other: a record is watched (``tail``).

Brokers of a cluster come and go: new ones are followed from their first message, one that is away
is waited for. What needs a broker that is away (the start of a stream, the end of a run that must
end, a batch that was planned with its messages) waits for ``retryTimeout``, and then fails.

A store that was rebuilt while no query ran, and whose queues are all as long again as the
checkpoint says, cannot be told from the one it was: offsets are all there is to compare.

Reference: org.apache.spark.sql.kafka010.KafkaMicroBatchStream#latestOffset, #planInputPartitions.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

from mqstore.errors import DataLossError, StoreError, StoreReplacedError
from mqstore.format.arrays import Span
from mqstore.read.admission import Admission, share_bytes, share_count
from mqstore.read.background import Background
from mqstore.read.capabilities import Tail
from mqstore.read.progress import BrokerQueue, Progress
from mqstore.read.queues import Bounds
from mqstore.read.source import QueueSlice, Snapshot

AllBounds: TypeAlias = dict[BrokerQueue, tuple[int, int]]

Find: TypeAlias = Callable[[Set[str], Set[str]], Sequence[Tail]]
"""Gives tails of brokers beside those it is given first, and of those named second in any case."""

_LOG = logging.getLogger(__name__)
_FIND_S: Final = 10.0
_HIDDEN_S: Final = 0.1  # Between two looks for a queue that is not gone.
_LOOKS_AT_A_TIME: Final = 32
_GO_ON: Final = "(failOnDataLoss=false goes on at the end of the queue)"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What a queue has for a stream: queue offsets [start, end); ``known`` if it read there."""

    queue: BrokerQueue
    start: int
    end: int
    known: bool

    @property
    def count(self) -> int:
        return self.end - self.start


class Follower:
    """Plans micro-batches over the tails of stores, whose brokers' names differ."""

    def __init__(
        self,
        tails: Sequence[Tail],
        admission: Admission,
        *,
        fail_on_data_loss: bool = True,
        same_topics: bool = False,
        find: Find | None = None,
    ) -> None:
        """With ``same_topics``, follow in each store the topics that a start has, and no other.

        ``find`` looks for more brokers, every ten seconds. ``origins`` has what is read by its
        broker's name, later ones too.
        """
        found = [(tail.snapshot, tail) for tail in tails]
        self._tails = {snapshot.broker_name: tail for snapshot, tail in found}
        self.origins = {snapshot.broker_name: snapshot.origin for snapshot, _ in found}
        self._find = find
        self._find_at = time.monotonic() + _FIND_S
        self._finding: Background[Sequence[Tail]] | None = None
        self._admission = admission
        self._fail_on_data_loss = fail_on_data_loss
        self._topics: frozenset[tuple[str, str]] | None = frozenset() if same_topics else None
        self._target: Progress | None = None
        self._turn = 0
        self._looks: list[object] = []
        self._bounds: AllBounds = {}
        self._latest: tuple[AllBounds, Progress] | None = None
        self._idle: tuple[AllBounds, Progress] | None = None
        self._last_batch: float | None = None

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers' names."""
        return tuple(self._tails)

    @property
    def snapshots(self) -> list[Snapshot]:
        """The stores as they were at the last look."""
        return [tail.snapshot for tail in self._tails.values()]

    def close(self) -> None:
        """Close what the tails hold open."""
        with suppress(StoreError):
            self._take_found(wait=True)
        for tail in self._tails.values():
            tail.close()

    def meet(self, brokers: Set[str]) -> None:
        """Follow those brokers too, which a checkpoint names, even if they are away now."""
        if self._find is not None and not brokers <= self._tails.keys():
            self._take_found(wait=True)
            self._add(self._find(self._tails.keys(), brokers - self._tails.keys()))

    def await_all(self) -> None:
        """Return once no broker is away; raises why one is after ``retryTimeout``."""
        for tail in self._tails.values():
            tail.await_here()

    def aim(self) -> None:
        """From now on, let no batch end behind what there is now. Raises as ``await_all``."""
        self.await_all()
        bounds = self._look(at_once=True)
        self._target = {queue: high for queue, (_, high) in bounds.items()}

    def latest(self) -> Progress:
        """Return the ends of all queues that are followed and have a message."""
        bounds = self._look()
        if self._latest is None or self._latest[0] is not bounds:
            ends = {q: high for q, (_, high) in bounds.items() if high and self._follows(q)}
            self._latest = bounds, ends
        return self._latest[1]

    def next(self, start: Progress, *, limited: bool = True) -> Progress:
        """Return where the micro-batch from ``start`` ends: ``start`` itself if there is none.

        Raises DataLossError for messages that expired before they were read, StoreReplacedError
        for positions the store cannot have.
        """
        bounds = self._look()
        if self._target is not None:
            self.await_all()
            bounds = self._look()
        if self._idle is not None and self._idle[0] is bounds and self._idle[1] is start:
            return start
        self._keep_topics(start)
        found = self._waiting(start, bounds)
        total = sum(one.count for one in found)
        admission = self._admission
        bounded = limited and self._target is None
        if total and bounded and admission.is_held_back(total, self._waited_ms()):
            return start
        counts = [one.count for one in found]
        if limited and total:
            counts = self._admitted(found)
        moved = {
            one.queue: one.start + count
            for one, count in zip(found, counts, strict=True)
            if count or one.known
        }
        end = start | moved
        if end != start:
            self._last_batch = time.monotonic()
            return end
        self._idle = bounds, start
        return start

    def slices(self, start: Progress, end: Progress) -> list[QueueSlice]:
        """Return what the micro-batch from ``start`` to ``end`` reads.

        The same as long as the store holds the messages, whatever is appended to it.
        Raises as ``next`` does. A broker that is away, and whose messages the batch has, is waited
        for as ``await_all`` does.
        """
        planned = {queue: last for queue, last in end.items() if start.get(queue) != last}
        for broker in sorted({broker for _, broker, _ in planned}):
            self._tails[broker].await_here()
        bounds = self._await_queues(planned)
        found = []
        for queue, last in sorted(end.items()):
            held = bounds.get(queue)
            if self._tails[queue[1]].away is not None and queue not in planned:
                continue
            if held is None:
                self._check_gone(queue, last)
                continue
            stop = self._not_behind(queue, last, held)
            # Of a queue that was new to the batch, a message waited when it was planned.
            first = start.get(queue, min(held[0], stop - 1))
            begin = self._not_expired(queue, first, stop, held)
            if begin < stop:
                found.append(self._slice(queue, begin, stop))
        return found

    def _await_queues(self, planned: Iterable[BrokerQueue]) -> AllBounds:
        """Return the bounds, with the planned queues that are not gone: they may not show yet."""
        while True:
            bounds = self._look(at_once=True)
            hidden = [queue for queue in planned if queue not in bounds]
            if all(
                self._tails[broker].away is None and self._tails[broker].is_gone((topic, queue_id))
                for topic, broker, queue_id in hidden
            ):
                return bounds
            for _, broker, _ in hidden:
                self._tails[broker].await_here()
            time.sleep(_HIDDEN_S)

    def _look(self, *, at_once: bool = False) -> AllBounds:
        """Return the bounds of all queues: the same object if nothing has changed."""
        find, known = self._find, frozenset(self._tails)
        if find is not None and self._finding is None and time.monotonic() >= self._find_at:
            self._finding = Background(lambda: find(known, frozenset()))
        self._take_found()
        looks = self._looks_of(list(self._tails.values()), at_once)
        if any(a is not b for a, b in zip_longest(looks, self._looks)):
            self._looks = list(looks)
            self._bounds = {
                (topic, broker, queue_id): held
                for broker, look in zip(self._tails, looks, strict=True)
                for (topic, queue_id), held in look.items()
            }
        return self._bounds

    def _take_found(self, *, wait: bool = False) -> None:
        """Follow the brokers that were found since the last look, if any."""
        if self._finding is not None and (wait or self._finding.is_done):
            done, self._finding = self._finding, None
            self._find_at = time.monotonic() + _FIND_S
            self._add(done.result())

    def _looks_of(self, tails: list[Tail], at_once: bool) -> list[Bounds]:
        """Look at brokers of a cluster side by side: the slowest alone determines the time."""
        if self._find is None or len(tails) < 2:
            return [tail.look(at_once=at_once) for tail in tails]
        with ThreadPoolExecutor(min(len(tails), _LOOKS_AT_A_TIME), "look") as pool:
            return list(pool.map(lambda tail: tail.look(at_once=at_once), tails))

    def _add(self, tails: Sequence[Tail]) -> None:
        for tail in tails:
            snapshot = tail.snapshot
            self._tails[snapshot.broker_name] = tail
            self.origins[snapshot.broker_name] = snapshot.origin

    def _waiting(self, start: Progress, bounds: AllBounds) -> list[_Waiting]:
        for queue, position in start.items():
            if queue not in bounds:
                self._check_gone(queue, position)
        found = []
        for queue, held in sorted(bounds.items()):
            if not self._follows(queue):
                continue
            known = queue in start
            begin = start.get(queue, held[0])
            end = held[1]
            if self._tails[queue[1]].away is not None:
                end = begin  # Waits for its broker.
            if self._target is not None:
                end = min(end, max(begin, self._target.get(queue, 0)))
            if known:
                begin = self._not_behind(queue, begin, held)
                begin = self._not_expired(queue, begin, end, held)
            found.append(_Waiting(queue, begin, max(begin, end), known))
        return found

    def _keep_topics(self, start: Progress) -> None:
        """If the topics are those of the start: note which these are."""
        if self._topics is None:
            return
        topics = frozenset((topic, broker) for topic, broker, _ in start)
        if topics != self._topics:
            self._topics, self._latest = topics, None

    def _follows(self, queue: BrokerQueue) -> bool:
        return self._topics is None or queue[:2] in self._topics

    def _admitted(self, found: Sequence[_Waiting]) -> list[int]:
        admission, counts = self._admission, [one.count for one in found]
        if admission.max_offsets is not None:
            counts = share_count(counts, admission.max_offsets, self._turn)
        if admission.max_bytes is not None:

            def fitting(number: int, skip: int, most: int, room: int) -> tuple[int, int]:
                topic, broker, queue_id = found[number].queue
                start = found[number].start + skip
                return self._tails[broker].fitting((topic, queue_id), start, start + most, room)

            counts, _ = share_bytes(counts, admission.max_bytes, fitting, self._turn)
        self._turn += 1
        return counts

    def _waited_ms(self) -> float:
        if self._last_batch is None:
            return float("inf")
        return (time.monotonic() - self._last_batch) * 1000

    def _check_gone(self, queue: BrokerQueue, position: int) -> None:
        """Raise StoreReplacedError for a queue that was read, and is not there or not chosen."""
        topic, broker, queue_id = queue
        tail = self._tails[broker]
        if not position or tail.away is not None:
            return
        if not tail.chosen.passes(topic, queue_id):
            self._lost(
                StoreReplacedError(
                    f"the offsets are of topic {topic} (queue {queue_id}, read up to {position}), "
                    "which the query does not choose: they are of another query, or of another "
                    "source of this one, as where the sources of a union change their order "
                    "(failOnDataLoss=false goes on without the topic)"
                )
            )
            return
        if not tail.is_gone((topic, queue_id)):
            return
        self._lost(
            StoreReplacedError(
                f"{self.origins[broker].name} has no queue {queue_id} of topic {topic}, which was "
                f"read up to queue offset {position} (if the topic was deleted on purpose, "
                "failOnDataLoss=false goes on without it)"
            )
        )

    def _not_behind(self, queue: BrokerQueue, position: int, held: Span) -> int:
        """Return ``position``, or the end of the queue if it lies behind that."""
        if position <= held[1]:
            return position
        topic, broker, queue_id = queue
        high = self._tails[broker].look(at_once=True).get((topic, queue_id), held)[1]
        if position <= high:
            return position
        self._lost(
            StoreReplacedError(
                f"{topic}/{queue_id} of {self.origins[broker].name} ends at queue "
                f"offset {high}, but was read up to {position} {_GO_ON}"
            )
        )
        return high

    def _not_expired(self, queue: BrokerQueue, position: int, end: int, held: Span) -> int:
        low, high = held
        if position >= min(low, end):
            return position
        topic, _, queue_id = queue
        self._lost(
            DataLossError(f"{topic}/{queue_id}", start=position, end=end, low=low, high=high)
        )
        return low

    def _lost(self, error: DataLossError) -> None:
        if self._fail_on_data_loss:
            raise error
        _LOG.warning("%s", error)

    def _slice(self, queue: BrokerQueue, start: int, end: int) -> QueueSlice:
        topic, broker, queue_id = queue
        return QueueSlice(self.origins[broker], broker, topic, queue_id, start, end)

"""The moving bounds of one broker of a cluster, for a stream that may outlive the broker.

Bounds are asked for every 200 ms at most, one request a topic, and for a fifth of the time where
there are very many; topics and queues are looked up every ten seconds, or for a fortieth of
the time. Of many topics the broker is asked first, in one request, where its CommitLog begins and
ends: bounds are asked for once that has moved, and every minute. A broker that cannot be
reached, or that no name server knows, is ``away``: the last bounds stand, and it is tried again
every second, in the background, so that a broker which is silent does not hold up the others.

Reference: RouteInfoManager#onChannelDestroy (name servers forget a broker with its connection).
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from mqstore.errors import StoreError
from mqstore.format.arrays import TopicQueue
from mqstore.live.origin.bounds import weigh
from mqstore.live.origin.broker_queues import BrokerQueues
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.remoting.errors import (
    BrokerUnavailableError,
    NoMasterError,
    RequestRefusedError,
)
from mqstore.live.remoting.routes import READABLE, Route
from mqstore.live.remoting.topics import broker_infos, topics
from mqstore.read.background import Background
from mqstore.read.queues import Bounds, QueueBounds, QueueFilter
from mqstore.read.source import Origin, Snapshot

LOOK_S: Final = 0.2
ROUTES_S: Final = 10.0
MANY_TOPICS: Final = 64
WHOLE_S: Final = 60.0
ROUTES_SHARE: Final = 39
_ENTERED: Final = "0"
_PAUSE_SHARE: Final = 4  # Between two looks lies this many times what the first one took.
_AWAY_S: Final = 1.0
_POLL_S: Final = 0.1  # Between two looks at a broker that is waited for.


class LiveOrigin(Origin, Protocol):
    """An Origin that is told which topics have queues with holes."""

    def with_holes(self, topics: Collection[str]) -> Origin:
        """Return the same place, with those topics."""


class ClusterTail:
    """A Tail of one broker. Keeps connections: ``close`` it."""

    def __init__(
        self,
        origin: LiveOrigin,
        queues: BrokerQueues,
        chosen: QueueFilter,
        *,
        patience_ms: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the first look; ``queues`` are of a cluster that does not wait for its servers.

        ``patience_ms``: how long ``await_here`` waits. Raises as BrokerQueues, but for a broker
        that is away.
        """
        self.chosen = chosen
        self._away: StoreError | None = None
        self._away_since = 0.0
        self._try: Background[Bounds] | None = None
        self._closings = 0
        self._missing: dict[TopicQueue, float] = {}
        """Since when queues are missing that were asked for."""
        self._patience_s = patience_ms / 1000
        self._origin = origin
        self._queues = queues
        self._clock = clock
        self._routes: list[Route] = []
        self._tells_log = True
        self._log: tuple[int, int] | None = None
        self._whole_until = float("-inf")
        self._bounds: Bounds = {}
        self._taken_ms = 0
        self._routed_until = self._looked_until = float("-inf")
        try:
            self._look()
        except StoreError:
            self.close()
            raise

    @property
    def away(self) -> StoreError | None:
        """Why the last look found no broker; None: it did."""
        return self._away

    @property
    def snapshot(self) -> Snapshot:
        """The chosen queues as they were at the last look."""
        queues = tuple(QueueBounds(*name, *held) for name, held in sorted(self._bounds.items()))
        origin = self._origin.with_holes(self._queues.compacted)
        broker, refused = self._queues.broker, self._queues.refused
        found = Snapshot(origin, broker, 0, 0, queues, self._taken_ms, is_unclean=False)
        return replace(found, refused=tuple(refused.items()))

    def look(self, *, at_once: bool = False) -> Bounds:
        """Return what each queue holds; of a broker that is away, what it held."""
        is_due = self._clock() >= self._looked_until
        if self._away is not None:
            self._try_again(is_due=is_due)
        elif is_due or at_once:
            if at_once:
                self._log = None
            self._look()
        return self._bounds

    def fitting(self, queue: TopicQueue, start: int, end: int, room: int) -> tuple[int, int]:
        """Return about how many messages of [start, end) have ``room`` bytes, and their bytes.

        None of a broker that is away. By the mean of sizes at both ends of the range.
        """
        if self._away is not None:
            return 0, 0
        topic, queue_id = queue
        piece = LiveSlice(self._queues.broker, topic, queue_id, start, end)
        try:
            total = weigh(self._queues.cluster, [piece])[0]
        except (BrokerUnavailableError, NoMasterError):
            return 0, 0
        if total <= room:
            return end - start, total
        count = (end - start) * room // total
        return count, total * count // (end - start)

    def is_gone(self, queue: TopicQueue) -> bool:
        """Ask the broker itself whether it lacks a queue: name servers may not show it yet.

        Behind a proxy, which cannot be asked, a queue is gone that is missing for ``patience_ms``.
        """
        if self._away is not None:
            return False
        self._routed_until = float("-inf")
        missing_since = self._missing.setdefault(queue, self._clock())
        cluster, broker = self._queues.cluster, self._queues.broker
        try:
            if cluster.is_proxy:
                return self._clock() >= missing_since + self._patience_s
            topic = topics(cluster, [broker])[broker].get(queue[0])
        except (BrokerUnavailableError, NoMasterError):
            return False
        return topic is None or not topic.perm & READABLE or queue[1] >= topic.read_queues

    def await_here(self) -> None:
        """Return once the broker is there; raises why it is away, ``patience_ms`` after it went."""
        while self._away is not None:
            self.look()
            if self._away is not None:
                if self._clock() >= self._away_since + self._patience_s:
                    raise self._away
                time.sleep(_POLL_S)

    def close(self) -> None:
        """Close the connections; the next look opens them again."""
        self._try, self._closings = None, self._closings + 1
        self._queues.cluster.close()

    def _look(self) -> None:
        begin = self._clock()
        try:
            found = self._found()
        except (BrokerUnavailableError, NoMasterError) as error:
            self._note_away(error)
        else:
            self._note_here(found, self._clock() - begin)

    def _try_again(self, *, is_due: bool) -> None:
        if self._try is None and is_due:
            self._try = Background(self._found_apart)
        if self._try is None or not self._try.is_done:
            return
        done, self._try = self._try, None
        try:
            found = done.result()
        except (BrokerUnavailableError, NoMasterError) as error:
            self._note_away(error)
        else:
            self._note_here(found, 0.0)

    def _found_apart(self) -> Bounds:
        """Look in the background; connections that outlive ``close`` are closed."""
        closings = self._closings
        try:
            return self._found()
        finally:
            if closings != self._closings:
                self._queues.cluster.close()

    def _note_here(self, found: Bounds, took_s: float) -> None:
        # Another object also where the broker went away or came back: that is a change.
        if self._away is not None or (found is not self._bounds and found != self._bounds):
            self._bounds = dict(found)
        self._away = None
        self._missing = {q: at for q, at in self._missing.items() if q not in self._bounds}
        self._looked_until = self._clock() + max(LOOK_S, _PAUSE_SHARE * took_s)
        self._taken_ms = time.time_ns() // 1_000_000

    def _note_away(self, error: StoreError) -> None:
        self._queues.cluster.close()
        self._queues.cluster.forget(self._queues.broker)
        self._routed_until = float("-inf")
        self._looked_until = self._clock() + _AWAY_S
        if self._away is None:
            self._bounds, self._away_since = dict(self._bounds), self._clock()
        self._away = error

    def _found(self) -> Bounds:
        if self._clock() >= self._routed_until:
            self._find_routes()
        log = self._log_bounds()
        if log is not None and log == self._log and self._clock() < self._whole_until:
            return self._bounds
        found = {
            (queue.topic, queue.queue_id): (queue.low, queue.high)
            for queue in self._queues.bounds(self._routes)
            if self.chosen.passes(queue.topic, queue.queue_id)
        }
        self._queues.expect(topic for topic, _ in found)  # What is followed may not go away.
        self._log, self._whole_until = log, self._clock() + WHOLE_S
        return found

    def _log_bounds(self) -> tuple[int, int] | None:
        """Return the first and the last byte of the broker's CommitLog, if queues have all of it.

        None for a few topics, and where the broker does not tell: to know it takes rights.
        """
        cluster = self._queues.cluster
        if not self._tells_log or len(self._routes) < MANY_TOPICS or cluster.is_proxy:
            return None
        try:
            (info,) = broker_infos(cluster, [self._queues.broker])
        except RequestRefusedError:
            self._tells_log = False
            return None
        is_entered = info.runtime.get("dispatchBehindBytes") == _ENTERED
        return (info.low, info.high) if is_entered and info.high else None

    def _find_routes(self) -> None:
        begin, before = self._clock(), self._routes
        self._queues.check_registered()
        self._routes = self._queues.routes(self.chosen.topics, fresh=True)
        if self._routes != before:
            self._log = None
        took_s = self._clock() - begin
        self._routed_until = self._clock() + max(ROUTES_S, ROUTES_SHARE * took_s)

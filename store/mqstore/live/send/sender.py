"""The sender: requests to all queues at once, one under way in each, until each is acknowledged.

One request a queue, because a broker has several threads that store: two of one queue could
change places. A request whose answer was lost is sent again, or ends the sender, as its settings
say; a message of it may be in the queue twice then.

Reference: DefaultMQProducerImpl#sendDefaultImpl (what is tried again), MQFaultStrategy.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.remoting.advice import located
from mqstore.live.remoting.answers import first_line, header_number, refusal
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection, NotUnderstoodError
from mqstore.live.remoting.errors import BrokenAnswerError, BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.retry import NEW_ROUTE_AFTER
from mqstore.live.send.brokers import BrokerStates
from mqstore.live.send.errors import NotReplicatedError, SendFailedError
from mqstore.live.send.outcome import Outcome, outcome
from mqstore.live.send.pace import Pace
from mqstore.live.send.requests import Parcel, Queue, send_request

_MOST_PENDING_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """How a sender sends.

    ``repeats_unknown``: what may be stored is sent again (at least once). Otherwise the sender
    raises SendFailedError at once, with ``may_be_stored``; also before it sends anything by a
    second connection to a broker, which may have lost what it acknowledged on the first.
    """

    producer_group: str
    send_timeout_ms: int
    passes_over: bool = False
    requires_replica: bool = False
    repeats_unknown: bool = True


@dataclass(slots=True, kw_only=True)
class SendCounts:
    """What a sender did: messages and bytes acknowledged, and what did not go well."""

    messages: int = 0
    bytes: int = 0
    requests: int = 0
    refusals: int = 0
    """Requests that a broker refused for the moment, and that were sent again."""
    repeats: int = 0
    """Requests that were sent again although they may have been stored."""
    moves: int = 0
    """Requests that went to another broker than they were meant for."""
    alone: int = 0
    """Messages that a broker stored, but did not flush or copy as configured."""

    def add(self, other: "SendCounts") -> None:
        """Add the counts of another sender."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class _Held:
    parcel: Parcel
    deadline: float | None = None
    """None before it was tried."""
    may_be_stored: bool = False


@dataclass(frozen=True, slots=True)
class _Flight:
    queue: Queue
    connection: Connection
    sent_at: float


@dataclass(slots=True)
class _Line:
    """The parcels of one queue, in order; the first one may be under way."""

    waiting: deque[_Held] = field(default_factory=deque)
    is_under_way: bool = False


class Sender:
    """Sends parcels to the brokers of a cluster. Not for several threads.

    ``queues_of`` returns the queues that a topic's messages may move to, ``stored`` is called
    with each parcel that was acknowledged and the queue offset of its first message; ``guard``
    before each request, which is not sent if it raises. ``pace`` says when requests may be sent.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: SenderSettings,
        queues_of: Callable[[str], Sequence[Queue]] = lambda _: (),
        stored: Callable[[Parcel, int], None] = lambda _parcel, _queue_offset: None,
        guard: Callable[[], None] = lambda: None,
        *,
        pace: Pace | None = None,
    ) -> None:
        self.counts = SendCounts()
        self._cluster = cluster
        self._settings = settings
        self._queues_of = queues_of
        self._stored = stored
        self._guard = guard
        self._pace = pace or Pace()
        self._first_connections: dict[str, Connection] = {}
        self._states = BrokerStates()
        self._lines: dict[Queue, _Line] = {}
        self._flights: dict[tuple[Connection, int], _Flight] = {}
        self._pending_bytes = 0

    def send(self, parcel: Parcel) -> None:
        """Send a parcel, behind those of its queue; returns once few enough bytes are pending.

        Raises SendFailedError, NotReplicatedError, RequestRefusedError, AccessDeniedError,
        BrokenAnswerError: then nothing more can be said of the parcels that are pending.
        """
        self._lines.setdefault(parcel.queue, _Line()).waiting.append(_Held(parcel))
        self._pending_bytes += len(parcel.body)
        self._start()
        while self._pending_bytes > _MOST_PENDING_BYTES:
            self._step()

    def connect(self, brokers: Iterable[str]) -> None:
        """Connect to brokers now; raises BrokerUnavailableError, NoMasterError."""
        for broker in brokers:
            connection = self._cluster.connection(self._cluster.master(broker))
            self._first_connections.setdefault(broker, connection)

    def flush(self) -> None:
        """Return when all parcels are acknowledged; raises as ``send``."""
        while self._lines:
            self._step()

    def _step(self) -> None:
        self._start()
        self._collect()

    def _start(self) -> None:
        """Send the first parcel of each queue that has none under way and whose broker is ready."""
        for queue, line in list(self._lines.items()):
            if self._settings.passes_over and not line.is_under_way:
                self._move(queue, line)
        for queue, line in list(self._lines.items()):
            now = time.monotonic()
            if line.is_under_way or self._ready_at(queue) > now:
                continue
            waiting = line.waiting[0]
            if waiting.deadline is None:
                waiting.deadline = now + self._settings.send_timeout_ms / 1000
            self._start_first(queue, line)

    def _start_first(self, queue: Queue, line: _Line) -> None:
        waiting = line.waiting[0]
        self._check_first(queue, waiting)
        try:
            address = self._cluster.master(queue.broker)
        except (BrokerUnavailableError, NoMasterError) as error:
            self._failed([queue], error)
            return
        self._guard()
        request = send_request(self._settings.producer_group, waiting.parcel)
        is_connected = False
        try:
            connection = self._cluster.connection(address)
            self._first_connections.setdefault(queue.broker, connection)
            is_connected = True
            opaque = connection.send(request)
        except BrokerUnavailableError as error:
            waiting.may_be_stored |= is_connected
            self._cluster.failed_at(address)
            self._failed([queue], located(queue.broker, error))
            return
        self.counts.requests += 1
        self._pace.sent(waiting.parcel.count, len(waiting.parcel.body))
        line.is_under_way = True
        self._flights[connection, opaque] = _Flight(queue, connection, time.monotonic())

    def _check_first(self, queue: Queue, waiting: _Held) -> None:
        first = self._first_connections.get(queue.broker)
        if first is None or first.is_open or self._settings.repeats_unknown:
            return
        reason = "the connection broke, and the broker may have lost what it acknowledged"
        raise SendFailedError(str(queue), waiting.parcel.count, reason, may_be_stored=True)

    def _move(self, queue: Queue, line: _Line) -> None:
        """Put what waits first in another queue, if its broker is passed over and one is not."""
        waiting = line.waiting[0]
        if not (waiting.parcel.may_move and self._states.is_passed_over(queue.broker)):
            return
        others = [
            other
            for other in self._queues_of(queue.topic)
            if not self._states.is_passed_over(other.broker)
        ]
        if not others:
            return
        target = min(others, key=lambda other: (self._length(other), other))
        waiting.parcel = replace(waiting.parcel, queue=target)
        self._take_first(queue)
        self._lines.setdefault(target, _Line()).waiting.append(waiting)
        self.counts.moves += 1

    def _length(self, queue: Queue) -> int:
        line = self._lines.get(queue)
        return len(line.waiting) if line else 0

    def _take_first(self, queue: Queue) -> _Held:
        line = self._lines[queue]
        line.is_under_way = False
        first = line.waiting.popleft()
        if not line.waiting:
            del self._lines[queue]
        return first

    def _collect(self) -> None:
        """Wait for answers, at most until a broker may be tried again or a time is over."""
        if not self._flights:
            time.sleep(max(0.0, min(self._next_times(), default=0.0) - time.monotonic()))
            return
        for connection in self._ready():
            try:
                opaque = connection.receive_next()
            except BrokerUnavailableError as error:
                self._lost(connection, error)
                continue
            if opaque is not None:
                flight = self._flights.pop((connection, opaque), None)
                if flight is not None:
                    self._answered(flight, connection.receive(opaque))
        self._give_up_late()

    def _next_times(self) -> list[float]:
        """Return when a queue that waits for its broker or the pace may go on, for each."""
        return [
            self._ready_at(queue) for queue, line in self._lines.items() if not line.is_under_way
        ]

    def _ready_at(self, queue: Queue) -> float:
        return max(self._states.ready_at(queue.broker), self._pace.ready_at)

    def _ready(self) -> list[Connection]:
        """Return the connections that have something, after waiting for one of them."""
        connections = {flight.connection for flight in self._flights.values()}
        at_once = [one for one in connections if one.has_buffered or not one.is_open]
        if at_once:
            return at_once
        limit_s = self._cluster.settings.limits.request_timeout_ms / 1000
        ends = [flight.sent_at + limit_s for flight in self._flights.values()]
        timeout_s = max(0.0, min([*ends, *self._next_times()]) - time.monotonic())
        poll = select.poll()
        by_number = {one.fileno(): one for one in connections}
        for number in by_number:
            poll.register(number, select.POLLIN)
        return [by_number[number] for number, _ in poll.poll(1000 * timeout_s + 1)]

    def _give_up_late(self) -> None:
        limits = self._cluster.settings.limits
        late = time.monotonic() - limits.request_timeout_ms / 1000
        for connection in {f.connection for f in self._flights.values() if f.sent_at < late}:
            connection.close()
            reason = f"no answer in {limits.request_timeout_ms / 1000:g} s; requestTimeout sets it"
            self._lost(connection, BrokerUnavailableError(connection.address, reason))

    def _lost(self, connection: Connection, error: BrokerUnavailableError) -> None:
        """Fail all that was under way on a connection: nothing is known of it."""
        queues = []
        for key in [key for key in self._flights if key[0] is connection]:
            queue = self._flights.pop(key).queue
            line = self._lines[queue]
            line.is_under_way = False
            line.waiting[0].may_be_stored = True
            queues.append(queue)
        self._cluster.failed_at(connection.address)
        if queues:
            self._failed(queues, located(queues[0].broker, error))

    def _answered(self, flight: _Flight, answer: Frame) -> None:
        queue, address = flight.queue, flight.connection.address
        line = self._lines[queue]
        line.is_under_way = False
        waiting = line.waiting[0]
        found = outcome(answer)
        if found in {Outcome.STORED, Outcome.STORED_ALONE}:
            self._states.answered(queue.broker, time.monotonic() - flight.sent_at)
            self._acknowledged(queue, address, answer, is_alone=found is Outcome.STORED_ALONE)
            return
        if found is Outcome.REFUSED:
            raise refusal(
                address, send_request(self._settings.producer_group, waiting.parcel), answer
            )
        if found is Outcome.UNKNOWN:
            waiting.may_be_stored = True
        else:
            self.counts.refusals += 1
        if found is Outcome.AWAY:
            self._cluster.forget(queue.broker)
        reason = f"it answered {answer.code} {first_line(answer)}"
        self._failed([queue], BrokerUnavailableError(f"{queue.broker} at {address}", reason))

    def _acknowledged(self, queue: Queue, address: str, answer: Frame, *, is_alone: bool) -> None:
        parcel = self._lines[queue].waiting[0].parcel
        queue_id = header_number(address, answer, "queueId")
        queue_offset = header_number(address, answer, "queueOffset")
        if queue_id != queue.queue_id or queue_offset < 0:
            reason = f"a send to queue {queue} was answered for queue {queue_id} at {queue_offset}"
            raise BrokenAnswerError(address, reason)
        self._take_first(queue)
        self._pending_bytes -= len(parcel.body)
        self.counts.messages += parcel.count
        self.counts.bytes += len(parcel.body)
        self._stored(parcel, queue_offset)
        if is_alone:
            self.counts.alone += parcel.count
            if self._settings.requires_replica:
                raise NotReplicatedError(str(queue), parcel.count, answer.code)

    def _failed(self, queues: Sequence[Queue], error: StoreError) -> None:
        """Have the first parcels of queues of a broker sent again, or raise where that is over."""
        broker = queues[0].broker
        failures = self._states.failed(broker)
        if isinstance(error, NotUnderstoodError):
            raise error
        for queue in queues:
            waiting = self._lines[queue].waiting[0]
            is_over = waiting.deadline is not None and time.monotonic() > waiting.deadline
            if is_over or (waiting.may_be_stored and not self._settings.repeats_unknown):
                raise SendFailedError(
                    str(queue),
                    waiting.parcel.count,
                    error.message(),
                    may_be_stored=waiting.may_be_stored,
                )
            self.counts.repeats += waiting.may_be_stored
        if failures >= NEW_ROUTE_AFTER:
            self._cluster.forget(broker)

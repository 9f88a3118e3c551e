"""The publisher's wire to real brokers: connections to send by, and others to read by.

What is sent goes by the first, which are given up after any failure.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, Self

from mqstore.codec.client_ids import digest_of_ids
from mqstore.codec.properties import PropertyBlocks
from mqstore.deliver.job import SendJob
from mqstore.deliver.once.advance import Advance
from mqstore.deliver.once.check import check_readable_back
from mqstore.deliver.once.control import (
    CONTROL_QUEUE,
    Control,
    Starts,
    most_bytes,
    tag_of,
)
from mqstore.deliver.once.control_log import ControlLog
from mqstore.deliver.once.errors import (
    ControlTooLargeError,
    InterruptedSendError,
    NotVisibleError,
)
from mqstore.deliver.once.handed import HandedRows, body_digest
from mqstore.deliver.once.publish import History, Landed
from mqstore.deliver.receipts import Receipts
from mqstore.format.properties import TAGS, UNIQ_KEY, WRITE_PROPERTY, join
from mqstore.live.origin.bounds import LiveBounds, bounds
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.origin.records import PulledRecords, PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokenAnswerError, BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.routes import Route
from mqstore.live.send.errors import SendFailedError
from mqstore.live.send.pace import Pace
from mqstore.live.send.requests import Parcel, Queue
from mqstore.live.send.sender import SendCounts, Sender, SenderSettings

_LONGEST_CHECK_S: Final = 1.0
"""So often a publisher looks for another one while it sends, or twice in fenceWait."""
_STANDS_STILL_S: Final = 1.0
"""A broker that takes longer to tell the ends of its queues stood still."""
_MAY_HOLD: Final = (
    "It may hold messages of an earlier try and send them on later: end it, or let it go on"
)
_LAST_OFFSET: Final = 2**63 - 1
_FIRST_LOOK_S: Final = 0.002
_LAST_LOOK_S: Final = 0.2
_LEAVES_OPEN: Final = (SendFailedError, BrokerUnavailableError, NoMasterError, BrokenAnswerError)


class LiveWire:
    """The wire of a write. A context manager."""

    def __init__(
        self,
        job: SendJob,
        rows: HandedRows,
        *,
        receipts: Receipts | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Connect to nothing yet; ``job`` has a key and its mark.

        ``receipts`` note where each of the rows is stored; ``pace`` is that of the sender.
        """
        self.topic = job.settings.control_topic
        self._senders: list[Sender] = []
        self._settings = job.settings
        self._most_bytes = most_bytes(job.limits)
        self._mark = job.mark
        self._rows = rows
        self._receipts = Receipts() if receipts is None else receipts
        self._number_of: dict[str, int] | None = None if receipts is None else {}
        self._pace = pace
        self._reading = Cluster(job.settings.cluster, was_reached=True)
        self._sending = self._reading.twin()
        self._control = ControlLog(self._reading, self.topic)
        self._ends_read: Mapping[str, int] = {}
        self._read_ahead: tuple[str, Mapping[str, int], History] | None = None
        """What ``begin`` read of the control topic, from where, for the next ``history``."""
        self._has_routes = False
        self._sender: Sender | None = None
        self._check: Callable[[], None] | None = None
        self._checked_at = 0.0
        self._check_s = min(_LONGEST_CHECK_S, job.settings.fence_wait_ms / 2000)

    @property
    def counts(self) -> SendCounts:
        """What was sent so far, control records too."""
        counts = SendCounts()
        for sender in self._senders:
            counts.add(sender.counts)
        return counts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reading.close()
        self._sending.close()

    def begin(self, make: Callable[[Starts], Control]) -> Control:
        """Store a record behind the ends of the queues, and wait until it is visible.

        All by connections that are new where one broke meanwhile. Raises InterruptedSendError
        when that did not succeed in ``sendTimeout``, NotVisibleError, ControlTooLargeError.
        """
        deadline = time.monotonic() + self._settings.send_timeout_ms / 1000
        pause = _FIRST_LOOK_S
        while True:
            try:
                return self._try_begin(make)
            except _LEAVES_OPEN as error:
                self._sending.close()
                self._has_routes = False
                if time.monotonic() > deadline:
                    raise InterruptedSendError(error.message()) from error
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_S)

    def _try_begin(self, make: Callable[[Starts], Control]) -> Control:
        places: dict[str, int] = {}

        def stored(parcel: Parcel, queue_offset: int) -> None:
            if parcel.queue.topic == self.topic:
                places[parcel.queue.broker] = queue_offset
            self._receipts.stored(parcel, queue_offset)

        settings = self._settings
        routes = self._routes_now()
        self._sending = self._reading.twin()
        self._sender = Sender(
            self._sending,
            SenderSettings(
                producer_group=settings.producer_group,
                send_timeout_ms=settings.send_timeout_ms,
                requires_replica=settings.require_replica,
                repeats_unknown=False,
            ),
            stored=stored,
            guard=self._guard,
            pace=self._pace,
        )
        first = {Queue(one.topic, broker, 0): 0 for one in routes for broker in one.queues}
        brokers = make(first).brokers
        self._senders.append(self._sender)
        self._sender.connect(sorted(brokers))
        record = make(self._ends())
        if record.brokers != brokers:
            reason = "the brokers of the topics changed meanwhile"
            raise BrokerUnavailableError(", ".join(sorted(record.brokers ^ brokers)), reason)
        if hidden := set(self._rows.queues) - record.starts.keys():
            reason = "rows go to this queue, and no name server shows it now"
            raise BrokerUnavailableError(str(min(hidden)), reason)
        self._check_size(record)
        for broker in sorted(brokers):
            self._sender.send(self._control_parcel(broker, record))
        self._sender.flush()
        self._wait_visible(record, places)
        return record

    def _routes_now(self) -> list[Route]:
        """Return where the topics of the rows are.

        Name servers forget a topic while its brokers are away, so they are asked again once
        anything failed.
        """
        if not self._has_routes:
            self._ask_for_routes()
        found = [self._reading.route(topic) for topic in (self.topic, *self._rows.topics)]
        routes = [route for route in found if route is not None]
        if len(routes) < len(found):
            servers = ", ".join(self._settings.cluster.name_servers)
            topic = (self.topic, *self._rows.topics)[found.index(None)]
            raise BrokerUnavailableError(servers, f"no broker has the topic {topic} now")
        for topic in self._rows.topics:
            check_readable_back(self._reading, topic)
        # Those that ``bounds`` found out about.
        return [self._reading.without_absent(route) for route in routes[1:]]

    def _ask_for_routes(self) -> None:
        topics = [self.topic, *self._rows.topics]
        self._has_routes = None not in self._reading.fresh_routes(topics)

    def _ends(self) -> Starts:
        """Return the ends of all queues of the topics of the rows."""
        held = self._bounds(self._rows.topics)
        return {Queue(one.topic, one.broker, one.queue_id): one.high for one in held}

    def history(self, app: str, since: Mapping[str, int] | None = None) -> History:
        """Return the records of an application on all brokers that have the control topic."""
        ahead, self._read_ahead = self._read_ahead, None
        if ahead is not None and ahead[:2] == (app, since):
            found = ahead[2]
        elif since is not None:
            found = self._control.since(app, since)
        else:
            self._ask_for_routes()
            found = self._control.history(app)
        self._ends_read = found.ends
        return found

    def whole_history(self, app: str) -> History:
        """Return all records of an application, also those that a COMMIT stands for."""
        self._ask_for_routes()
        return self._control.whole(app)

    def landed(self, starts: Starts) -> Iterator[Landed]:
        """Yield the messages with the mark of the write; raises NoMasterError, DataLossError.

        A message without the end of its properties may have lost the mark: it is one of the write
        if its body is that of a row.
        """
        held = {
            Queue(one.topic, one.broker, one.queue_id): one
            for one in self._bounds(sorted({queue.topic for queue in starts}))
        }
        torn: dict[bytes, tuple[Queue, int]] = {}
        for queue, start in sorted(starts.items()):
            if queue not in held:
                reason = f"{queue} may hold messages of the write, and no name server shows it now"
                raise NoMasterError(reason)
            for part in self._pull(held[queue], start):
                blocks = PropertyBlocks.of(part.headers)
                marks = blocks.column(WRITE_PROPERTY).to_pylist()
                keys = blocks.column(UNIQ_KEY).to_pylist()
                cut = part.headers.lack_ends_of_properties().tolist()
                for row, queue_offset in enumerate(part.positions.queue_offsets.tolist()):
                    mark, key, is_cut = marks[row], keys[row], cut[row]
                    if self._mark is not None and mark == self._mark[1]:
                        self._note_landed(key or "", queue, queue_offset)
                        yield Landed(key or "", queue, queue_offset if is_cut else None)
                    elif is_cut:
                        torn[body_digest(part.headers.body(row))] = (queue, queue_offset)
        for digest in self._rows.bodies_among(torn.keys()):
            yield Landed("", *torn[digest])

    def _note_landed(self, key: str, queue: Queue, queue_offset: int) -> None:
        if self._number_of is None:
            return
        if not self._number_of:
            self._number_of = {
                id_.decode(): number for number, id_ in enumerate(self._rows.ids.tolist())
            }
        if key in self._number_of:
            self._receipts.found(self._number_of[key], queue, queue_offset)

    def send(self, landed: AbstractSet[str], check: Callable[[], None]) -> None:
        """Send all rows but those that landed; ``check`` is called once a second or more often."""
        self._check, self._checked_at = check, time.monotonic()
        try:
            self._send_all(self._rows.parcels(landed))
        finally:
            self._check = None

    def commit(self, record: Control) -> None:
        """Store a record on its brokers by the connections of the rows."""
        self._send_all(self._control_parcel(broker, record) for broker in sorted(record.brokers))

    def fence(self) -> None:
        """Give up the connections of the rows, and wait ``fenceWait`` while all brokers answer.

        The wait begins anew behind an answer that took long: a broker that stood still had not
        read what was sent to it. So it is with each proxy of the address, unless it is gone. Raises
        InterruptedSendError for one that does not answer in ``sendTimeout``.
        """
        self._sending.close()
        self._sender, self._has_routes = None, False
        wait_s = self._settings.fence_wait_ms / 1000
        left_s = wait_s
        while left_s > 0:
            asked_at = time.monotonic()
            self._await_brokers()
            if time.monotonic() - asked_at > _STANDS_STILL_S:
                left_s = wait_s
            pause = min(left_s, _STANDS_STILL_S)
            time.sleep(pause)
            left_s -= pause

    def _await_brokers(self) -> None:
        """Return when every broker of the rows' topics has answered."""
        deadline = time.monotonic() + self._settings.send_timeout_ms / 1000
        while True:
            try:
                self._ends()
                if silent := self._reading.silent_proxies():
                    reason = f"{silent[0].reason}. {_MAY_HOLD}"
                    raise BrokerUnavailableError(silent[0].address, reason)
            except _LEAVES_OPEN as error:
                if time.monotonic() > deadline:
                    raise InterruptedSendError(error.message()) from error
            else:
                return
            time.sleep(_LAST_LOOK_S)

    def _send_all(self, parcels: Iterable[Parcel]) -> None:
        assert self._sender is not None
        try:
            for parcel in parcels:
                self._sender.send(parcel)
            self._sender.flush()
        except _LEAVES_OPEN as error:
            raise InterruptedSendError(error.message()) from error

    def _guard(self) -> None:
        if self._check is not None and time.monotonic() - self._checked_at > self._check_s:
            self._check()
            self._checked_at = time.monotonic()

    def _check_size(self, record: Control) -> None:
        """Raise ControlTooLargeError where brokers would refuse a record, or its COMMIT."""
        seen = dict.fromkeys(record.brokers, _LAST_OFFSET)
        digest = digest_of_ids(frozenset())
        ended = replace(record, seen=seen, rows=_LAST_OFFSET, digest=digest)
        if (size := len(ended.encode())) > self._most_bytes:
            raise ControlTooLargeError(
                f"{record.app} version {record.version}", size, self._most_bytes
            )

    def _control_parcel(self, broker: str, record: Control) -> Parcel:
        return Parcel(
            queue=Queue(self.topic, broker, CONTROL_QUEUE),
            count=1,
            body=record.encode(),
            born_timestamp_ms=time.time_ns() // 1_000_000,
            properties=join({TAGS: tag_of(record.app)}).decode(),
        )

    def _bounds(self, topics: list[str]) -> list[LiveBounds]:
        routes = [self._reading.route(topic) for topic in topics]
        return bounds(self._reading, [route for route in routes if route is not None])

    def _wait_visible(self, record: Control, places: Mapping[str, int]) -> None:
        """Return when the control queues have what was stored there at those queue offsets.

        They are read for that from where the last history ended: what is found is the next one.
        Brokers are waited for as long as they make ConsumeQueues up to there. Proxies know each
        topic's route for itself: one may show the rows' topic on a broker that came back, and the
        control topic not yet.
        """
        timeout_s = self._settings.visibility_timeout_ms / 1000
        deadline, pause = time.monotonic() + timeout_s, _FIRST_LOOK_S
        advance: Advance | None = None
        since = self._ends_read
        found = self._control.since(record.app, since)
        while hidden := [
            broker for broker, at in places.items() if found.ends.get(broker, 0) <= at
        ]:
            if advance is None and time.monotonic() > deadline - timeout_s / 2:
                advance = Advance(self._reading, places)
            elif advance is not None and time.monotonic() > deadline and advance.goes_on(hidden):
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                queue = str(Queue(self.topic, hidden[0], CONTROL_QUEUE))
                if hidden[0] not in found.ends:
                    reason = f"stored a record of {self.topic}, and no server shows the topic on it"
                    raise BrokerUnavailableError(hidden[0], reason)
                raise NotVisibleError(queue, places[hidden[0]], timeout_s)
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_S)
            if not found.ends.keys() >= set(hidden):
                self._reading.fresh_routes([self.topic])
            found = found.then(self._control.since(record.app, found.ends))
        self._read_ahead = record.app, since, found

    def _pull(self, held: LiveBounds, start: int) -> Iterator[PulledRecords]:
        """Yield the messages of a queue from there."""
        piece = LiveSlice(held.broker, held.topic, held.queue_id, start, held.high)
        for part in read(PullReader(self._reading, [piece]), PullSettings()):
            if part.broken:
                raise BrokenAnswerError(held.broker, f"a broken message in {piece}")
            yield part

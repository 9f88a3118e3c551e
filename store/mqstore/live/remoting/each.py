"""Asks many brokers at once, each for itself: one that is away or lies fails alone.

Some brokers are asked side by side, and answers are taken as they come: silent ones cost the
time-out of one, and what is under way is bounded, however many brokers there are. A connection
that breaks is tried once more, for a server closes one that was idle; nothing else is.
"""

import select
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.remoting import proxies
from mqstore.live.remoting.answers import BusyError, checked
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    NoMasterError,
    RequestRefusedError,
)
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request

_AT_A_TIME: Final = 32
"""Brokers that are asked side by side."""
Asked = Sequence[tuple[str, Request]]
Told = tuple[Frame, str] | StoreError
"""An answer and the server's address, or why there is none."""


def ask_each(cluster: Cluster, asked: Asked) -> list[Told]:
    """Return for each request of a broker the answer, or the error, in that order.

    A request that is refused fails alone; a broker that is not reached, does not answer within
    ``request_timeout_ms`` of the last answer, or gives no answer that can be read, fails for all
    that was asked of it and is still open. Raises what asking the name servers raises.
    """
    found: dict[int, Told] = {}
    open_ = _by_broker(asked, range(len(asked)))
    for is_last in (False, True):
        failed = _round(cluster, asked, open_, found)
        again = {b for b, e in failed.items() if not is_last and _may_pass(e)}
        for broker, error in failed.items():
            left = [place for place in open_[broker] if place not in found]
            if broker not in again:
                found |= dict.fromkeys(left, error)
        open_ = _by_broker(asked, (p for b in sorted(again) for p in open_[b] if p not in found))
        for broker in again:
            cluster.forget(broker)
    return [found[place] for place in range(len(asked))]


def _may_pass(error: StoreError) -> bool:
    return isinstance(error, BrokerUnavailableError) and not isinstance(error, BrokerTimeoutError)


def _by_broker(asked: Asked, places: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(asked[place][0], []).append(place)
    return found


class _Asking:
    """The requests to one broker; at most a pipeline of them is under way."""

    def __init__(
        self, broker: str, connection: Connection, asked: Asked, places: Iterable[int]
    ) -> None:
        self.broker = broker
        self.connection = connection
        self._asked = asked
        self._waiting = deque(places)
        self._places: dict[int, int] = {}
        self.number = connection.fileno()
        self.has_answer = False
        self.since_s = time.monotonic()

    def send(self) -> None:
        """Send what may be under way. Raises BrokerUnavailableError."""
        room = proxies.IN_A_PIPELINE - len(self._places)
        some = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        opaques = self.connection.send_all([self._asked[place][1] for place in some])
        self._places |= dict(zip(opaques, some, strict=True))

    def take(self, found: dict[int, Told], waited_s: float) -> None:
        """Take the answers that are here. Raises as `Connection.receive`, and BusyError.

        Where there is none, after so many seconds, BrokerTimeoutError.
        """
        connection = self.connection
        if not self.has_answer:
            reason = f"no answer in {waited_s:g} s; requestTimeout sets how long to wait"
            raise BrokerTimeoutError(connection.address, reason)
        self.has_answer = False
        while True:
            opaque = connection.receive_next()
            self.since_s = time.monotonic()
            if opaque is not None:
                self._note(opaque, connection.receive(opaque), found)
            if not connection.has_buffered or not self._places:
                break
        if self._waiting and not self._places:
            self.send()

    def _note(self, opaque: int, answer: Frame, found: dict[int, Told]) -> None:
        place = self._places.pop(opaque, None)
        if place is None:  # Somebody before asked for it, and gave it up.
            return
        address = self.connection.address
        try:
            found[place] = checked(address, self._asked[place][1], answer), address
        except RequestRefusedError as error:
            found[place] = error

    @property
    def is_done(self) -> bool:
        return not self._places and not self._waiting


def _round(
    cluster: Cluster, asked: Asked, open_: dict[str, list[int]], found: dict[int, Told]
) -> dict[str, StoreError]:
    """Ask what is open once; return by broker what failed."""
    waits_s = cluster.settings.limits.request_timeout_ms / 1000
    failed: dict[str, StoreError] = {}
    lanes: dict[int, _Asking] = {}
    waiting = deque(open_)
    poll = select.poll()
    while lanes or waiting:
        room = min(_AT_A_TIME - len(lanes), len(waiting))
        if room:
            some = {broker: open_[broker] for broker in (waiting.popleft() for _ in range(room))}
            busy = {lane.connection for lane in lanes.values()}
            new, errors = _sent(cluster, asked, some, busy)
            failed |= errors
            lanes |= new
            for number in new:
                poll.register(number, select.POLLIN)
        for lane in _ready(lanes, poll, waits_s):
            try:
                lane.take(found, waits_s)
            except StoreError as error:
                failed[lane.broker] = _told_of(cluster, lane.broker, error)
            if lane.is_done or lane.broker in failed:
                poll.unregister(lane.number)
                del lanes[lane.number]
                if lane.broker in failed:
                    lane.connection.close()
    return failed


def _ready(lanes: dict[int, _Asking], poll: select.poll, waits_s: float) -> list[_Asking]:
    """Return the lanes that have an answer; if none comes, those whose time is over."""
    if not lanes:
        return []
    first = min(lane.since_s for lane in lanes.values()) + waits_s
    left_ms = max(0.0, first - time.monotonic()) * 1000
    ready = [lanes[number] for number, _ in poll.poll(left_ms)]
    for lane in ready:
        lane.has_answer = True
    return ready or [lane for lane in lanes.values() if lane.since_s <= time.monotonic() - waits_s]


def _sent(
    cluster: Cluster, asked: Asked, open_: dict[str, list[int]], busy: set[Connection]
) -> tuple[dict[int, _Asking], dict[str, StoreError]]:
    """Send the first requests; return the lanes by descriptor, and what failed by broker.

    A ``busy`` connection is of another broker at the same address.
    """
    addresses: dict[str, str] = {}
    failed: dict[str, StoreError] = {}
    for broker in open_:
        try:
            addresses[broker] = cluster.asking_address(broker)
        except NoMasterError as error:
            failed[broker] = error
    errors = _connected(cluster, sorted(set(addresses.values())))
    lanes: dict[int, _Asking] = {}
    for broker, address in addresses.items():
        try:
            if address in errors:
                raise errors[address]
            connection = cluster.connection(address)
            if connection in busy:
                connection = cluster.connection(address, broker)
            busy.add(connection)
            connection.finds_out_why = False  # It would hold up the others.
            lane = _Asking(broker, connection, asked, open_[broker])
            lane.send()
            lanes[lane.number] = lane
        except BrokerUnavailableError as error:
            failed[broker] = _told_of(cluster, broker, error)
    return lanes, failed


def _connected(cluster: Cluster, addresses: Sequence[str]) -> dict[str, BrokerUnavailableError]:
    """Connect to all servers side by side; return by address why one cannot be reached."""

    def connect(address: str) -> BrokerUnavailableError | None:
        try:
            cluster.connection(address)
        except BrokerUnavailableError as error:
            return error
        return None

    missing = [address for address in addresses if not cluster.is_connected(address)]
    if not missing:
        return {}
    with ThreadPoolExecutor(min(_AT_A_TIME, len(missing))) as pool:
        failures = zip(missing, pool.map(connect, missing), strict=True)
        return {address: error for address, error in failures if error is not None}


def _told_of(cluster: Cluster, broker: str, error: StoreError) -> StoreError:
    if isinstance(error, BrokerUnavailableError) and not isinstance(error, BusyError):
        return cluster.located(broker, error)
    return error

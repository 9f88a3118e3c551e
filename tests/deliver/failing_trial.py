"""Writes to real brokers in which everything fails that may, as a seed says.

A try of a write has requests that are lost, late or stored in part on their way through the
brokers' proxies; a broker that is killed or frozen; a moment in which its publisher ends; and a
clock of its own.
"""

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pyarrow as pa

from deliver.proxy import Fault, Proxy
from live.real import Live, slices
from live.sending import create_topic, producing
from mqstore.codec.properties import PropertyBlocks
from mqstore.deliver.job import SendJob
from mqstore.deliver.once import commit
from mqstore.deliver.once.control import Control, Starts
from mqstore.deliver.once.errors import (
    NewerOwnerError,
    NotVisibleError,
    PublicationError,
    TornMessageError,
)
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.once.publish import History, Landed
from mqstore.deliver.once.wire import LiveWire
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import StoreError
from mqstore.format.properties import UNIQ_KEY
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.send.requests import Parcel
from support.writing import rows

ROWS = 120
QUEUES = 3
FAULTY_TRIES = 3
TRIES = 20
START_S = 300
FROZEN_S = 1.5
HOUR_NS = 3_600 * 10**9
IMPATIENT = Limits(connect_timeout_ms=1_000, request_timeout_ms=1_000)
"""So a broker that is frozen is given up before it goes on."""
OTHERS = b"other"
PLACES = ("begin", "history", "landed", "parcel", "parcel", "parcel", "commit", "fence")
AGAIN = (
    PublicationError,
    NewerOwnerError,
    NotVisibleError,
    BrokerUnavailableError,
    NoMasterError,
)
"""With these a driver fails, and is to run the write again."""
Before = Callable[[str, int], None]
"""Called in front of each call of the wire, with its name and how many came before."""


_WHOLE_ID: Final = re.compile("[0-9A-F]{32}")


def is_whole(key: str | None) -> bool:
    """Tell whether a message of ours has its UNIQ_KEY, which is the last of its properties.

    A broker that is killed while it stores a message may keep it with zeros at the end of its
    properties. It did not acknowledge this message, so it was sent again
    (CommitLog#checkMessageAndReturnSize checks the body alone).
    """
    return key is not None and _WHOLE_ID.fullmatch(key) is not None


class StoppedError(Exception):
    """The process of the publisher, or of the task, ended here."""


@dataclass
class Try:
    """One try of a write. ``faults`` by the number of the request that stores messages."""

    faults: dict[int, Fault] = field(default_factory=dict)
    actions: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What happens in front of a request, by its number."""
    before: Before = lambda _place, _number: None
    clock_ns: int = 0


class Trial:
    """Writes to a topic of brokers that are reached through proxies only."""

    def __init__(self, lives: Sequence[Live], proxies: Sequence[Proxy], topic: str, seed: int):
        self.topic = topic
        self.done = Counter[str]()
        """What happened how often."""
        self._lives, self._proxies = lives, proxies
        self._moments = random.Random(seed)
        self._pool = ThreadPoolExecutor(1)
        self._starting: list[Future[None]] = []
        self._requests = 0
        self._lock = threading.Lock()
        names = [live.broker.settings["brokerName"] for live in lives]
        for name in names:
            create_topic(lives[0].cluster, name, topic, QUEUES)
            create_topic(lives[0].cluster, name, f"{topic}-control")
        self._brokers = names
        addresses = {name: one.address for name, one in zip(names, proxies, strict=True)}
        self._cluster = ClusterSettings(
            name_servers=lives[0].name_servers,
            limits=IMPATIENT,
            retry_timeout_ms=60_000,
            broker_addresses=addresses,
        )

    def settings(self, **more: Any) -> SendSettings:
        """Return options of a write."""
        defaults: dict[str, Any] = {
            "cluster": self._cluster,
            "topic": self.topic,
            "batch_max_messages": 10,
        }
        return SendSettings(**defaults | more)

    def once(self, version: int, harm: str | None = None) -> None:
        """Write a version exactly once: run it again until it is done."""
        part = rows(1, body=[b""], topic=None)
        more = {"delivery": "exactlyOnce", "txn_app_id": self.topic, "txn_version": version}
        control = {"control_topic": f"{self.topic}-control", "fence_wait_ms": 300}
        job = prepare(self.settings(**more, **control), part.schema)
        for turn in range(TRIES):
            one = self._plan(harm if turn == 0 else None) if turn < FAULTY_TRIES else Try()
            try:
                with self._failing(one):
                    self.publish(job, version, one)
            except (StoppedError, *AGAIN) as error:
                self.done[type(error).__name__] += 1
                continue
            except TornMessageError:
                self.done["TornMessageError"] += 1
                self._write_rest(version)
            self._rest()
            return
        raise AssertionError(f"version {version} was never done; {self.done}")

    def _write_rest(self, version: int) -> None:
        """Write the rows that are not there as another application, as TornMessageError says."""
        missing = Counter(bodies_of(version)) - Counter(body for body, _ in self.held())
        if not missing:
            return
        more = {"delivery": "exactlyOnce", "txn_app_id": f"{self.topic}-rest"}
        control = {"control_topic": f"{self.topic}-control", "txn_version": version}
        part = of(list(missing.elements()))
        job = prepare(self.settings(**more, **control), part.schema)
        commit.publish(job, [hand_on(job, [part], partition=0, attempt=0)])

    def publish(self, job: SendJob, version: int, one: Try) -> commit.Published:
        """Run one try: tasks hand on the rows, in another order each time."""
        bodies = list(bodies_of(version))
        self._moments.shuffle(bodies)
        cut = self._moments.randrange(len(bodies))
        parts = [of(part) for part in (bodies[:cut], bodies[cut:]) if part]
        reports = [hand_on(job, [part], partition=n, attempt=n) for n, part in enumerate(parts)]
        make = partial(TrialWire, one=one, proxies=self._proxies)
        with mock.patch.object(commit, "LiveWire", make), clocks(one.clock_ns):
            return commit.publish(job, reports)

    def at_least_once(self, version: int, harm: str | None = None) -> None:
        """Write a version at least once: a task that fails runs again, as Spark runs it."""
        bodies = bodies_of(version)
        job = prepare(self.settings(), of(bodies).schema)
        for turn in range(TRIES):
            one = self._plan(harm if turn == 0 else None) if turn < FAULTY_TRIES else Try()
            taken = [of(bodies[first : first + 20]) for first in range(0, len(bodies), 20)]
            try:
                with self._failing(one), clocks(one.clock_ns):
                    report = send(job, called(taken, one.before), partition=0, attempt=turn)
            except (StoppedError, StoreError) as error:
                self.done[type(error).__name__] += 1
                continue
            assert report.counts.messages == len(bodies)
            self._rest()
            return
        raise AssertionError(f"version {version} was never done; {self.done}")

    def held(self) -> list[tuple[bytes, str]]:
        """Return body and message id of all that readers get, but those of the other producer."""
        found = held(self._cluster, self.topic)
        return [(body, key) for body, key in found if not body.startswith(OTHERS)]

    def other_producer(self) -> AbstractContextManager[None]:
        """Send to the same queues from another client while the block runs."""
        queues = [(b, self.topic, queue_id) for b in self._brokers for queue_id in range(QUEUES)]

        def sent() -> None:
            self.done["other batches"] += 1

        return producing(self._cluster.name_servers, queues, lambda: [OTHERS] * 3, sent)

    def close(self) -> None:
        """Wait for brokers that start."""
        self._rest()
        self._pool.shutdown()

    def _plan(self, harm: str | None) -> Try:
        draw = self._moments
        faults = {draw.randrange(16): draw.choice(list(Fault)) for _ in range(draw.randrange(4))}
        place, number = draw.choice(PLACES), draw.randrange(12)
        ends = place, number if place == "parcel" else number % 3
        is_ended = harm is None and draw.random() < 0.7

        def before(at: str, count: int) -> None:
            if is_ended and (at, count) == ends:
                self.done[f"ended at {at}"] += 1
                raise StoppedError

        one = Try(faults, before=before, clock_ns=draw.choice((-HOUR_NS, 0, HOUR_NS)))
        if harm is not None:
            number = draw.randrange(len(self._lives))
            harms = {"kill": self._kill, "freeze": self._freeze}
            one.actions[draw.randrange(3, 10)] = partial(harms[harm], number)
        return one

    def _kill(self, number: int) -> None:
        self.done["kill"] += 1
        live, before = self._lives[number], self._proxies[number]

        def start() -> None:
            live.start()
            before.open()

        before.shut()
        live.kill()
        self._starting.append(self._pool.submit(start))

    def _freeze(self, number: int) -> None:
        self.done["freeze"] += 1
        pid = self._lives[number].broker.pid
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(FROZEN_S, os.kill, (pid, signal.SIGCONT))
        timer.start()
        self._starting.append(self._pool.submit(timer.join))

    @contextmanager
    def _failing(self, one: Try) -> Iterator[None]:
        def choose(_: Mapping[str, Any]) -> Fault | None:
            with self._lock:
                number, self._requests = self._requests, self._requests + 1
                if action := one.actions.get(number):
                    action()
                if fault := one.faults.get(number):
                    self.done[fault.name] += 1
                return fault

        self._requests = 0
        for each in self._proxies:
            each.choose = choose
        try:
            yield
        finally:
            for each in self._proxies:
                each.choose = lambda _: None

    def _rest(self) -> None:
        """Wait until all brokers are there, and nothing is under way."""
        while self._starting:
            self._starting.pop().result(START_S)
        for each in self._proxies:
            each.settle()


class TrialWire(LiveWire):
    """The wire of a publisher whose process may end in front of each call.

    Nothing that was sent is held up for longer than the fence: so says the guide's condition.
    """

    def __init__(
        self, job: SendJob, found: HandedRows, one: Try, proxies: Sequence[Proxy], **more: Any
    ) -> None:
        super().__init__(job, found, **more)
        self._one, self._proxies = one, proxies
        self._calls = Counter[str]()

    def begin(self, make: Callable[[Starts], Control]) -> Control:
        self._come("begin")
        return super().begin(make)

    def history(self, app: str, since: Mapping[str, int] | None = None) -> History:
        self._come("history")
        return super().history(app, since)

    def landed(self, starts: Starts) -> Iterator[Landed]:
        self._come("landed")
        return super().landed(starts)

    def commit(self, record: Control) -> None:
        self._come("commit")
        super().commit(record)

    def fence(self) -> None:
        self._come("fence")
        super().fence()
        for each in self._proxies:
            each.settle()

    def _send_all(self, parcels: Iterable[Parcel]) -> None:
        super()._send_all(self._coming(parcels))

    def _coming(self, parcels: Iterable[Parcel]) -> Iterator[Parcel]:
        for parcel in parcels:
            self._come("parcel")
            yield parcel

    def _come(self, place: str) -> None:
        self._one.before(place, self._calls[place])
        self._calls[place] += 1


def held(settings: ClusterSettings, topic: str) -> list[tuple[bytes, str]]:
    """Return body and message id of all messages of a topic."""
    every = []
    with Cluster(settings) as client:
        found = bounds(client, [client.known_route(topic)])
        for part in read(PullReader(client, slices(found)), PullSettings()):
            keys = PropertyBlocks.of(part.headers).column(UNIQ_KEY).to_pylist()
            for row, key in enumerate(keys):
                every.append((bytes(part.headers.body(row)), key or ""))
    return every


def bodies_of(version: int) -> list[bytes]:
    """Return the bodies of a write; each is there twice."""
    return [b"%d/%d" % (version, n // 2) for n in range(ROWS)]


def of(bodies: Sequence[bytes]) -> pa.RecordBatch:
    return rows(len(bodies), body=list(bodies), topic=None)


def called(parts: Iterable[pa.RecordBatch], before: Before) -> Iterator[pa.RecordBatch]:
    """Yield the parts; the task may end in front of each."""
    for number, part in enumerate(parts):
        before("parcel", number)
        yield part


@contextmanager
def clocks(apart_ns: int) -> Iterator[None]:
    """Let the publisher's clock go ahead, or behind."""

    def time_ns() -> int:
        return time.time_ns() + apart_ns

    seen = SimpleNamespace(time_ns=time_ns, monotonic=time.monotonic, sleep=time.sleep)
    with ExitStack() as stack:
        for name, value in (
            ("mqstore.deliver.once.handed.time_ns", time_ns),
            ("mqstore.deliver.parcels.time_ns", time_ns),
            ("mqstore.deliver.once.wire.time", seen),
        ):
            stack.enter_context(mock.patch(name, value))
        yield

"""A real broker with messages of every kind, the directory it writes, and our client of it."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from broker import recipe
from broker.harness import BROKER_NAME, Broker
from broker.harness import Cluster as Servers
from broker.reading import rows_of
from mqstore.codec.bodies import decompress_bodies
from mqstore.codec.decode import Records, decode
from mqstore.codec.schema import PROFILES
from mqstore.live.origin.bounds import LiveBounds, bounds
from mqstore.live.origin.groups import committed
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.origin.records import PulledRecords, PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.topics import topic_names, topics

NAMES = recipe.Names("V")
DEAD = "127.0.0.1:1"
READING = Limits(connect_timeout_ms=2_000, request_timeout_ms=10_000)
ALL_COLUMNS = PROFILES["full"]
# No check of transactions and nothing delayed that comes due while tests compare.
QUIET = {"transactionCheckInterval": "86400000"}


class Live:
    """The broker; it can be killed and started again on its directory."""

    def __init__(
        self,
        servers: Servers,
        root: Path,
        settings: Mapping[str, str] = QUIET,
        proxy: str | None = None,
    ) -> None:
        """``proxy`` is the address of one that the client goes through."""
        self.root = root
        self.name_servers = (DEAD, proxy or servers.name_server)
        """The first of two name servers is dead, always."""
        self._is_proxied = proxy is not None
        self.cluster = Cluster(
            ClusterSettings(name_servers=self.name_servers, limits=READING, retry_timeout_ms=20_000)
        )
        self._servers = servers
        self._settings = settings
        self._running: AbstractContextManager[Broker] | None = None
        self._port: int | None = None
        root.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start the broker, at the port that it had."""
        self._running = self._servers.broker(self.root, self._settings, self._port)
        self.broker = self._running.__enter__()
        self._port = self.broker.port

    def kill(self) -> None:
        """Kill -9, and remove the files that were created and have no bytes yet.

        4.9 does not start over such a file (MappedFileQueue#load): its operator removes it.
        """
        self.broker.kill()
        self._leave()
        for folder in ("commitlog", "consumequeue"):
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file() and path.stat().st_size == 0:
                    path.unlink()

    def close(self) -> None:
        """End the broker and the client."""
        self._leave()
        self.cluster.close()

    @property
    def address(self) -> str:
        """The cluster's address, as a path begins."""
        return f"rocketmq://{','.join(self.name_servers)}"

    def routes(self) -> list[Route]:
        if self._is_proxied:  # It lists no topics.
            names = sorted({topic for topic, _ in self.broker.dump().queues})
        else:
            names = topic_names(self.cluster, include_system_topics=True)
        found = (self.cluster.route(name, fresh=True) for name in names)
        return [route for route in found if route is not None]

    def bounds(self) -> list[LiveBounds]:
        return bounds(self.cluster, self.routes())

    def pulled(self, queues: list[LiveBounds], **settings: Any) -> list[PulledRecords]:
        reader = PullReader(self.cluster, slices(queues), tags=settings.get("tags", "*"))
        return list(read(reader, PullSettings(**settings)))

    def state(self) -> tuple[Any, ...]:
        """What a reader could change: groups, ends of queues, topics, offsets of groups."""
        answer, _ = self.cluster.ask(
            BROKER_NAME, Request("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", 201, {})
        )
        groups = json.loads(bytes(answer.body))["subscriptionGroupTable"]
        ends = [(q.topic, q.queue_id, q.high) for q in self.bounds()]
        told = topics(self.cluster, [BROKER_NAME]), committed(self.cluster, [BROKER_NAME])
        return groups, ends, *told

    def settle(self) -> None:
        """Wait until no queue grows any more: delayed messages come due in seconds."""
        deadline = time.monotonic() + 60
        ends: list[list[LiveBounds]] = []
        pause = threading.Event()
        while len(ends) < 4 or any(end != ends[-1] for end in ends[-4:]):
            assert time.monotonic() < deadline, "the broker's queues never came to rest"
            ends.append(self.bounds())
            pause.wait(0.4)

    def _leave(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(None, None, None)


@contextmanager
def recorded(
    servers: Servers,
    folder: Path,
    proxy: str | None = None,
    before: AbstractContextManager[object] | None = None,
    settings: Mapping[str, str] = QUIET,
) -> Iterator[Live]:
    """Run a broker with the recipe's messages, at rest; ``before`` it stands what is entered."""
    with (
        closing(Live(servers, folder / "broker" / "store", settings, proxy)) as live,
        before or nullcontext(),
    ):
        recipe.produce(live.broker, NAMES)
        recipe.consume(live.broker, NAMES)
        recipe.go_on(live.broker, NAMES)
        live.settle()
        yield live


def slices(queues: list[LiveBounds]) -> list[LiveSlice]:
    return [LiveSlice(q.broker, q.topic, q.queue_id, q.low, q.high) for q in queues]


def full_rows(pulled: list[PulledRecords]) -> list[dict[str, Any]]:
    found = []
    for part in pulled:
        assert part.broken == ()
        plain = decompress_bodies(part.headers, 1 << 26, 1 << 26)
        assert plain.count == len(part.headers)
        whole = np.zeros(len(part.headers), np.bool_)
        batch = decode(Records(part.headers, part.positions, plain, whole), ALL_COLUMNS)
        found += rows_of(batch)
    return found

"""A store whose broker runs: read, followed, and refused for writing.

One broker of each version serves all tests of this module, each with topics of its own.
"""

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.harness import Broker, Cluster, Row
from broker.our_messages import Author, write
from broker.reading import by_queue, read, rows_of, told
from mqstore.errors import StoreLockedError, UncleanStoreError
from mqstore.read.admission import Admission
from mqstore.read.follow import Follower
from mqstore.read.progress import Progress, from_json, to_json
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from support.opened import tail_of

pytestmark = pytest.mark.broker

ROUNDS = 10
SECONDS = 300
TOLD = ("topic", "queueId", "queueOffset", "msgId", "bodySha1")
SMALL_BATCHES = Admission(max_offsets=50, max_bytes=20_000)
PAUSE_S = 0.05
"""Between looks at what a broker writes meanwhile, so that it gets its share of the machine."""


class Stream:
    """A query's life without Spark: micro-batches, and restarts from its own JSON."""

    def __init__(self, root: Path, prefix: str, admission: Admission) -> None:
        self._root = root
        self._prefix = prefix
        self._admission = admission
        self._checkpoint = "{}"
        self._follower = self._start()
        self.rows: list[Row] = []
        self.batches = 0

    def step(self) -> bool:
        """Run a micro-batch; tell whether there was one. Every tenth is followed by a restart."""
        start = from_json(json.loads(self._checkpoint), self._follower.brokers)
        end = self._follower.next(start)
        if end == start:
            return False
        self._read(start, end)
        self._checkpoint = json.dumps(to_json(end, by_broker=False))
        self.batches += 1
        if self.batches % 10 == 0:
            self._follower.close()
            self._follower = self._start()
        return True

    def close(self) -> None:
        self._follower.close()

    def _start(self) -> Follower:
        tail = tail_of(self._root, lambda topic: topic.startswith(self._prefix))
        return Follower([tail], self._admission)

    def _read(self, start: Progress, end: Progress) -> None:
        settings = ScanSettings(columns=("topic", "queueId", "queueOffset", "msgId", "body"))
        for batch in scan(self._follower.slices(start, end), settings):
            for row in rows_of(batch):
                body = row.pop("body")
                row["bodySha1"] = hashlib.sha1(body, usedforsecurity=False).hexdigest()
                self.rows.append(row)


@dataclass(frozen=True, slots=True)
class Live:
    """A running broker, and its store."""

    broker: Broker
    root: Path

    def rows(self, prefix: str) -> list[Row]:
        """What the client pulls of the topics that begin so."""
        return [row for row in self.broker.dump().rows if row["topic"].startswith(prefix)]


@pytest.fixture(scope="module")
def live(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    root = tmp_path_factory.mktemp(f"live-{cluster.version}-") / "store"
    root.mkdir()
    with cluster.broker(root) as broker:
        yield Live(broker, root)
        broker.kill()


def test_a_write_to_a_store_in_use_is_refused_and_changes_nothing(live: Live) -> None:
    """Not one byte of ours."""
    rows = Author("Refused", seed=1).write_rows(10)
    live.broker.produce("Used", "Single", 10)
    with pytest.raises((UncleanStoreError, StoreLockedError), match=r"\[MQLOG_"):
        write(live.root, rows)
    (live.root / "abort").unlink()  # Even if somebody took the mark away.
    with pytest.raises(StoreLockedError, match=r"\[MQLOG_"):
        write(live.root, rows)
    (live.root / "abort").touch()
    live.broker.produce("Used", "Single", 10)
    assert len(live.rows("Used")) == 20
    assert live.rows("Refused") == []


def test_a_store_reads_while_its_broker_keeps_writing(live: Live) -> None:
    """No error, no torn row, and each read is a prefix of every queue."""
    reads: list[list[Row]] = []
    enough, pause = threading.Event(), threading.Event()
    live.broker.produce("Live", "Single", 10)

    def keep_writing() -> None:
        for seed in itertools.count():
            live.broker.produce("Live", "Single", 100, seed=seed)
            live.broker.produce("Live", "Batch", 10, seed=seed)
            if enough.is_set():
                break

    end = time.monotonic() + SECONDS
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(keep_writing)
        while len({len(rows) for rows in reads}) < 6 and time.monotonic() < end:
            reads.append([row for row in read(live.root) if row["topic"] == "Live"])
            pause.wait(PAUSE_S)
        enough.set()
        writer.result(SECONDS)
    final = by_queue(told(live.rows("Live")))
    assert len({len(rows) for rows in reads}) >= 6, "the store did not grow between reads"
    for rows in reads:
        for queue, held in by_queue(rows).items():
            assert held == final[queue][: len(held)], queue


def test_a_stream_gets_what_a_live_broker_acknowledges(live: Live) -> None:
    live.broker.produce("Tail", "Single", 1)

    def keep_writing() -> None:
        for seed in range(ROUNDS):
            live.broker.produce(f"Tail{seed // 5}", "Single", 60, seed=seed)
            live.broker.produce("Tail", "Batch", 10, seed=seed)

    stream, pause = Stream(live.root, "Tail", SMALL_BATCHES), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(keep_writing)
        while not writer.done():
            if not stream.step():
                pause.wait(PAUSE_S)
        writer.result()
    dump = live.rows("Tail")
    _finish(stream, len(dump))
    assert stream.batches > ROUNDS
    found, expected = by_queue(stream.rows), by_queue(dump)
    # In the order in which they came, each once: sorting by offset changes nothing.
    assert {q: [r["queueOffset"] for r in rows] for q, rows in found.items()} == {
        q: [r["queueOffset"] for r in rows] for q, rows in expected.items()
    }
    assert _in_order(stream.rows)
    assert {q: [[r[n] for n in TOLD] for r in rows] for q, rows in found.items()} == {
        q: [[r[n] for n in TOLD] for r in rows] for q, rows in expected.items()
    }


def _finish(stream: Stream, count: int) -> None:
    """Go on until all is there; the broker fills ConsumeQueues a moment after it acknowledges."""
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while len(stream.rows) < count and time.monotonic() < deadline:
        if not stream.step():
            pause.wait(PAUSE_S)
    while stream.step():
        pass
    stream.close()


def _in_order(rows: list[Row]) -> bool:
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        queue = row["topic"], row["queueId"]
        if row["queueOffset"] <= last.get(queue, -1):
            return False
        last[queue] = row["queueOffset"]
    return True

"""A stream beside a live broker: every message of the official producer, once and in order."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.harness import Cluster, Row
from broker.reading import by_queue, rows_of
from mqstore.format.names import is_system_topic
from mqstore.read.admission import Admission
from mqstore.read.follow import Follower
from mqstore.read.progress import Progress, from_json, to_json
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from support.opened import tail_of

pytestmark = pytest.mark.broker

ROUNDS = 10
TOLD = ("topic", "queueId", "queueOffset", "msgId", "bodySha1")


class Stream:
    """A query's life without Spark: micro-batches, and restarts from its own JSON."""

    def __init__(self, root: Path, admission: Admission) -> None:
        self._root = root
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
        tail = tail_of(self._root, lambda topic: not is_system_topic(topic))
        return Follower([tail], self._admission)

    def _read(self, start: Progress, end: Progress) -> None:
        settings = ScanSettings(columns=("topic", "queueId", "queueOffset", "msgId", "body"))
        for batch in scan(self._follower.slices(start, end), settings):
            for row in rows_of(batch):
                body = row.pop("body")
                row["bodySha1"] = hashlib.sha1(body, usedforsecurity=False).hexdigest()
                self.rows.append(row)


def test_a_stream_gets_what_a_live_broker_acknowledges(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root) as broker:
        broker.produce("Tail", "Single", 1)

        def keep_writing() -> None:
            for seed in range(ROUNDS):
                broker.produce(f"Tail{seed // 5}", "Single", 60, seed=seed)
                broker.produce("Tail", "Batch", 10, seed=seed)

        stream = Stream(root, Admission(max_offsets=50, max_bytes=20_000))
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(keep_writing)
            while not writer.done():
                stream.step()
            writer.result()
        dump = [row for row in broker.dump().rows if not is_system_topic(row["topic"])]
        _finish(stream, len(dump))
        broker.kill()
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
    deadline = time.monotonic() + 300
    while len(stream.rows) < count and time.monotonic() < deadline:
        stream.step()
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

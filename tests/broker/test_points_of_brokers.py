"""Points of a broker's store, made while it writes, rolls and deletes files.

Each is the store at that moment. It has all that was acknowledged before it began, unless that had
expired; it is restored without findings, a read of it without a restore gives the same, and a
broker serves it.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

import mqlog
from broker.harness import Broker, Cluster, Row
from broker.test_retention import SECONDS, SETTINGS
from broker.test_rocksdb_broker import IN_ROCKSDB
from broker.toolchain import VERSIONS
from mqstore.check import check
from mqstore.copy.check_points import check_points
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.files.points.repository import Repository
from mqstore.read.directory import open_origin
from snapshot_copy.copied import rows
from snapshot_copy.pointed import all_of, at, backing, in_any_point, rows_of
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]

TOPIC = "Kept"
POINTS = soak.size("live_points", check=3, test=8, whole=200)
RESTORED = soak.size("restored_points", check=2, test=2, whole=200)
BROKERS = 5
"""At most so many are started until enough points are judged."""
BOOTED = soak.size("booted_points", check=1, test=1, whole=10)


class Load:
    """A producer that sends until it is told to stop; ``acknowledged`` grows meanwhile."""

    def __init__(self, broker: Broker) -> None:
        self.acknowledged: list[Row] = []
        self._broker = broker
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._seed = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so():
            assert self._thread.is_alive()
            assert time.monotonic() < deadline
            self._thread.join(0.01)

    def wait_for(self, more: int) -> None:
        count = len(self.acknowledged) + more
        self.wait_until(lambda: len(self.acknowledged) >= count)

    def _send(self) -> None:
        while not self._ends.is_set():
            self._seed += 1
            self.acknowledged += self._broker.produce(TOPIC, "Single", 100, seed=self._seed)


@pytest.mark.parametrize("cluster", VERSIONS, indirect=True, scope="session")
def test_each_point_of_a_broker_under_load_is_its_store_at_that_moment(
    cluster: Cluster, tmp_path: Path
) -> None:
    judged = 0
    for number in range(1, BROKERS + 1):
        if judged < RESTORED:
            judged += points_under_load(cluster, tmp_path / str(number))
    assert judged >= RESTORED
    soak.tell(f"{judged} points of {cluster.version} brokers restored")


def points_under_load(cluster: Cluster, folder: Path) -> int:
    """Make points of a new broker, and return how many were judged.

    With fileReservedTime=0 a broker sometimes deletes a file before all of its records are in
    queues, and what it stores then has units at wrong places. Points from there on are not judged.
    """
    root, repository = folder / "broker-a" / "store", backing(folder / "kept")
    root.mkdir(parents=True)
    before: dict[int, list[Row]] = {}
    highs: dict[int, int] = {}
    with cluster.broker(root, SETTINGS | {"fileReservedTime": "0"}) as broker:
        with Load(broker) as load:
            for number in range(1, POINTS + 1):
                load.wait_for(150)
                if number == POINTS // 2:
                    load.wait_until(lambda: not (root / "commitlog" / f"{0:020d}").exists())
                before[number] = list(load.acknowledged)
                head = take_point(root, repository)
                assert head.number == number
                highs[number] = head.high
        broker.stop()
    low = take_point(root, repository).low
    assert low > 0  # Files were deleted meanwhile.
    assert check_points(Repository(repository)) == []
    whole = [number for number in before if all(highs[number] <= at for at in broker.lost_from())]
    chosen = sorted(random.Random(soak.SEED).sample(whole, min(RESTORED, len(whole))))
    for number in chosen:
        target = folder / "restored" / str(number)
        target.parent.mkdir(exist_ok=True)
        restore_point(at(repository, number), target)
        assert [f for f in check(target) if f.severity == "error"] == []
        found = rows(target)
        assert rows_of(at(repository, number)) == found
        assert_has(target, before[number])
    for number in chosen[-BOOTED:]:
        serves(cluster, folder / "restored" / str(number))
    if not list(broker.lost_from()):
        assert_all_points_have_what_was_sent(folder / "kept", load.acknowledged)
    return len(chosen)


def assert_all_points_have_what_was_sent(kept: Path, acknowledged: list[Row]) -> None:
    """All points have each message once that one of them has: what the broker acknowledged."""
    place = backing(kept)
    in_points = {q: held for (topic, q), held in in_any_point(kept).items() if topic == TOPIC}
    found = {q: held for (topic, q), held in rows_of(all_of(kept)).items() if topic == TOPIC}
    assert found == in_points
    last = rows_of(at(place, Repository(place).numbers()[-1]))
    assert sum(map(len, found.values())) > sum(len(last[TOPIC, q]) for q in found)
    sent = {(row["queueId"], row["queueOffset"]): row["msgId"] for row in acknowledged}
    columns = ["queueId", "queueOffset", "msgId"]
    every = list(mqlog.open(f"{kept}@all").scan(columns=columns, subscribe=TOPIC))
    assert len(every) == sum(map(len, found.values()))
    for row in every:
        assert sent[row["queueId"], row["queueOffset"]] == row["msgId"]


def assert_has(root: Path, acknowledged: list[Row]) -> None:
    """A store has the messages that were acknowledged, but those below its queues' bounds."""
    with closing(open_origin(root).bounds()) as source:
        held = {(q.topic, q.queue_id): (q.low, q.high) for q in source.snapshot().queues}
    for row in acknowledged:
        _, high = held[TOPIC, row["queueId"]]
        assert row["queueOffset"] < high


def serves(cluster: Cluster, root: Path, settings: Mapping[str, str] | None = None) -> None:
    """A broker gives all that a store has, and takes more."""
    expected = {
        (topic, queue_id, queue_offset)
        for (topic, queue_id), its in rows(root).items()
        for queue_offset, *_ in its
        if topic == TOPIC
    }
    with cluster.broker(root, settings or SETTINGS) as broker:
        dump = broker.dump(TOPIC)
        found = {(row["topic"], row["queueId"], row["queueOffset"]) for row in dump.rows}
        assert found == expected
        (sent,) = broker.produce(TOPIC, "Single", 1, seed=1)
        assert sent["queueOffset"] not in {at for _, q, at in expected if q == sent["queueId"]}
        broker.stop()
    assert [f for f in check(root) if f.severity == "error"] == []


def test_all_points_without_a_gap_are_served_by_a_broker(cluster: Cluster, tmp_path: Path) -> None:
    root, kept = tmp_path / "broker-a" / "store", tmp_path / "kept"
    root.mkdir(parents=True)
    with cluster.broker(root, SETTINGS) as broker:
        sent = broker.produce(TOPIC, "Single", 300, seed=1)
        broker.stop()
    take_point(root, backing(kept))
    for path in sorted((root / "commitlog").iterdir())[:2]:
        path.unlink()
    with cluster.broker(root, SETTINGS) as broker:
        sent += broker.produce(TOPIC, "Single", 100, seed=2)
        broker.stop()
    take_point(root, backing(kept))
    assert len(rows(root)[TOPIC, 0]) < len(rows_of(all_of(kept))[TOPIC, 0])
    target = tmp_path / "restored"
    restore_point(all_of(kept), target)
    held = {(q, at) for (topic, q), its in rows(target).items() if topic == TOPIC for at, *_ in its}
    assert held == {(row["queueId"], row["queueOffset"]) for row in sent}
    serves(cluster, target)


def test_a_point_of_queues_in_rocksdb_is_served_by_a_broker(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cluster.version == "4.9.7":
        pytest.skip("queues in RocksDB are new in 5.x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root, repository = tmp_path / "broker-a" / "store", backing(tmp_path / "kept")
    root.mkdir(parents=True)
    with cluster.broker(root, IN_ROCKSDB) as broker:
        with Load(broker) as load:
            for _ in range(2):
                load.wait_for(150)
                acknowledged = list(load.acknowledged)
                take_point(root, repository)
        broker.stop()
    target = tmp_path / "restored"
    restore_point(at(repository, 2), target)
    assert_has(target, acknowledged)
    assert rows_of(at(repository, 2)) == rows(target)
    serves(cluster, target, IN_ROCKSDB)

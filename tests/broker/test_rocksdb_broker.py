"""A real broker that keeps queues and configuration in RocksDB: what the client pulls is read."""

import shutil
from pathlib import Path

import pytest

from broker import recipe
from broker.harness import DEFAULT_FILES, Cluster, Row
from broker.left import MOVING
from broker.reading import by_queue, read, rows_of, told
from mqstore.backlog import BacklogRequest, measure, plan
from mqstore.check import check
from mqstore.copy.salvage import salvage
from mqstore.read.directory import take

pytestmark = pytest.mark.broker

NAMES = recipe.Names("R")
IN_ROCKSDB = {"storeType": "defaultRocksDB"}
IN_FILES = {
    "storeType": "default",
    "mappedFileSizeConsumeQueue": DEFAULT_FILES["mappedFileSizeConsumeQueue"],
}
"""Nothing in RocksDB tells of another size of files."""


def test_queues_and_offsets_in_rocksdb_are_those_of_the_client(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read beside the broker, which has flushed nothing; as kill -9 leaves it; and stopped."""
    if cluster.version == "4.9.7":
        pytest.skip("queues in RocksDB are new in 5.x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, IN_ROCKSDB) as broker:
        broker.produce(NAMES.topic, "Single", 120, tags=NAMES.tags)
        broker.produce(NAMES.batch, "Batch", 10, tags=NAMES.tags)
        broker.push(NAMES.topic, NAMES.push_group, "*", 60, fail_every=1000)
        broker.commit(NAMES.batch, NAMES.pull_group, 5)
        groups = NAMES.push_group, NAMES.pull_group
        dump = broker.dump()
        beside = read(root)
        broker.copy_store(root, tmp_path / "killed")
        progress = {group: broker.consumer_progress(group) for group in groups}
        broker.stop()
    assert dump.problems == []
    expected = {queue: of for queue, of in by_queue(told(dump.rows)).items() if held(queue)}
    assert sum(map(len, expected.values())) > 150
    for found in (beside, read(tmp_path / "killed"), read(root)):
        assert {queue: of for queue, of in by_queue(found).items() if held(queue)} == expected
    bounds = {(q.topic, q.queue_id): (q.low, q.high) for q in take(root).queues}
    theirs = {queue: of for queue, of in dump.queues.items() if held(queue) and of != (0, 0)}
    assert {queue: bounds[queue] for queue in theirs} == theirs
    request = BacklogRequest(groups=",".join(groups))
    ours = rows_of(measure(plan(take(root), request), request, as_of_ms=0))
    diffs = {(row["group"], row["topic"], row["queueId"]): row["diff"] for row in ours}
    assert diffs == {
        (group, row["topic"], row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for group, rows in progress.items()
        for row in rows
    }
    assert check(root) == []
    assert_salvaged(cluster, root, progress, expected)


def assert_salvaged(
    cluster: Cluster,
    root: Path,
    progress: dict[str, list[Row]],
    expected: dict[tuple[str, int], list[Row]],
) -> None:
    """A salvaged store is served by a broker with queues in files, and by one with RocksDB.

    That one takes over topics and offsets, and enters all messages, as after kill -9: after a clean
    stop it would leave out the first record of a log that starts at 0.
    """
    new = root.parent.parent / "salvaged"
    assert salvage(root, new).is_complete
    assert [found for found in check(new) if found.severity == "error"] == []
    for settings in (IN_FILES, IN_ROCKSDB):
        again = new.parent / f"served-by-{settings['storeType']}"
        shutil.copytree(new, again)
        if settings == IN_ROCKSDB:
            (again / "abort").touch()
        with cluster.broker(again, settings) as broker:
            dump = broker.dump()
            assert {g: broker.consumer_progress(g) for g in progress} == progress
            broker.produce(NAMES.topic, "Single", 8, tags=NAMES.tags)
            broker.wait_for(NAMES.topic, 128)
            broker.stop()
        rows = by_queue(told(dump.rows))
        assert {queue: of for queue, of in rows.items() if held(queue)} == expected


def held(queue: tuple[str, int]) -> bool:
    return not queue[0].startswith(MOVING)

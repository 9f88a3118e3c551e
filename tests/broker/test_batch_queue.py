"""A real broker with batch ConsumeQueues: what the official client pulls is what is read."""

import shutil
from pathlib import Path

import pytest

from broker.batch_left import PLAIN, SETTINGS, TOPIC, BatchesLeft, leave_batches
from broker.harness import SMALL_FILES, Cluster, Dumped, Row
from broker.reading import by_queue, read, rows_of, told
from broker.toolchain import VERSIONS
from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check import check
from mqstore.check.finding import ERROR
from mqstore.copy.salvage import salvage
from mqstore.read.directory import take

pytestmark = pytest.mark.broker

LOG_BYTES = int(SMALL_FILES["mappedFileSizeCommitLog"])


@pytest.mark.parametrize("cluster", VERSIONS[1:], indirect=True, scope="session")
def test_messages_offsets_bounds_and_backlog_of_batch_queues_are_those_of_the_broker(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Read as the store was beside its broker, as that left it, and without its first messages."""
    left = leave_batches(cluster, tmp_path)
    assert left.dump.problems == []
    assert sum(row["topic"] == TOPIC for row in left.dump.rows) > 200
    for root in (left.beside, left.root):
        assert_messages(root, left.dump)
        assert bounds(root) == {queue: left.dump.queues[queue] for queue in bounds(root)}
    assert_backlog(left.root, left)
    assert check(left.root) == []
    assert_salvaged(cluster, left)
    (left.root / "commitlog" / f"{0:020d}").unlink()
    with cluster.broker(left.root, SETTINGS) as broker:
        dump = broker.dump()
        broker.stop()
    assert_messages(left.root, dump)
    for queue, (low, high) in bounds(left.root).items():
        first = next(
            row["queueOffset"] for row in dump.rows if (row["topic"], row["queueId"]) == queue
        )
        assert (low, high) == (first, dump.queues[queue][1])
        assert dump.queues[queue][0] < low, "a broker counts from units whose records are gone"
    assert check(left.root) == []


def assert_salvaged(cluster: Cluster, left: BatchesLeft) -> None:
    """Of a damaged log the client gets every whole batch, over the gaps, and what is sent since."""
    damaged, new = (left.root.parent / name for name in ("damaged", "salvaged"))
    shutil.copytree(left.root, damaged)
    shutil.rmtree(damaged / "batchconsumequeue" / TOPIC / "1")
    places = sorted({row["physicalOffset"] for row in read(left.root) if row["topic"] == TOPIC})
    lost = {places[0], *places[10:30:3], *places[40:44]}
    for place in lost:
        position = place % LOG_BYTES
        with (damaged / "commitlog" / f"{place - position:020d}").open("r+b") as file:
            file.seek(position + 100)
            file.write(b"damage")
    made = salvage(damaged, new)
    assert made.doubted == len(lost)
    assert made.lost_messages > len(lost)
    assert [found for found in check(new) if found.severity == ERROR] == []
    whole = [row for row in left.dump.rows if row["physicalOffset"] not in lost]
    whole = [row | {"physicalOffset": row["physicalOffset"] + made.moved_by} for row in whole]
    assert_messages(new, Dumped(whole, {}, []))
    with cluster.broker(new, SETTINGS) as broker:
        expected = {_name(row) for row in whole if row["topic"] == TOPIC}
        pushed = broker.pushed(TOPIC, "CG_AFTER", len(expected))
        assert {_name(row) for row in pushed} == expected
        assert len(broker.produce(TOPIC, "Batch", 4, seed=9)) == 4
        broker.stop()
    assert check(new) == []


def _name(row: Row) -> tuple[int, int, str]:
    return row["queueId"], row["queueOffset"], row["msgId"]


def assert_messages(root: Path, dump: Dumped) -> None:
    """All fields of all messages, in the order of the queues."""
    expected, found = by_queue(told(dump.rows)), by_queue(read(root))
    queues = {queue for queue in expected if queue[0] in {TOPIC, PLAIN}}
    assert {queue: found.get(queue, []) for queue in queues} == {q: expected[q] for q in queues}


def bounds(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """The lowest offset of each batch queue, and the one behind its last message."""
    queues = take(root).queues
    return {(q.topic, q.queue_id): (q.low, q.high) for q in queues if q.topic == TOPIC}


def assert_backlog(root: Path, left: BatchesLeft) -> None:
    """Lag counts messages, not units, also for a group that stands amid a batch."""
    request = BacklogRequest(groups=",".join(left.progress))
    ours = rows_of(measure(plan(take(root), request), request, as_of_ms=0))
    diffs = {(row["group"], row["topic"], row["queueId"]): row["diff"] for row in ours}
    theirs = {
        (group, row["topic"], row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for group, rows in left.progress.items()
        for row in rows
        if row["topic"] == TOPIC
    }
    assert len(theirs) == 4
    assert {name: diffs[name] for name in theirs} == theirs

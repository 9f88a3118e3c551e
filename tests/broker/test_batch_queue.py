"""A real broker with batch ConsumeQueues: what the official client pulls is what is read."""

from pathlib import Path

import pytest

from broker.batch_left import PLAIN, SETTINGS, TOPIC, BatchesLeft, leave_batches
from broker.harness import Cluster, Dumped
from broker.reading import by_queue, read, rows_of, told
from broker.toolchain import VERSIONS
from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check import check
from mqstore.read.directory import take

pytestmark = pytest.mark.broker


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

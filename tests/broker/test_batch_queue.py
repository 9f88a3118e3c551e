"""A real broker with batch ConsumeQueues: what the official client pulls is what is read."""

from pathlib import Path

import pytest

from broker.batch_left import PLAIN, TOPIC, BatchesLeft, leave_batches
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
    """Read as the store was beside its broker, and as that left it."""
    left = leave_batches(cluster, tmp_path)
    assert left.dump.problems == []
    assert sum(row["topic"] == TOPIC for row in left.dump.rows) > 200
    for root in (left.beside, left.root):
        assert_same(root, left.dump)
    assert_backlog(left.root, left)
    assert check(left.root) == []


def assert_same(root: Path, dump: Dumped) -> None:
    """All fields of all messages, in the order of the queues, and the queues' bounds."""
    expected, found = by_queue(told(dump.rows)), by_queue(read(root))
    queues = {queue for queue in expected if queue[0] in {TOPIC, PLAIN}}
    assert {queue: found.get(queue, []) for queue in queues} == {q: expected[q] for q in queues}
    bounds = {(q.topic, q.queue_id): (q.low, q.high) for q in take(root).queues}
    assert {q: bounds[q] for q in queues} == {q: dump.queues[q] for q in queues}


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

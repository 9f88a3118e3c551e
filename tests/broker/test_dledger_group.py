"""A DLedger group whose leader is killed: the three disks, read by mqstore."""

from pathlib import Path

import pytest

from broker.group_left import MOVING, GroupLeft, leave_group
from broker.harness import Cluster
from broker.reading import by_queue, read, rows_of, told
from broker.toolchain import VERSIONS
from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check.finding import ERROR
from mqstore.check.store import check
from mqstore.read.directory import take
from support import by_log, soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]


@pytest.mark.parametrize(
    "cluster", VERSIONS if soak.WHOLE else VERSIONS[:1], indirect=True, scope="session"
)
def test_each_disk_of_a_group_gives_what_the_client_pulled_from_the_leader(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One group for all claims: it takes long to start it, kill its leader and stop it."""
    left = leave_group(cluster, tmp_path)
    assert left.dump.problems == []
    assert_disks(left)
    assert_acknowledged(left)
    assert_backlog(left)
    for root in left.roots.values():
        assert [finding for finding in check(root) if finding.severity == ERROR] == []
        alone = by_log.rows(by_log.snapshot(root, tmp_path / "cache"))
        assert len(alone) == sum(q.high - q.low for q in take(root).queues)


def assert_disks(left: GroupLeft) -> None:
    """The last leader's disk and the follower's give all, that of the killed one the beginning."""
    expected = by_queue(told(left.dump.rows))
    assert len(expected) > 15
    for peer, root in left.roots.items():
        found = by_queue(read(root))
        for queue in set(expected) | set(found):
            pulled, held = expected.get(queue, []), found.get(queue, [])
            if queue[0].startswith(MOVING):
                shorter = min(len(pulled), len(held))
                assert held[:shorter] == pulled[:shorter], (peer, queue)
            elif peer == left.killed:
                assert held == pulled[: len(held)], (peer, queue)
            else:
                assert held == pulled, (peer, queue)


def assert_acknowledged(left: GroupLeft) -> None:
    """Every acknowledged message is on the disk of the last leader, where it was acknowledged."""
    found = {
        (row["topic"], row["queueId"], row["queueOffset"]): row["msgId"]
        for row in read(left.roots[left.leader])
    }
    sent = [row for row in left.acknowledged if row["kind"] not in {"Delay", "Tx"}]
    for row in sent:
        place = row["topic"], row["queueId"], row["queueOffset"]
        assert found[place] == row["msgId"].split(",")[0]
    assert len(sent) > 150


def assert_backlog(left: GroupLeft) -> None:
    """The backlog of the last leader is what consumerProgress says."""
    request = BacklogRequest(groups=",".join(left.progress))
    batch = measure(plan(take(left.roots[left.leader]), request), request, as_of_ms=0)
    ours = {(r["group"], r["topic"], r["queueId"]): r for r in rows_of(batch)}
    compared = 0
    for group, rows in left.progress.items():
        for theirs in rows:
            row = ours[group, theirs["topic"], theirs["queueId"]]
            assert row["brokerOffset"] == theirs["brokerOffset"]
            assert (row["consumerOffset"] or 0) == max(0, theirs["consumerOffset"])
            assert row["diff"] == theirs["brokerOffset"] - theirs["consumerOffset"]
            compared += 1
    assert compared >= 8

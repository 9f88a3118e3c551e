"""Offsets of groups carried by ``mqlog replay --groups``: the official consumer goes on there."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.harness import FAST_DELAYS, Cluster
from deliver.test_sent_to_brokers import CLI, sent, told
from live.real import Live
from mqstore.live.origin import groups
from support.processes import until
from support.writing import rows

pytestmark = pytest.mark.broker

COUNT = 60
CONSUMED = 7  # Of each of three queues.
GROUP = "CG_CARRIED"


@pytest.fixture(scope="module")
def live(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    root = tmp_path_factory.mktemp(f"carried-{cluster.version}-") / "store"
    found = Live(cluster, root, FAST_DELAYS)
    yield found
    found.close()


def mqlog(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CLI, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def json_of(*words: str | Path) -> list[dict[str, Any]]:
    done = mqlog(*words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_online(live: Live) -> bool:
    return bool(groups.online(live.cluster, ["broker-a"], [GROUP]))


def committed(live: Live, topic: str) -> dict[int, int]:
    of_broker = groups.committed(live.cluster, ["broker-a"])["broker-a"]
    return dict(of_broker.get((topic, GROUP), {}))


def bodies(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["bodySha1"] for row in found)


def test_a_group_goes_on_in_the_target_with_what_it_had_not_consumed(
    live: Live, tmp_path: Path
) -> None:
    old, new = "CarryOld", "CarryNew"
    sent(live, rows(COUNT, topic=None, tags="t"), topic=old)
    live.broker.wait_for(old, COUNT)
    live.broker.commit(old, GROUP, CONSUMED)
    waiting = [row for row in told(live, old) if row["queueOffset"] >= CONSUMED]
    moved = f"parquet:{tmp_path}/map"
    words: tuple[str, ...] = ("replay", live.address, live.address, "--topic", old, "--to", new)
    words += ("--groups", GROUP, "--create-topic", "-o", "queueNums=3", "-o", "fenceWait=500ms")

    live.broker.join(GROUP, old)  # It consumes all, which is undone below.
    until(lambda: is_online(live))
    refused = mqlog(*words)
    assert (refused.returncode, "consumers of broker-a are in this group" in refused.stderr) == (
        2,
        True,
    ), refused.stderr
    live.broker.leave()
    until(lambda: not is_online(live))
    live.broker.commit(old, GROUP, CONSUMED)
    assert live.cluster.route(new, fresh=True) is None  # Nothing was sent, or made.

    planned = [row for row in json_of(*words, "--dry-run") if "group" in row]
    assert [(row["consumerOffset"], row["waiting"]) for row in planned] == [
        (CONSUMED, COUNT // 3 - CONSUMED)
    ] * 3
    assert {row["newOffset"] for row in planned} == {None}
    assert live.cluster.route(new, fresh=True) is None

    (done,) = json_of(*words, "--offset-map", moved)
    assert [(row["newQueueId"], row["newOffset"]) for row in done["groups"]] == [
        (queue, CONSUMED) for queue in range(3)
    ]
    assert all(row["waiting"] == row["replayed"] for row in done["groups"])
    assert committed(live, new) == dict.fromkeys(range(3), CONSUMED)
    planned = [row for row in json_of(*words, "--dry-run") if "group" in row]
    assert planned == done["groups"]

    audit = ("audit", live.address, live.address, "--offset-map", moved)
    same = mqlog(*audit, "--unconsumed", GROUP)
    assert (same.returncode, f"the same {len(waiting)} messages" in same.stdout) == (0, True), same
    assert f"the same {COUNT} messages" in mqlog(*audit).stdout

    (again,) = json_of(*words)  # What is there already is carried by another run.
    assert (again["messages"], again["groups"]) == (0, done["groups"])
    got = live.broker.pushed(new, GROUP, len(waiting))
    assert bodies(got) == bodies(waiting)
    refused = mqlog(*words)
    assert refused.returncode == 2
    assert "nothing is changed" in refused.stderr
    assert mqlog(*audit, "--unconsumed", GROUP).returncode == 1


def test_where_queues_meet_nothing_is_skipped_and_what_comes_again_is_foretold(
    live: Live,
) -> None:
    old, new = "MeetOld", "MeetNew"
    sent(live, rows(COUNT, topic=None), topic=old)
    live.broker.wait_for(old, COUNT)
    live.broker.commit(old, GROUP, CONSUMED)
    waiting = bodies([row for row in told(live, old) if row["queueOffset"] >= CONSUMED])
    words: tuple[str, ...] = ("replay", live.address, live.address, "--topic", old, "--to", new)
    words += ("--create-topic", "-o", "queueNums=2", "-o", "fenceWait=500ms")
    (done,) = json_of(*words, "--groups", GROUP)

    by_queue = {row["newQueueId"]: row for row in done["groups"]}
    assert sorted(by_queue) == [0, 1]
    starts = {queue: row["newOffset"] for queue, row in by_queue.items()}
    left = [row for row in told(live, new) if row["queueOffset"] >= starts[row["queueId"]]]
    assert waiting <= bodies(left)
    most = sum(max(r["again"] for r in done["groups"] if r["newQueueId"] == q) for q in starts)
    assert 0 < sum((bodies(left) - waiting).values()) <= most


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--groups", "CG_NOBODY"), "no group CG_NOBODY"),
        (("--groups", "CG X"), "no group CG X"),
        (("--groups", GROUP, "--at-least-once"), "is for exactly once"),
    ],
)
def test_groups_that_cannot_be_carried_are_refused_by_name(
    live: Live, more: tuple[str, ...], said: str
) -> None:
    sent(live, rows(3, topic=None), topic="Refused")
    live.broker.wait_for("Refused", 3)
    words = ("replay", live.address, live.address, "--topic", "Refused", "--to", "RefusedTo")
    done = mqlog(*words, *more)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert live.cluster.route("RefusedTo", fresh=True) is None

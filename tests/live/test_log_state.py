"""What brokers tell of their CommitLog, its disk and their settings of retention."""

from typing import Any

import mqlog
from live.loopback import FakeCluster
from mqlog_jobs.places import Named
from mqstore.live.remoting.log_state import disk_of
from mqstore.read.capabilities import DeletesFiles
from mqstore.read.retention import DiskUse, LogState, RetentionPolicy
from support.oracle import Message

ALL_OFFSETS = 43


def test_a_broker_s_disk_is_what_its_rounded_numbers_leave_open() -> None:
    assert disk_of({}) is None
    assert disk_of({"commitLogDiskRatio": "NaN", "commitLogDirCapacity": "Total : 1 GiB"}) is None
    told = {"commitLogDirCapacity": "Total : 64.0 MiB, Free : 16.0 MiB."}
    assert disk_of(told | {"commitLogDiskRatio": "0.75"}) == DiskUse(64 << 20, 48 << 20)
    # What is kept for root is in the total, and not in the ratio.
    kept = disk_of(told | {"commitLogDiskRatio": "0.8"})
    assert kept is not None
    assert kept.used == 48 << 20
    assert kept.size == int((48 << 20) / 0.79)
    hostile = {"commitLogDirCapacity": "Total : 99999.9 EiB, Free : 1 B", "commitLogDiskRatio": "1"}
    assert disk_of(hostile) is not None
    assert disk_of(told | {"commitLogDiskRatio": "0.0"}) == DiskUse(64 << 20, 48 << 20)


def test_settings_and_the_commit_log_are_what_a_broker_tells() -> None:
    with FakeCluster().running() as cluster:
        cluster.fill("T", 5)
        cluster.settings |= {"fileReservedTime": "6", "deleteWhen": "00;12", "password": "p"}
        cluster.settings["mappedFileSizeCommitLog"] = "500"
        place = f"rocketmq://{cluster.address}"
        with Named.of([place]).opened(groups=set()) as stores:
            (source,) = stores.sources
            assert isinstance(source, DeletesFiles)
            policy, state = source.retention_policy(), source.log_state()
    assert policy == RetentionPolicy(6 * 3_600_000, frozenset({0, 12}))
    assert state == LogState(100, 900, 500, 500)


def test_a_group_that_consumes_what_is_stored_during_a_look_is_not_ahead() -> None:
    with FakeCluster().running() as cluster:
        queue = cluster.fill("T", 5)
        cluster.committed["T", "g", 0] = 5

        def grow(request: dict[str, Any]) -> None:
            if request["code"] == ALL_OFFSETS and queue.high == 5:
                queue.messages += [Message(topic="T", queue_offset=at) for at in (5, 6, 7)]
                cluster.committed["T", "g", 0] = 8

        cluster.fault = grow
        place = f"rocketmq://{cluster.address}"
        (row,) = mqlog.open(place).table("backlog", groups="g").to_table().to_pylist()
        assert (row["status"], row["brokerOffset"], row["lag"]) == ("OK", 8, 0)
        cluster.committed["T", "g", 0] = 9
        (row,) = mqlog.open(place).table("backlog", groups="g").to_table().to_pylist()
        assert (row["status"], row["brokerOffset"]) == ("AHEAD", 8)

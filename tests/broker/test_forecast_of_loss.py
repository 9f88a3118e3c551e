"""Brokers on a small disk that really delete: etaLoss says when, to a file.

The disk is a tmpfs, so the test needs the right to mount one. What a forecast says is compared in
bytes: those that are written until the time that it says, at the rate that it says.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from broker.harness import Broker, Cluster
from broker.test_why import HOURS, table
from mqlog_jobs.cli import main
from mqstore.tables import looks
from mqstore.verdicts.rates import Drift, drift
from support import soak

pytestmark = pytest.mark.broker
TOPIC = "Lost"
FILE = 1 << 20
SIZE = 64 << 20
BODY = 4_000
CHUNK = 64
CONF = {
    "mappedFileSizeCommitLog": str(FILE),
    "fileReservedTime": "0",
    "deleteWhen": HOURS,
    "cleanResourceInterval": "100",
    "deleteCommitLogFilesInterval": "1",
    "messageIndexEnable": "false",
}
SECONDS = 150
Row = dict[str, Any]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here: the small disk of a broker")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def wait_until(is_so: Any) -> None:
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while not is_so():
        assert time.monotonic() < end
        pause.wait(0.05)


def configure(cluster: Cluster, broker: Broker, name: str, value: str) -> None:
    where = "-n", cluster.name_server, "-b", broker.address
    told = broker.mqadmin("updateBrokerConfig", *where, "-k", name, "-v", value)
    assert "success" in told, told


def log_files(root: Path) -> list[int]:
    """Where the files of the CommitLog begin."""
    return sorted(int(path.name) for path in (root / "commitlog").iterdir() if path.name.isdigit())


def groups_of(root: Path) -> set[str]:
    return {row["group"] for row in table(str(root), "offsets")}


def used(folder: Path) -> int:
    told = os.statvfs(folder)
    return (told.f_blocks - told.f_bfree) * told.f_frsize


def record(
    place: str, file: Path, monkeypatch: pytest.MonkeyPatch, *options: str, count: int = 1
) -> None:
    words = ["mqlog", "record", place, str(file), "--count", str(count), *options, "--json"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def foreseen(place: str, file: Path, **options: str) -> dict[str, Row]:
    rows = table(place, "forecast", samples=str(file), subscribe=TOPIC, **options)
    return {row["group"]: row for row in rows if row["queueId"] == 0}


def written(row: Row, file: Path, column: str, now: int) -> float:
    """What a column of samples will have grown to at the loss, at the rate since the first one."""
    first = min(pq.read_table(file).to_pylist(), key=lambda one: one["asOf"])
    over: int = row["asOf"] - round(first["asOf"].timestamp() * 1e6)
    per_us: float = (now - first[column]) / over
    ahead: int = row["etaLoss"] - row["asOf"]
    return now + ahead * per_us


def steady(*arguments: Any) -> Drift | None:
    """The drift without an error of its rate."""
    found = drift(*arguments)
    return None if found is None else replace(found, variance=0.0)


def test_a_message_is_lost_when_the_forecast_says_to_one_file(
    cluster: Cluster, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A test's disk fills in seconds; how steadily is up to the machine, and not what is tested.
    monkeypatch.setattr(looks, "LEAST_SPAN_MS", 1)
    monkeypatch.setattr(looks, "drift", steady)
    root = disk / "store"
    with cluster.broker(root, CONF) as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 8)
        broker.send_all(TOPIC, 1_000, BODY, 1)
        # Deletion begins a minute after the start; then only the disk is to matter.
        wait_until(lambda: log_files(root)[0] > 0)
        configure(cluster, broker, "fileReservedTime", "72")
        first = log_files(root)[0]
        broker.send_all(TOPIC, int(0.6 * SIZE - used(disk)) // BODY, BODY, 1)
        assert log_files(root)[0] == first
        queues = broker.topic_status(TOPIC)
        in_a_file = FILE // (BODY + 200) // len(queues)
        # Counted from the end: a broker may tell of a lower end that its queue has left behind.
        behind = ((log_end(place) - first) / FILE - 14) * in_a_file
        broker.commit(TOPIC, "CG_FIRST", queues[0]["minOffset"])
        broker.commit(TOPIC, "CG_LATER", queues[0]["maxOffset"] - int(behind))
        wait_until(lambda: {"CG_FIRST", "CG_LATER"} <= groups_of(root))  # Written every 5 s.
        stores, clusters = tmp_path / "stores.parquet", tmp_path / "cluster.parquet"
        for _ in range(4):
            record(str(root), stores, monkeypatch)
            record(place, clusters, monkeypatch)
            broker.send_all(TOPIC, CHUNK, BODY, 1)
        record(str(root), stores, monkeypatch)
        record(place, clusters, monkeypatch)
        conf = tmp_path / "broker.conf"
        conf.write_text(f"fileReservedTime=72\ndeleteWhen={HOURS}\n")
        here = foreseen(str(root), stores, brokerConf=str(conf))
        there = foreseen(place, clusters)
        now_used, now_end = used(disk), log_end(place)
        assert log_files(root)[0] == first
        for group, freed in (("CG_FIRST", 0), ("CG_LATER", 10)):
            mine, theirs = here[group], there[group]
            assert (mine["lossBy"], theirs["lossBy"]) == ("DISK", "DISK")
            at_used = written(mine, stores, "diskUsed", now_used)
            at_end = written(theirs, clusters, "logEnd", now_end)
            near = min(at_used - freed * FILE - used(disk), at_end - log_end(place)) - 2 * FILE
            broker.send_all(TOPIC, max(1, int(near) // BODY), BODY, 1)
            write_until(broker, lambda freed=freed: log_files(root)[0] > first + freed * FILE, disk)
            lost_used, lost_end = LAST_USED[0] + freed * FILE, log_end(place)
            soak.tell(
                f"{cluster.version} {group}: {(lost_used - at_used) / FILE:+.2f} files of the disk "
                f"and {(lost_end - at_end) / FILE:+.2f} of the log from where it was foreseen"
            )
            assert abs(lost_used - at_used) <= FILE
            assert abs(lost_end - at_end) <= FILE
        broker.stop()


def write_until(broker: Broker, is_lost: Any, disk: Path) -> None:
    """Write a quarter of a file at a time until the message is lost, and note what was in use."""
    pause = threading.Event()
    for _ in range(SIZE // CHUNK // BODY):
        if is_lost():
            return
        LAST_USED[0] = used(disk)
        broker.send_all(TOPIC, CHUNK, BODY, 1)
        pause.wait(0.4)  # Four looks of the broker at its disk.
    assert is_lost()


LAST_USED = [0]


def log_end(place: str) -> int:
    (row,) = table(place, "brokers")
    end: int = row["maxPhysicalOffset"]
    return end

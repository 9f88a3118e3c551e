"""A broker whose retention works (fileReservedTime=0, small files) under batch reads and a stream.

It deletes CommitLog files, and the ConsumeQueue files of their messages, between the plan of a read
and its tasks: that is data loss, and no damage.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from broker.harness import Broker, Cluster
from broker.toolchain import VERSIONS
from mqstore.errors import DataLossError
from mqstore.request.plan import Work, plan_read, read_schema
from pyspark_mqlog.options import parse_read, parse_stream
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]

TOPIC = "Kept"
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "fileReservedTime": "72",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "200",
    "destroyMapedFileIntervalForcibly": "1000",
}
"""A file may go at any hour, once fileReservedTime says so; the first a minute after the start."""
SECONDS = 300
ROUNDS = 5
Offsets = list[tuple[int, int]]


def planned(root: Path, **options: str) -> Sequence[Work]:
    """The work of a read's tasks."""
    parsed = parse_read({"path": str(root), "subscribe": TOPIC, **options})
    return plan_read(parsed, read_schema(parsed).names).work()


def offsets(work: Sequence[Work]) -> Offsets:
    """(queueId, queueOffset) of what the tasks give."""
    found = [row for share in work for batch in share.batches() for row in batch.to_pylist()]
    return sorted((row["queueId"], row["queueOffset"]) for row in found)


def stream(root: Path, **options: str) -> MqlogStreamReader:
    asked = {"path": str(root), "subscribe": TOPIC, "startingOffsets": "earliest", **options}
    return MqlogStreamReader(parse_stream(asked), StructType(), ("queueId", "queueOffset"))


def work_of(
    reader: MqlogStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]
) -> list[Work]:
    return [reader.work(partition) for partition in reader.partitions(dict(start), dict(end))]


def held(broker: Broker) -> Offsets:
    """What the official client pulls of the topic."""
    rows = broker.dump(TOPIC).rows
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


def files_of(root: Path) -> list[Path]:
    return [*(root / "commitlog").iterdir(), *(root / "consumequeue" / TOPIC).glob("*/*")]


@pytest.mark.parametrize(
    "cluster", VERSIONS if soak.WHOLE else VERSIONS[1:], indirect=True, scope="session"
)
def test_files_that_a_broker_deletes_under_a_read_are_data_loss_and_no_damage(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One broker for all claims: it deletes nothing in the first minute after its start."""
    root = tmp_path / "store"
    root.mkdir()
    by_log = {"queues": "log", "cacheDir": str(tmp_path / "cache")}
    ways: dict[str, dict[str, str]] = {"queues": {}, "log": by_log}
    with cluster.broker(root, SETTINGS) as broker:
        broker.produce(TOPIC, "Single", 1_000)
        before = held(broker)
        reads = {
            (way, loss): planned(root, failOnDataLoss=loss, **options)
            for way, options in ways.items()
            for loss in ("true", "false")
        }
        readers = {loss: stream(root, failOnDataLoss=loss) for loss in ("true", "false")}
        starts = {loss: reader.initialOffset() for loss, reader in readers.items()}
        ends = {
            loss: reader.latestOffset(starts[loss], ReadAllAvailable())
            for loss, reader in readers.items()
        }
        batches = {loss: work_of(readers[loss], starts[loss], ends[loss]) for loss in readers}
        start_retention(cluster, broker, root)
        left = held(broker)
        assert 0 < len(left) < len(before) / 2
        for works in (reads["queues", "true"], reads["log", "true"], batches["true"]):
            with pytest.raises(DataLossError, match=TOPIC):
                offsets(works)
        with caplog.at_level(logging.WARNING):
            for works in (reads["queues", "false"], reads["log", "false"], batches["false"]):
                caplog.clear()
                assert offsets(works) == left
                assert TOPIC in caplog.text
        assert_followed(broker, readers["false"], ends["false"], before)
        broker.stop()


def start_retention(cluster: Cluster, broker: Broker, root: Path) -> None:
    """Let the broker delete what it may, and wait until only the last CommitLog file is left."""
    where = "-n", cluster.name_server, "-b", broker.address
    told = broker.mqadmin("updateBrokerConfig", *where, "-k", "fileReservedTime", "-v", "0")
    assert "success" in told, told
    count = len({path for path in files_of(root) if path.parent.name == "commitlog"})
    assert count > 4

    def is_done() -> bool:
        logs = [path for path in files_of(root) if path.parent.name == "commitlog"]
        queues = {path.parent: int(path.name) for path in sorted(files_of(root), reverse=True)}
        firsts = [start for parent, start in queues.items() if parent.name != "commitlog"]
        return len(logs) <= 2 and all(firsts)

    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while not is_done():
        assert time.monotonic() < deadline
        pause.wait(0.1)


def assert_followed(
    broker: Broker, reader: MqlogStreamReader, start: dict[str, Any], before: Offsets
) -> None:
    """A stream of a broker at work goes on, and has all that was held when it looked last."""
    found: Offsets = []
    for number in range(ROUNDS):
        broker.produce(TOPIC, "Single", 300, seed=number + 10)
        end = reader.latestOffset(start, ReadAllAvailable())
        found += offsets(work_of(reader, start, end))
        start = end
    reader.stop()
    assert len(found) == len(set(found))
    assert set(held(broker)) - set(before) <= set(found)

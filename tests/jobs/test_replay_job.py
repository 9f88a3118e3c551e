"""replay.py: a golden store to brokers on loopback by Spark's tasks, once and at least once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from live.taking import TakingCluster
from mqlog_jobs.spark import replay
from mqstore.deliver.replay import run as replay_run
from support import goldens

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic("GTopic", 4)
        yield found


def test_tasks_replay_a_store_once_and_write_the_map(
    spark: SparkSession,
    taking: TakingCluster,
    golden_550: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_run, "PART_MESSAGES", 100)
    place = f"rocketmq://{taking.address}"
    chosen = ["--from", str(golden_550), "--to", place, "--topic", "GTopic", "--create-topic"]
    chosen += ["--offset-map", f"parquet:{tmp_path}/map"]
    assert replay.main(chosen) == 0
    assert capsys.readouterr().out == "481 messages sent: 481 to GTopic\n"
    assert replay.main(chosen) == 0
    assert "0 messages sent; 481 offsets" in capsys.readouterr().out
    moved = spark.read.parquet(f"{tmp_path}/map").collect()
    to = {(r.queueId, r.queueOffset): (r.newQueueId, r.newQueueOffset) for r in moved}
    wanted = [row for row in goldens.expected("5.5.0") if row["topic"] == "GTopic"]
    assert to == {
        (r["queueId"], r["queueOffset"]): (r["queueId"], r["queueOffset"]) for r in wanted
    }
    assert len({row["write"] for row in moved}) > 1

    assert replay.main([*chosen[:-2], "--at-least-once"]) == 0
    assert capsys.readouterr().out == "481 messages sent: 481 to GTopic\n"
    queues = [taking.queues["broker-a", "GTopic", queue_id] for queue_id in range(4)]
    ids = Counter(m.msg_id for queue in queues for m in queue.messages if m)
    assert ids >= Counter(row["msgId"] for row in wanted)
    assert sum(ids.values()) == 962


def test_what_is_wrong_is_one_line(
    taking: TakingCluster, golden_550: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"rocketmq://{taking.address}"
    assert replay.main(["--from", str(golden_550), "--to", place, "--topic", "GTx"]) == 2
    assert "no broker has a topic GTx" in capsys.readouterr().err
    for flag, value, told in (
        ("--rate", "0", "option --rate='0': must be a whole number from 1 to"),
        ("--offset-map", "table:x", "option --offset-map='table:x': write parquet:DIR, csv:DIR"),
    ):
        assert replay.main(["--from", "x", "--to", place, flag, value]) == 2
        assert told in capsys.readouterr().err

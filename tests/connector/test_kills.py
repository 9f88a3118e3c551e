"""A query that is killed with -9 at any moment, and started again: every row once.

The size query_kills says how often, the seed at which moments. `make test` kills such a query in
test_killed_queries.py, `make soak` here too.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import soak
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, MakeStore

COPIED_QUERY = str(Path(soak.__file__).with_name("copied_query.py"))
KILLS = soak.size("query_kills", check=0, test=0, whole=20)
SEED = soak.SEED
PER_LIFE = 150
START_S = 240


@soak.only
@pytest.mark.spark
def test_a_killed_query_goes_on_with_every_row_once(
    spark: SparkSession, store: MakeStore, tmp_path: Path
) -> None:
    moments = random.Random(SEED)
    every = [Message(queue_id=i % 3, body=bytes(i % 50)) for i in range((KILLS + 1) * PER_LIFE)]
    laid = store(every[:PER_LIFE])
    target = tmp_path / "job"
    for life in range(KILLS):
        laid = _live_and_die(laid, every[: (life + 2) * PER_LIFE], target, moments)
    _finish(spark, laid.root, target)
    rows = spark.read.parquet(str(target / "rows")).collect()
    assert sorted((row.queueId, row.queueOffset) for row in rows) == sorted(
        (i % 3, i // 3) for i in range(len(every))
    )


def _live_and_die(
    laid: Laid, messages: list[Message], target: Path, moments: random.Random
) -> Laid:
    """Run the query in a process of its own; while it works let the store grow, and kill it."""
    command = [
        sys.executable,
        COPIED_QUERY,
        str(laid.root),
        str(target),
        "topic string, queueId int, queueOffset bigint",
        json.dumps({"maxOffsetsPerTrigger": "20"}),
    ]
    done = _batches(target)
    log = target.with_name("query.log")
    with (
        log.open("wb") as told,
        subprocess.Popen(command, start_new_session=True, stdout=told, stderr=told) as query,
    ):
        try:
            _until_batches(query, target, done + moments.randint(1, 4))
            laid = grow(laid, messages)
            _pause(query, moments.uniform(0, 2))
        finally:
            os.killpg(query.pid, signal.SIGKILL)
    return laid


def _batches(target: Path) -> int:
    """How many batches Spark has begun: it writes their offsets down first, and keeps the last."""
    begun = (target / "checkpoint" / "offsets").glob("[0-9]*")
    return max((int(path.name) + 1 for path in begun), default=0)


def _until_batches(query: "subprocess.Popen[bytes]", target: Path, count: int) -> None:
    deadline = time.monotonic() + START_S
    while _batches(target) < count:
        assert time.monotonic() < deadline, "the query did not come so far"
        _pause(query, 0.05)


def _pause(query: "subprocess.Popen[bytes]", seconds: float) -> None:
    try:
        query.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    pytest.fail(f"the query ended by itself with {query.returncode}; see query.log")


def _finish(spark: SparkSession, root: Path, target: Path) -> None:
    rows = (
        spark.readStream.schema("topic string, queueId int, queueOffset bigint")
        .format("mqlog")
        .option("startingOffsets", "earliest")
        .load(str(root))
    )
    writer = rows.writeStream.format("parquet").option("path", str(target / "rows"))
    query = (
        writer.option("checkpointLocation", str(target / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(START_S)

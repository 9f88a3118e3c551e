"""A query that is killed with -9 at any moment, and started again: every row once.

The size query_kills says how often, the seed at which moments. `make test` kills such a query in
test_killed_queries.py, `make soak` here too.
"""

import json
import random
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import soak
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, MakeStore
from support.victim import Victim, begun

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
    wanted = begun(target) + moments.randint(1, 4)
    query = Victim(command, target.with_name("query.log"))
    query.start()
    with closing(query):
        query.until(lambda: begun(target) >= wanted, 0.05)
        laid = grow(laid, messages)
        query.pause(moments.uniform(0, 2))
    return laid


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

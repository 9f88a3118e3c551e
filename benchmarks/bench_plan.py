"""What is not about bytes: many queues, many groups, a small commit on a large store.

    python -m benchmarks plan

``plan``: from ``load`` to the partitions, of as many queues as a hundredth of MESSAGES and one
message in forty of them, beside a Python source that returns as many partitions at once: the
rest is Spark's own. ``backlog``: a row for each queue of 100 topics and each of 1,000 groups
(MESSAGES / 10,000, if fewer), each subscribed by tag and counted by the tags themselves, in one
DataFrame. ``commit``: 1,000 rows appended to a store
of 1 GiB and to one of 100 GiB, sparse, from the staged files on.
"""

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.nothing import RepeatingSource
from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from benchmarks.spark import spark_session
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

TOPICS = 100
QUEUES = 4
FILES = (1, 100)
COMMITTED = 1_000
EACH = 4


def main(count: int) -> None:
    """Measure the three."""
    with spark_session() as spark:
        spark.dataSource.register(RepeatingSource)
        _plan(spark, max(100, count // 1_000))
        _backlog(spark, count, max(10, count // 10_000))
    for files in FILES:
        _commit(files)


def _plan(spark: SparkSession, queues: int) -> None:
    shape = Shape(queues * EACH, 100, queues=queues // TOPICS, topics=TOPICS)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        lay_out(root, shape)

        def ours() -> DataFrame:
            return spark.read.format("mqlog").load(str(root))

        tasks = ours().rdd.getNumPartitions()
        kept = Path(directory) / "none.arrow"
        with pa.OSFile(str(kept), "wb") as sink, pa.ipc.new_file(sink, batches(1, 1)[0].schema):
            pass

        def nothing() -> DataFrame:
            source = spark.read.format("repeating")
            return source.options(
                columns="queueOffset", partitions=tasks, rows=0, batch=str(kept)
            ).load()

        def planned(make: "partial[DataFrame]") -> int:
            assert make().rdd.getNumPartitions() == tasks
            return queues

        sides = [
            Side("mqlog", partial(planned, partial(ours)), queues),
            Side("limit", partial(planned, partial(nothing)), queues),
        ]
        compare("plan", f"{queues} queues", sides, tasks=tasks, pyspark=pyspark.__version__)
        assert ours().count() == shape.messages


def _backlog(spark: SparkSession, messages: int, groups: int) -> None:
    shape = Shape(messages, 100, queues=QUEUES, topics=TOPICS)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        lay_out(root, shape)
        offsets = {
            f"{topic_name(topic)}@G{group}": {
                str(queue): shape.each * (group + queue) // (groups + QUEUES)
                for queue in range(QUEUES)
            }
            for topic in range(TOPICS)
            for group in range(groups)
        }
        path = root / "config" / "consumerOffset.json"
        path.write_text(json.dumps({"offsetTable": offsets}))
        told = json.dumps({f"G{n}": {"*": ("TagA", "TagR")[n % 2]} for n in range(groups)})

        source = spark.read.format("mqlog").option("subscriptions", told)

        def count() -> int:
            return source.load(f"{root}#backlog").count()

        compare(
            "groups",
            f"{groups} groups x {TOPICS} topics",
            [Side("exact", count, groups * TOPICS * QUEUES)],
            messages=messages,
            pyspark=pyspark.__version__,
        )


def _commit(files: int) -> None:
    """Records at the head of each file of 1 GiB; the rest of it is a hole behind a blank."""
    shape = Shape(100 * files, 1024, queues=QUEUES, per_file=100)
    rows = batches(COMMITTED, 1024)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        lay_out(root, shape)

        def work() -> Timed:
            job = prepare(WriteSettings(root=str(root), topic=topic_name(0)), rows[0].schema)
            manifest = stage(job, rows, partition=0, attempt=0)
            begin = time.perf_counter()
            done = commit(job, [manifest])
            return Timed(done.messages, time.perf_counter() - begin)

        compare("commit", f"{files} GiB", [Side("mqlog", work, COMMITTED)], files=files)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)

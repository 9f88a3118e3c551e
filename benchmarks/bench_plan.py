"""What is not about bytes: many queues, many groups, a small commit on a large store.

    python -m benchmarks plan

``made``: 10,000 queues of 10 GB, whose bounds a made place gives: cut into partitions, and pickled
one by one as Spark does; ``shared`` as they are sent, ``apart`` with all settings in each. The peak
is of the whole process. ``plan``: from ``load`` to the partitions, of as many queues as a
hundredth of MESSAGES and one message in forty of them, beside a Python source that returns as many
partitions at once: the rest is Spark's own. ``backlog``: a row for each queue of 100 topics and
each of 1,000 groups (MESSAGES / 10,000, if fewer), each subscribed by tag and counted by the tags
themselves, in one DataFrame. ``commit``: 1,000 rows appended to a store
of 1 GiB and to one of 100 GiB, sparse, from the staged files on.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.nothing import RepeatingSource
from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from benchmarks.spark import spark_session
from mqstore.read.source import QueueSlice, Weighed
from mqstore.request.plan import Work, message_work, read_schema
from mqstore.request.read import read_options
from mqstore.request.sharing import shared
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

TOPICS = 100
QUEUES = 4
FILES = (1, 100)
COMMITTED = 1_000
EACH = 4
MADE_QUEUES = 10_000
MADE_BYTES = 10**10
MADE_RECORD = 1_000
MADE_EDGES = 257


def main(count: int) -> None:
    """Measure the four."""
    _made()
    with spark_session() as spark:
        spark.dataSource.register(RepeatingSource)
        _plan(spark, max(100, count // 1_000))
        _backlog(spark, count, max(10, count // 10_000))
    for files in FILES:
        _commit(files)


@dataclass(frozen=True, slots=True)
class MadePlace:
    """An origin of which nothing is there but what its queues weigh."""

    name: str = "/data/broker-a/store"

    def bounds(self, broker_name: str | None = None) -> "MadePlace":
        return self

    def weigh(self, slices: list[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        return list(map(self._weighed, slices))

    def _weighed(self, piece: QueueSlice) -> Weighed:
        edges = np.linspace(piece.start, piece.end, MADE_EDGES).astype(np.int64)
        return Weighed(piece, edges, edges * MADE_RECORD, edges * MADE_RECORD)

    def close(self) -> None:
        pass


def _made() -> None:
    place = MadePlace()
    messages = MADE_BYTES // MADE_RECORD
    slices = [
        QueueSlice(place, "broker-a", f"SHOP_ORDERS_{n // QUEUES}", n % QUEUES, 0, messages)
        for n in range(MADE_QUEUES)
    ]
    options = read_options(("/data/broker-a/store",), {})
    columns = tuple(read_schema(options).names)
    sizes: dict[str, float] = {}

    def planned(side: str, pickled: "Callable[[Sequence[Work]], Iterable[bytes]]") -> int:
        work = message_work(options, slices, columns)
        count = total = 0
        for one in pickled(work):
            count, total = count + 1, total + len(one)
        sizes[f"{side}Bytes"] = round(total / count, 1)
        sizes["partitions"] = count
        sizes["peakMiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return MADE_QUEUES

    dumps = CPickleSerializer().dumps
    sides = {
        "shared": lambda work: (dumps(InputPartition(row)) for row in shared(work)[1]),
        "apart": lambda work: (dumps(InputPartition(one)) for one in work),
    }
    compare(
        "made",
        f"{MADE_QUEUES} queues of {MADE_BYTES // 10**9} GB",
        [Side(name, partial(planned, name, way), MADE_QUEUES) for name, way in sides.items()],
        rounds=3,
        warm=0,
        found=lambda: sizes,
    )


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

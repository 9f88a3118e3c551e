"""Messages read through Spark, beside a source that reads nothing and beside Kafka's connector.

    python -m benchmarks spark_read

All go to Spark's noop sink from a warm page cache and a warm JVM: it goes on compiling for some
reads, so three rounds of each comparison are not counted. ``limit`` repeats one batch of a real
read: the same columns, rows, batch size and partitions, so it is about the most that a Python
source can give here. ``function`` is ``pyspark_mqlog.read``, and ``mapped`` repeats that batch by
mapInArrow, as it reads. ``kafka`` is spark-sql-kafka-0-10 on a broker on loopback that
holds the same messages, with their properties as headers and as many partitions; ``mqlog`` is
given its columns then. Before anything is timed both must return the same rows, headers too.
"""

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pyspark_mqlog
from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.nothing import RepeatingSource, repeating
from benchmarks.peers import PeerMissingError, connector_version, kafka_broker, skip
from benchmarks.rounds import Side, compare
from benchmarks.spark import spark_session, to_noop, told
from mqstore.codec.schema import PROFILES, message_schema
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from pyspark_mqlog.schema import to_arrow, to_struct

TOPIC = topic_name(0)
BODIES = {100: 1, 1024: 1, 10_240: 4}  # bytes: by what the number of messages is divided
QUEUES = (1, 4)
WARM_ROUNDS = 3
CASES = {
    "minimal": PROFILES["minimal"],
    "standard": PROFILES["standard"],
    "full": PROFILES["full"],
    "kafka": PROFILES["kafka"],
    "no body": ("topic", "queueOffset"),
}


def main(count: int) -> None:
    """Measure each size of bodies and number of queues."""
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))
        spark.dataSource.register(RepeatingSource)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = None
        try:
            servers = stack.enter_context(kafka_broker(home, max(QUEUES)))
        except PeerMissingError as missing:
            skip("kafka", str(missing))
        for body_bytes, queues in itertools.product(BODIES, QUEUES):
            shape = Shape(max(100, count // BODIES[body_bytes]), body_bytes, queues)
            with tempfile.TemporaryDirectory() as directory:
                Reads(spark, Path(directory), shape, servers).measure()


class Reads:
    """One store, and the same messages in Kafka."""

    def __init__(
        self, spark: SparkSession, directory: Path, shape: Shape, servers: str | None
    ) -> None:
        self._spark = spark
        self._root = directory / "store"
        self._batch = directory / "batch.arrow"
        self._shape = shape
        self._servers = servers
        self._rows = shape.each * shape.queues
        self._topic = f"b{shape.body_bytes}-q{shape.queues}"
        lay_out(self._root, shape)
        self._tasks = self._ours("minimal").rdd.getNumPartitions()

    def measure(self) -> None:
        """Print a line for each choice of columns, for a tag, and for count(*)."""
        if self._servers:
            self._fill_kafka()
        for case, columns in CASES.items():
            ours = self._ours(",".join(columns))
            frames = {"mqlog": ours, "limit": self._limit(columns)}
            frames |= {"function": self._function(columns), "mapped": self._mapped(columns)}
            if case == "kafka" and self._servers:
                frames["kafka"] = self._kafka()
                _check(ours, frames["kafka"])
            self._compare(case, {name: partial(to_noop, frame) for name, frame in frames.items()})
        tag = self._ours("standard", tags="TagR")
        assert tag.count() == self._shape.rare
        full = self._ours("standard")
        less = self._ours("topic,queueOffset")
        frames = {"mqlog": tag, "no body": less, "all": full}
        self._compare("tag", {name: partial(to_noop, frame) for name, frame in frames.items()})
        counted = {"mqlog": full.count, "queueOffset": self._ours("queueOffset").count}
        if self._servers:
            counted["kafka"] = self._kafka().count
        self._compare("count(*)", counted)

    def _compare(self, case: str, works: dict[str, Callable[[], object]]) -> None:
        def rows(work: Callable[[], object]) -> int:
            found = work()
            return self._rows if found is None else int(str(found))

        compare(
            "spark read",
            case,
            [Side(name, partial(rows, work), self._rows) for name, work in works.items()],
            warm=WARM_ROUNDS,
            bodyBytes=self._shape.body_bytes,
            queues=self._shape.queues,
            tasks=self._tasks,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )

    def _ours(self, columns: str, **options: str) -> DataFrame:
        reader = self._spark.read.format("mqlog").option("columns", columns)
        return reader.options(**options).load(str(self._root))

    def _function(self, columns: tuple[str, ...]) -> DataFrame:
        return pyspark_mqlog.read(self._spark, str(self._root), columns=columns)

    def _mapped(self, columns: tuple[str, ...]) -> DataFrame:
        """Repeat one batch by mapInArrow, as the function reads: the most that it can reach."""
        schema = to_struct(message_schema(columns))
        numbers = self._spark.range(0, self._tasks, 1, self._tasks)
        return numbers.mapInArrow(
            repeating(self._kept(columns), self._rows, self._tasks, to_arrow(schema)), schema
        )

    def _limit(self, columns: tuple[str, ...]) -> DataFrame:
        source = self._spark.read.format("repeating")
        return source.options(
            columns=",".join(columns),
            partitions=self._tasks,
            rows=self._rows,
            batch=self._kept(columns),
        ).load()

    def _kept(self, columns: tuple[str, ...]) -> str:
        """Return the file of one batch of full size, of the columns."""
        batch = self._batch.with_name(f"{len(columns)}-{columns[-1]}.arrow")
        slices = slices_of(take(self._root))
        batches = scan(slices, ScanSettings(columns=columns))
        first = next(batches)
        kept = next(batches, first)  # The second one is the first of full size.
        with pa.OSFile(str(batch), "wb") as sink, pa.ipc.new_file(sink, kept.schema) as file:
            file.write_batch(kept)
        return str(batch)

    def _kafka(self) -> DataFrame:
        assert self._servers
        source = self._spark.read.format("kafka").option("subscribe", self._topic)
        return source.options(
            **{
                "kafka.bootstrap.servers": self._servers,
                "includeHeaders": "true",
                "minPartitions": str(self._tasks),
            }
        ).load()

    def _fill_kafka(self) -> None:
        told(f"loading {self._rows} messages of {self._shape.body_bytes} bytes into Kafka")
        messages = self._ours("key,value,partition,headers")
        sink = messages.withColumn("topic", F.lit(self._topic)).write.format("kafka")
        options = {"kafka.bootstrap.servers": str(self._servers), "includeHeaders": "true"}
        sink.options(**options).save()


def _check(ours: DataFrame, theirs: DataFrame) -> None:
    """Compare all keys, values, partitions and headers of both."""
    row = F.xxhash64("key", "value", "partition", "headers").cast("decimal(38,0)")
    found = [frame.agg(F.count("*"), F.sum(row)).first() for frame in (ours, theirs)]
    assert found[0] == found[1], found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)

"""Rows that benchmarks write through Spark, and the write by its Kafka connector beside ours."""

import itertools

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

BODY_BYTES = 1024
PATIENCE_MS = 600_000


def orders(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """Return rows with a key, a tag and a body of BODY_BYTES, which lie in Spark's memory."""
    text = F.sha2(F.col("id").cast("string"), 256)
    frame = spark.range(rows, numPartitions=partitions).select(
        F.concat(F.lit("order-"), F.col("id")).alias("keys"),
        F.concat(F.lit("Tag"), F.col("id") % 3).alias("tags"),
        F.repeat(text, BODY_BYTES // 64).cast("binary").alias("body"),
    )
    frame = frame.cache()
    frame.count()
    return frame


def content(frame: DataFrame) -> Row | None:
    """Return the number of rows and a sum over their keys and bodies."""
    row = F.sum(F.xxhash64("keys", "body").cast("decimal(38,0)"))
    return frame.agg(F.count("*"), row).first()


class KafkaWrites:
    """The same rows, written to a new topic each time by Spark's Kafka connector."""

    def __init__(self, frame: DataFrame, rows: int, servers: str) -> None:
        self._frame = frame
        self._rows = rows
        self._servers = servers
        self._topics = (f"w{number}" for number in itertools.count())
        self._last = ""

    def write(self) -> int:
        """Write all rows, the tag as a header; return how many these are."""
        self._last = next(self._topics)
        header = F.struct(F.lit("TAGS").alias("key"), F.col("tags").cast("binary").alias("value"))
        messages = self._frame.select(
            F.col("keys").alias("key"),
            F.col("body").alias("value"),
            F.array(header).alias("headers"),
        )
        sink = messages.write.format("kafka").option("kafka.bootstrap.servers", self._servers)
        # On a busy machine the broker may answer late: that is no error of a measurement.
        patience = {"kafka.delivery.timeout.ms": str(PATIENCE_MS)}
        sink.options(topic=self._last, includeHeaders="true", **patience).save()
        return self._rows

    def check(self) -> None:
        """Compare keys and bodies of the topic written last with the rows."""
        source = self._frame.sparkSession.read.format("kafka")
        source = source.option("kafka.bootstrap.servers", self._servers)
        sent = source.option("subscribe", self._last).load()
        sent = sent.select(F.col("key").cast("string").alias("keys"), sent.value.alias("body"))
        assert content(sent) == content(self._frame)

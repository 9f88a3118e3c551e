"""Job: messages of stores or clusters to a cluster again, each once; ``mqlog replay`` with Spark.

    spark-submit jobs/mqlog_jobs/spark/replay.py --from /data/store --to rocketmq://ns1:9876 \
        --topic SHOP_ORDERS --since 2026-11-20T10:00Z --create-topic

Exactly once, tasks read and encode messages and the driver sends them; at least once, tasks send.
For the rest it is the command: the same messages, queues and notes of what was sent, so that either
goes on where the other ended.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.places import Named
from mqlog_jobs.replays.replay_plan import ReplayArguments, rate_of, topic_map, write_options
from mqlog_jobs.replays.replay_work import replayed, said
from mqlog_jobs.spark import arguments
from mqlog_jobs.spark.spark_paths import check_writable
from mqstore.audit.offset_maps import MapPlace
from mqstore.deliver.replay.run import NumberedPart
from mqstore.options import grammar

_Made = TypeVar("_Made")
_MOST_RATE: Final = 2**31 - 1


class SparkRunner:
    """Runs the tasks of a replay as those of Spark jobs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism

    def run(
        self, work: Callable[[NumberedPart], _Made], parts: Sequence[NumberedPart]
    ) -> list[_Made]:
        """Return what ``work`` returns for each part, each from a task of its own."""
        if not parts:
            return []
        return self._spark.sparkContext.parallelize(list(parts), len(parts)).map(work).collect()


class SparkOffsets:
    """An OffsetMapTarget: folders ``write=NAME`` below a path, written by Spark."""

    def __init__(self, spark: SparkSession, place: MapPlace) -> None:
        """Take the path. Raises InvalidOptionError if Spark can write nothing there."""
        self._spark = spark
        self._kind = place.format
        self._directory = place.directory.rstrip("/")
        check_writable(spark, "--offset-map", place.directory)

    def has(self, name: str) -> bool:
        """Tell whether that piece was written."""
        reader = self._spark.read.format(self._kind).option("header", value=True)
        try:
            return bool(reader.load(self._path(name)).take(1))
        except AnalysisException:
            return False

    def write(self, name: str, rows: pa.Table) -> None:
        """Write a piece."""
        writer = self._spark.createDataFrame(rows).coalesce(1).write.mode("overwrite")
        writer = writer.option("header", value=True).format(self._kind)
        writer.save(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._directory}/write={name}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    given = _parser().parse_args(argv)
    return run(lambda: _replay(given))


def _replay(given: argparse.Namespace) -> None:
    rate = None if given.rate is None else grammar.count("--rate", given.rate, high=_MOST_RATE)
    place = None if given.offset_map is None else MapPlace.of("--offset-map", given.offset_map)
    request = ReplayArguments.of(
        source=Named.of([given.source], options=given.source_options, flag="--source-option"),
        address=given.address,
        groups=given.groups,
        places=tuple(given.topics),
        tags=given.tag,
        sql=given.sql,
        keys=tuple(given.keys),
        times=(given.since, given.until),
        on_corrupt=given.on_corrupt,
        topics=topic_map(given.to_topic, given.renamed, to_origin=given.to_origin),
        same_topic=given.same_topic,
        at_least_once=given.at_least_once,
        name=given.name,
        rate=rate_of(rate, given.byte_rate),
        options=write_options(given.options, create_topic=given.create_topic),
    )
    request.settings()  # Wrong options are named before a session starts.
    with job_session("mqlog replay") as spark:
        target = None if place is None else SparkOffsets(spark, place)
        done = replayed(request, SparkRunner(spark), target)
    sys.stdout.write(f"{said(done)}\n")


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(
        "Send messages of stores or clusters to a cluster again, each once.",
        "replay.py --from /data/broker-a/store --to rocketmq://ns1:9876 --topic SHOP_ORDERS",
    )
    for flag, name, text in (
        ("--from", "source", "a store directory, a glob of several, or the address of a cluster"),
        ("--to", "address", "the cluster to send to: rocketmq://HOST:9876"),
    ):
        parser.add_argument(flag, dest=name, required=True, metavar="PLACE", help=text)
    for flag, name, text in (
        ("--topic", "topics", "TOPIC[/QUEUE[@OFFSET]]; default: all users' topics"),
        ("--key", "keys", "a message key"),
        (
            "--source-option",
            "source_options",
            "NAME=VALUE of a source that is a cluster or in an object store",
        ),
    ):
        parser.add_argument(flag, dest=name, action="append", default=[], help=f"{text}; repeat it")
    parser.add_argument(
        "--map",
        dest="renamed",
        action="append",
        default=[],
        type=arguments.option,
        metavar="OLD=NEW",
        help="send messages of topic OLD to topic NEW; repeat it",
    )
    parser.add_argument("--tag", default="*", help="tag expression, 'A || B'")
    parser.add_argument("--sql", help='SQL92 of properties, "a > 5"')
    parser.add_argument("--since", help="stored at or after: -15m, epoch ms, or ISO-8601 with zone")
    parser.add_argument("--until", help="stored before; written as --since")
    parser.add_argument("--to-topic", metavar="TOPIC", help="send all to this topic")
    parser.add_argument("--rate", metavar="N", help="at most so many messages a second")
    parser.add_argument("--byte-rate", metavar="SIZE", help="at most so many bytes a second: 5m")
    parser.add_argument("--name", help="tells this replay from another of the same messages")
    parser.add_argument("--on-corrupt", choices=("fail", "skip"), default="fail")
    parser.add_argument(
        "--offset-map",
        metavar="FORMAT:DIR",
        help="where each message was and is now: parquet:DIR, csv:DIR or json:DIR",
    )
    parser.add_argument(
        "--groups",
        metavar="NAMES",
        help="carry the committed offsets of these stopped groups: a comma list",
    )
    for flag, text in (
        ("--to-origin", "send dead letters and retries to the topics they came from"),
        ("--same-topic", "also to the topic of the same cluster that they come from: twice there"),
        ("--create-topic", "make topics that are not there, the control topic too"),
        ("--at-least-once", "send all in each run"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())

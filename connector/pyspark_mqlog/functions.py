"""A batch read and a batch write by functions, on any Spark from 3.4 on, with or without a source.

They need ``DataFrame.mapInArrow`` alone: no Python data source (Spark 4), no registration, no JVM
of this process (Spark Connect from 3.5 on). A read is planned on the driver and each task reads one
of its parts; a write is staged or sent by tasks, and committed on the driver.

Reference: pyspark.sql.DataFrame#mapInArrow; org.apache.spark.sql.execution.python.MapInArrowExec.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer

import mqlog
from mqlog.keywords import in_keywords, keyword
from mqlog.options import ScanKeywords, WriteKeywords, shows
from mqlog.split import packed
from mqlog.writing import Task, settings_of, write_by_tasks
from mqstore.errors import InvalidOptionError
from mqstore.request.read_options import STREAM_OPTIONS
from mqstore.request.sharing import PackedWork
from pyspark_mqlog.same_version import SameVersion
from pyspark_mqlog.schema import conform, to_arrow, to_struct, write_schema
from pyspark_mqlog.worker import conformed, freeze_once, named_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_STREAM: Final = (
    "is for a stream; this reads a batch. Use spark.readStream of Spark 4, or let each run read "
    "from starting_offsets behind the last rows of the run before, which its sink keeps with them"
)
_SERIALIZER: Final[Any] = CPickleSerializer()
"""Spark itself sends the messages of tasks to the commit with it."""
_REPORT: Final = pa.schema([pa.field("report", pa.binary(), nullable=False)])


@shows(ScanKeywords)
def read(
    spark: "SparkSession",
    place: "mqlog.Place | str | PathLike[str] | Sequence[str | PathLike[str]]",
    /,
    *topics: str,
    table: str | None = None,
    **options: Unpack[ScanKeywords],
) -> "DataFrame":
    """Return a DataFrame of messages of ``topics``, or of a ``table``, as ``format("mqlog")`` does.

    ``place`` is what ``mqlog.open`` takes, or a Place; ``options`` are those of ``mqlog.open`` and
    ``Place.scan``. Without topics it reads all but RocketMQ's own. Its ends are pinned now: each
    use of the DataFrame reads the same rows. Spark does not tell a function which columns a query
    uses: name them with ``columns``, for the others are decoded too::

        orders = pyspark_mqlog.read(spark, "/data/store", "orders", columns=["keys", "body"])
        behind = pyspark_mqlog.read(spark, "rocketmq://ns:9876", table="backlog", groups="CG_PAY")

    Opens the place. Raises InvalidOptionError, also for an option of streams, and what
    ``Place.scan`` and its reading raise.
    """
    _refuse_streams(options)
    opened = place if isinstance(place, mqlog.Place) else mqlog.open(place)
    if table is None:
        scan = opened.scan(list(topics) or None, **options)
    else:
        if topics:
            expected = "topics of a table are named by its option subscribe"
            raise InvalidOptionError("topics", ", ".join(topics), expected)
        scan = opened.table(table, **options)
    schema = to_struct(scan.schema)
    work = packed(scan.splits())
    # A part each: range has as many partitions as rows.
    numbers = spark.range(0, len(work), 1, max(1, len(work)))
    return numbers.mapInArrow(_reading(work, scan.schema, to_arrow(schema)), schema)


@shows(WriteKeywords)
def write(
    frame: "DataFrame", path: str | PathLike[str], /, **options: Unpack[WriteKeywords]
) -> mqlog.WriteResult:
    """Append a DataFrame to the store at ``path``, all rows or none, or send it to a cluster.

    ``options``, columns, promises and errors are those of ``mqlog.write``; tasks of Spark stage or
    send the rows, and this process commits them. Every node needs the store, or ``staging_path``
    and its parent, under the same path.
    """
    with in_keywords():
        settings = settings_of(path, options)
        schema = write_schema(frame.schema)
        return write_by_tasks(settings, schema, partial(_reports_of, frame, schema))


def _refuse_streams(options: Mapping[str, object]) -> None:
    for option in STREAM_OPTIONS.values():
        name = keyword(option.name)
        if name in options:
            raise InvalidOptionError(name, options[name], _NO_STREAM)


class _PlannedTask(SameVersion):
    """What the driver planned for the tasks of a function."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values


def _reading(
    work: PackedWork, read: pa.Schema, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does: read the parts whose numbers its rows have."""
    planned = _PlannedTask((work, read, schema))

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, read, schema = planned.values
        return conformed(
            (
                rows
                for batch in numbers
                for number in batch.column(0).to_pylist()
                for rows in mqlog.Split(work.work(number), read).to_reader()
            ),
            schema,
        )

    return run


def _reports_of(frame: "DataFrame", schema: pa.Schema, run: Task) -> list[Any]:
    """Run a task for each partition; return what each has to say to the commit, in their order."""
    planned = _PlannedTask((run, schema))

    def task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run, schema = planned.values
        context: Any = TaskContext.get()
        typed = (conform(batch, schema) for batch in rows)
        with named_errors(), in_keywords():
            report = run(typed, context.partitionId(), context.taskAttemptId())
        freeze_once()
        yield pa.RecordBatch.from_arrays([pa.array([_SERIALIZER.dumps(report)])], schema=_REPORT)

    collected = frame.mapInArrow(task, to_struct(_REPORT)).collect()
    return [_SERIALIZER.loads(row.report) for row in collected]

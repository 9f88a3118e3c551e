"""The batch reader: the driver plans the work of tasks, and a task yields Arrow batches.

A partition has all that its task needs; the reader itself has the schema only, because Spark
sends it to every task of every stage.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.errors import DataLossError, StoreError, UnknownTopicError
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request.chosen_queues import in_partitions, message_slices, open_stores, without_start
from mqstore.request.read_options import ReadOptions
from mqstore.request.tables import plan_table
from pyspark_mqlog.compat import to_arrow
from pyspark_mqlog.schema import conform
from pyspark_mqlog.worker import freeze_once, named_errors


class Work(Protocol):
    """The work of one task. Pickles."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of the plan."""


@dataclass(frozen=True, slots=True)
class MessageWork:
    """Slices of queues to read, and the settings of the scan."""

    slices: tuple[QueueSlice, ...]
    settings: ScanSettings

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the slices."""
        return scan(self.slices, self.settings)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A planned read: its columns, and the slices of messages or the parts of a table."""

    columns: tuple[str, ...]
    options: ReadOptions
    slices: tuple[QueueSlice, ...] = ()
    """Of messages, not weighed and cut yet: a stream needs only the schema of this plan."""
    parts: tuple[Work, ...] = ()
    """Of a table."""

    def work(self) -> Sequence[Work]:
        """Return the work of each task; for messages it reads sizes from the ConsumeQueues."""
        return self.parts or message_work(self.options, self.slices, self.columns)


def plan_read(options: ReadOptions, columns: Sequence[str]) -> ReadPlan:
    """Return the plan of a read of ``columns``. Opens the stores; reads no message."""
    names = tuple(columns)
    with closing(open_stores(options)) as stores:
        if options.table == "messages":
            return ReadPlan(names, options, slices=tuple(message_slices(options, stores)))
        return ReadPlan(names, options, parts=tuple(plan_table(options, stores, columns)))


def is_of_start(options: ReadOptions, error: StoreError) -> bool:
    """Tell whether an error of ``plan_read`` is only about the start of the read.

    A stream that continues from its checkpoint ignores such an error: the group, the topic or the
    messages of its start may be deleted. If the stream accepts losses, it ignores a missing topic
    too.
    """
    if options.table != "messages":
        return False
    if isinstance(error, DataLossError):
        return error.is_expired
    if isinstance(error, UnknownTopicError) and not options.fail_on_data_loss:
        return True
    try:
        start = without_start(options)
        with closing(open_stores(start)) as stores:
            message_slices(start, stores)
    except StoreError:
        return False
    return True


class MqlogReader(DataSourceReader):
    """Reads the planned work, with the columns of ``schema``."""

    def __init__(self, schema: StructType, plan: ReadPlan) -> None:
        self._schema = schema
        self._work: Sequence[Work] = plan.work()

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the reader for tasks; only this object gives the partitions.
        return {"_schema": self._schema, "_work": ()}

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(work) for work in self._work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(partition, self._schema)


def read_work(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Do the work of a partition, in a task: yield its batches as Spark expects them."""
    if partition.value is None:  # Spark's partition for an empty list of partitions.
        return
    work: Work = partition.value
    expected = to_arrow(schema)
    with named_errors():
        for batch in work.batches():
            yield conform(batch, expected)
    freeze_once()


def message_work(
    options: ReadOptions, slices: Sequence[QueueSlice], columns: tuple[str, ...]
) -> list[MessageWork]:
    """Return the work of reading slices, one for each task."""
    settings = ScanSettings.of(options, columns, merged=True)
    return [MessageWork(share, settings) for share in in_partitions(options, slices)]

"""The batch reader: work planned on the driver, done in tasks, a batch at a time.

A partition carries all that its task needs; the reader itself carries the schema only, for
Spark sends it to every task of every stage.
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
from pyspark_mqlog.pruning import in_partitions, message_slices, open_stores, without_start
from pyspark_mqlog.read_options import ReadOptions
from pyspark_mqlog.schema import conform, to_arrow
from pyspark_mqlog.tables import plan_table
from pyspark_mqlog.worker import freeze_once, named_errors


class Work(Protocol):
    """What one task does. Pickles."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the columns the plan was made for."""


@dataclass(frozen=True, slots=True)
class MessageWork:
    """Slices of queues to read, and how."""

    slices: tuple[QueueSlice, ...]
    settings: ScanSettings

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the slices."""
        return scan(self.slices, self.settings)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A read, planned: its columns, and what of the stores it is."""

    columns: tuple[str, ...]
    options: ReadOptions
    slices: tuple[QueueSlice, ...] = ()
    """Of messages. Not weighed and cut yet: Spark may have asked for a stream's schema only."""
    parts: tuple[Work, ...] = ()
    """Of a table."""

    def work(self) -> list[Work]:
        """Return the work of each task. Of messages it reads sizes from the ConsumeQueues."""
        if self.parts:
            return list(self.parts)
        settings = scan_settings(self.options, self.columns)
        shares = in_partitions(self.options, self.slices)
        return [MessageWork(share, settings) for share in shares]


def plan_read(options: ReadOptions, columns: Sequence[str]) -> ReadPlan:
    """Return the plan of a read of ``columns``. Opens the stores; reads no message."""
    names = tuple(columns)
    with closing(open_stores(options)) as stores:
        if options.table == "messages":
            return ReadPlan(names, options, slices=tuple(message_slices(options, stores)))
        return ReadPlan(names, options, parts=tuple(plan_table(options, stores, columns)))


def is_of_start(options: ReadOptions, error: StoreError) -> bool:
    """Tell whether an error of ``plan_read`` is about where the read starts, and nothing else.

    A stream that goes on from its checkpoint does not ask what its start would be now: its
    group, its topic or a message after its time may be gone. Nor, if it accepts losses, does it
    mind that a topic it has read is gone.
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
    """Reads what was planned, with the columns of ``schema``."""

    def __init__(self, schema: StructType, plan: ReadPlan) -> None:
        self._schema = schema
        self._work: Sequence[Work] = plan.work()

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the reader for the tasks, and asks this one for the partitions.
        return {"_schema": self._schema, "_work": ()}

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(work) for work in self._work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(partition, self._schema)


def read_work(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Do the work of a partition, in a task: yield its batches as Spark expects them."""
    if partition.value is None:  # What Spark makes of an empty list of partitions.
        return
    work: Work = partition.value
    expected = to_arrow(schema)
    with named_errors():
        for batch in work.batches():
            yield conform(batch, expected)
    freeze_once()


def scan_settings(options: ReadOptions, columns: tuple[str, ...]) -> ScanSettings:
    """Return how tasks read the columns."""
    return ScanSettings(
        columns=columns,
        tags=options.tags,
        keys=options.keys or (),
        msg_ids=options.msg_ids or (),
        on_corrupt=options.on_corrupt,
        fail_on_data_loss=options.fail_on_data_loss,
        verify_crc=options.verify_crc,
        decompress=options.decompress,
        max_decompressed_bytes=options.max_decompressed_bytes,
        read_mode=options.read_mode,
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
        merged=True,
    )

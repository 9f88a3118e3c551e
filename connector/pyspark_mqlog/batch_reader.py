"""The batch reader: the driver plans the work of tasks, and a task yields Arrow batches.

A partition has all that its task needs; the reader itself has the schema only, because Spark
sends it to every task of every stage.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.errors import DataLossError, StoreError, UnknownTopicError
from mqstore.request.chosen_queues import message_slices, open_stores, without_start
from mqstore.request.plan import ReadPlan, Work
from mqstore.request.read_options import ReadOptions
from pyspark_mqlog.schema import to_arrow
from pyspark_mqlog.worker import conformed


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
    yield from conformed(work.batches(), to_arrow(schema))

"""The batch reader: the driver plans the work of tasks, and a task yields Arrow batches.

Spark pickles each partition apart, and sends the reader to every task: what all tasks share is in
the reader, and a partition has a row of plain values.
"""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.errors import DataLossError, StoreError, UnknownTopicError
from mqstore.request.chosen_queues import message_slices, open_stores, without_start
from mqstore.request.plan import ReadPlan, Work
from mqstore.request.read_options import ReadOptions
from mqstore.request.sharing import SharedWork, TaskRow, shared
from pyspark_mqlog.same_version import SameVersion
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


class MqlogReader(SameVersion, DataSourceReader):
    """Reads the planned work, with the columns of ``schema``."""

    def __init__(self, schema: StructType, plan: ReadPlan) -> None:
        self._schema = schema
        self._shared: SharedWork | None
        self._rows: list[TaskRow]
        self._shared, self._rows = shared(plan.work())

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the reader for tasks; only this object gives the partitions.
        return {"_schema": self._schema, "_shared": self._shared, "_rows": []}

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(row) for row in self._rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._shared is None:  # Spark's partition for an empty list of partitions.
            return iter(())
        return read_work(self._shared.of(partition.value), self._schema)


def read_work(work: Work, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Do the work of a partition, in a task: return its batches as Spark expects them."""
    return conformed(work.batches(), to_arrow(schema))

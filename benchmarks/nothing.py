"""The limit of the road: Python sources and sinks that do nothing but hand batches over.

``repeating`` yields one Arrow batch, kept in a file, again and again: ``rows`` rows in
``partitions`` partitions of those columns. ``counting`` counts the rows that it is given.

Both are plain sources: after each task Spark's daemon collects garbage among all that was
imported, about 40 ms of CPU time, which mqlog avoids (pyspark_mqlog.worker#freeze_once). So where
a task has little else to do, mqlog can be faster than ``repeating``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mqstore.codec.schema import message_schema
from pyspark_mqlog.schema import to_arrow, to_struct


class RepeatingSource(DataSource):
    """Reads nothing."""

    @classmethod
    def name(cls) -> str:
        return "repeating"

    def schema(self) -> StructType:
        return to_struct(message_schema(self.options["columns"].split(",")))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RepeatingReader(dict(self.options), schema)


class RepeatingReader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        count, rows = int(self._options["partitions"]), int(self._options["rows"])
        edges = [rows * number // count for number in range(count + 1)]
        return [InputPartition(edges[n + 1] - edges[n]) for n in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return repeated(self._options["batch"], partition.value, to_arrow(self._schema))


def repeated(path: str, rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batch of a file again and again, until there are so many rows."""
    with pa.ipc.open_file(path) as file:
        stored = file.get_batch(0)
    batch = pa.RecordBatch.from_arrays(stored.columns, schema=schema)
    while rows > 0:
        yield batch.slice(0, min(rows, batch.num_rows))
        rows -= batch.num_rows


def repeating(
    path: str, rows: int, tasks: int, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow over the numbers of tasks, which repeats that batch."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                count = rows * (number + 1) // tasks - rows * number // tasks
                yield from repeated(path, count, schema)

    return run


@dataclass(frozen=True, slots=True)
class Counted(WriterCommitMessage):
    rows: int


class CountingSink(DataSource):
    """Writes nothing."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return CountingWriter(int(self.options["rows"]))


class CountingWriter(DataSourceArrowWriter):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = sum(message.rows for message in messages if isinstance(message, Counted))
        assert found == self._rows

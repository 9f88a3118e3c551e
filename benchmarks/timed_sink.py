"""Our sink, with the CPU time of its steps: batches received, rows staged, the commit."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_mqlog.datasource import MqlogDataSource

STEPS = ("receive", "stage", "commit")
SUFFIX = ".steps"


class TimedSink(MqlogDataSource):
    """Writes as ``mqlog`` does; a line for each step goes into a file beside the store."""

    @classmethod
    def name(cls) -> str:
        return "timed"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return TimedWriter(super().writer(schema, overwrite), self.options["path"] + SUFFIX)


class TimedWriter(DataSourceArrowWriter):
    def __init__(self, writer: DataSourceArrowWriter, path: str) -> None:
        self._writer = writer
        self._path = path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        received = [0.0]
        begin = time.process_time()
        message = self._writer.write(_timed(iterator, received))
        worked = time.process_time() - begin
        self._note(receive=received[0], stage=worked - received[0])
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        begin = time.process_time()
        self._writer.commit(list(messages))
        self._note(commit=time.process_time() - begin)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._writer.abort(list(messages))

    def _note(self, **seconds: float) -> None:
        with Path(self._path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(seconds) + "\n")


def taken(path: Path) -> dict[str, float]:
    """Return the CPU seconds of each step of the last write to the store at ``path``."""
    noted = path.with_name(path.name + SUFFIX)
    lines = [json.loads(line) for line in noted.read_text().splitlines()]
    noted.unlink()
    return {step: sum(line.get(step, 0.0) for line in lines) for step in STEPS}


def _timed(iterator: Iterator[pa.RecordBatch], seconds: list[float]) -> Iterator[pa.RecordBatch]:
    while True:
        begin = time.thread_time()
        batch = next(iterator, None)
        seconds[0] += time.thread_time() - begin
        if batch is None:
            return
        yield batch

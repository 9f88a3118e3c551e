"""Bad rows aside: with ``onInvalid=side:PATH`` each task writes its own to a Parquet file.

The file has the row's columns as they came, and ``reason``. Until the commit it has a name that
starts with an underscore, which Spark's readers skip; a job that ends leaves none of those, not
even of tasks that were killed or lost to another attempt.

    <directory>/_mqlog-<job>.<partition>-<attempt>-<random>.mqb.parquet
    <directory>/part-<job>.<partition>-<attempt>-<random>.mqb.parquet       once committed
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.files.base import durable
from mqstore.files.base.directory import Directory
from mqstore.files.txn.staging import StagedSink
from mqstore.write.stage.job import RowJob, TaskReport
from mqstore.write.stage.validate import BadRow

REASON: Final = "reason"
_HIDDEN_PREFIX: Final = "_mqlog-"
_FINAL_PREFIX: Final = "part-"


class SideWriter:
    """The bad rows of one task. No file is made before the first."""

    def __init__(self, directory: str, job_id: str, segment: str) -> None:
        self._directory = directory
        self._name = f"{_HIDDEN_PREFIX}{job_id}.{segment}.parquet"
        self._sink: StagedSink | None = None
        self._writer: Any = None

    def append(self, batch: pa.RecordBatch, bad: list[BadRow]) -> None:
        """Write those rows of ``batch`` with their reasons."""
        rows = batch.take(pa.array([b.row for b in bad]))
        table = pa.Table.from_batches([rows]).append_column(
            REASON, pa.array([b.reason for b in bad], pa.string())
        )
        if self._writer is None:
            self._sink = StagedSink(self._directory, self._name)
            self._writer = pq.ParquetWriter(self._sink, table.schema)
        self._writer.write_table(table)

    def finish(self) -> str:
        """Make the file durable and return its name; empty if there was no bad row."""
        if self._sink is None:
            return ""
        self._writer.close()
        self._sink.finish()
        return self._name

    def discard(self) -> None:
        """Remove the file."""
        if self._sink is not None:
            self._sink.discard()


def publish(job: RowJob, reports: Iterable[TaskReport]) -> None:
    """Give the files of committed tasks the names under which they are read; remove the others."""
    directory = job.settings.side_path
    if directory is None:
        return
    names = [report.side for report in reports if report.side]
    for name in names:
        shown = _FINAL_PREFIX + name.removeprefix(_HIDDEN_PREFIX)
        durable.replace(f"{directory}/{name}", f"{directory}/{shown}")
    _remove_hidden(directory, job.job_id)
    if names:
        durable.fsync_directory(directory)


def withdraw(job: RowJob, reports: Iterable[TaskReport]) -> None:
    """Remove the files of a job that failed, published or not."""
    directory = job.settings.side_path
    if directory is None:
        return
    for report in reports:
        if report.side:
            durable.unlink(f"{directory}/{_FINAL_PREFIX}{report.side.removeprefix(_HIDDEN_PREFIX)}")
    _remove_hidden(directory, job.job_id)


def _remove_hidden(directory: str, job_id: str) -> None:
    for name in Directory(directory).names():
        if name.startswith(f"{_HIDDEN_PREFIX}{job_id}."):
            durable.unlink(f"{directory}/{name}")

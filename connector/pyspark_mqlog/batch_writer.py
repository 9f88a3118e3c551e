"""The batch writer: prepare on the driver, stage in tasks, commit or abort on the driver.

Spark pickles one writer to every task and to the process that commits. All of them see the job
that the constructor prepared, and no attribute that a task sets later. See
pyspark.sql.datasource.DataSourceWriter.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import Manifest, WriteJob
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage
from pyspark_mqlog.errors import OverwriteUnsupportedError
from pyspark_mqlog.same_version import SameVersion
from pyspark_mqlog.schema import write_schema
from pyspark_mqlog.worker import freeze_once, named_errors

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """A task's message to the commit: the manifest of its staged records."""

    manifest: Manifest


class MqlogWriter(SameVersion, DataSourceArrowWriter):
    """Appends a DataFrame to one store: all of its rows, or none."""

    def __init__(self, settings: WriteSettings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OverwriteUnsupportedError
        self._job = prepare(settings, write_schema(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return StagedRows(stage_task(self._job, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with named_errors():
            done = commit(self._job, _manifests(messages))
        if done.is_repeated:
            _LOG.warning("%s was committed before: nothing was written", self._job.key)
        else:
            _LOG.info("%s", done)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with named_errors():
            abort(self._job, _manifests(messages))


def stage_task(job: WriteJob, rows: Iterator[pa.RecordBatch]) -> Manifest:
    """Stage the rows of this Spark task; raises what ``stage`` raises."""
    context: Any = TaskContext.get()
    partition, attempt = context.partitionId(), context.taskAttemptId()
    with named_errors():
        manifest = stage(job, rows, partition=partition, attempt=attempt)
    freeze_once()
    return manifest


def _manifests(messages: Sequence[WriterCommitMessage | None]) -> list[Manifest]:
    """Return the manifests; the message of a failed task is None."""
    return [message.manifest for message in messages if isinstance(message, StagedRows)]

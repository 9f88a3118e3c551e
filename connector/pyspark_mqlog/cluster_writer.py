"""Writers to a running cluster.

At least once: tasks send, the commit counts. A task that fails, or that Spark runs twice, may have
sent its rows: they are in the topic twice then, with the same msgId. Of a stream the ids are the
same also when a micro-batch runs again.

Exactly once: tasks hand messages on in their messages to the commit, which publishes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqstore.deliver.complete import complete
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.prepare import of_batch, prepare, withdraw
from mqstore.deliver.settings import EXACTLY_ONCE, SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import StoreError
from pyspark_mqlog.compat import StreamArrowWriter
from pyspark_mqlog.errors import OverwriteUnsupportedError
from pyspark_mqlog.same_version import SameVersion
from pyspark_mqlog.schema import write_schema
from pyspark_mqlog.stream_writer import this_batch
from pyspark_mqlog.worker import freeze_once, named_errors


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """A task's message to the commit: the job, and what the task sent."""

    job: SendJob
    report: SendReport


class ClusterWriter(SameVersion, DataSourceArrowWriter):
    """Sends a DataFrame to the topics of a cluster."""

    def __init__(self, settings: SendSettings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OverwriteUnsupportedError
        self._job = prepare(settings, write_schema(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Sent(self._job, _send(self._job, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with named_errors():
            complete(self._job, _reports(messages), "write")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with named_errors():
            withdraw(self._job, _reports(messages))


class ClusterStreamWriter(SameVersion, StreamArrowWriter):
    """Sends a micro-batch to the topics of a cluster; ``job`` is None in the commit's process."""

    def __init__(self, job: SendJob | None) -> None:
        self._planned = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with named_errors():
            if self._planned is None:
                raise StoreError("Spark sent the writer of the commit to a task")
            query_id, batch_id = this_batch()
        job = of_batch(self._planned, query_id, batch_id)
        return Sent(job, _send(job, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with named_errors():
            job = _job(messages)
            if job is not None:
                complete(job, _reports(messages), f"batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with named_errors():
            job = _job(messages)
            if job is not None:
                withdraw(job, _reports(messages))


def _send(job: SendJob, rows: Iterator[pa.RecordBatch]) -> SendReport:
    context: Any = TaskContext.get()
    partition, attempt = context.partitionId(), context.taskAttemptId()
    with named_errors():
        run = hand_on if job.settings.delivery == EXACTLY_ONCE else send
        report = run(job, rows, partition=partition, attempt=attempt)
    freeze_once()
    return report


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[SendReport]:
    """Return what the tasks sent; the message of a failed task is None."""
    return [message.report for message in messages if isinstance(message, Sent)]


def _job(messages: Sequence[WriterCommitMessage | None]) -> SendJob | None:
    return next((message.job for message in messages if isinstance(message, Sent)), None)

"""The stream writer: each micro-batch is a write of its own, with the key of query and batch.

Spark makes two writers for a micro-batch: the first plans it and is pickled to the tasks, the
second, which shares nothing with the first, commits or aborts. So every message of a task has the
job, and the job has the key: the query's id, which a restart from the same checkpoint keeps, and
the batch's number. Spark gives both to tasks only. It may commit a batch again (after a restart,
after ``stop()`` during a commit): the ledger then has its key.

Reference: StreamingWrite#commit, PythonStreamingWrite, MicroBatchExecution (the properties).
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.write import streams
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import Manifest, WriteJob
from mqstore.write.stage.settings import WriteSettings
from pyspark_mqlog.batch_writer import stage_task
from pyspark_mqlog.compat import StreamArrowWriter
from pyspark_mqlog.same_version import SameVersion
from pyspark_mqlog.schema import write_schema
from pyspark_mqlog.worker import named_errors

_LOG = logging.getLogger(__name__)
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class StagedBatch(WriterCommitMessage):
    """A task's message to the commit: the job of the micro-batch, and the task's manifest."""

    job: WriteJob
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The options of a streaming write, and the name that it keeps through restarts, if any."""

    write: WriteSettings
    name: str | None


class MqlogStreamWriter(SameVersion, StreamArrowWriter):
    """Appends a micro-batch to one store: all of its rows, or none, and once."""

    def __init__(self, settings: StreamSettings, job: WriteJob | None) -> None:
        self._settings = settings
        self._job = job
        self._made_ns = time.time_ns()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with named_errors():
            job = streams.of_batch(self._planned(), *this_batch())
        manifest = stage_task(job, iterator)
        # A store may have many topics; one message with them is enough.
        topics = job.topics if manifest.partition == 0 else {}
        return StagedBatch(replace(job, topics=topics), manifest)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with named_errors():
            job, manifests = _gathered(messages)
            if job is None:
                return
            if not any(manifest.segment or manifest.side for manifest in manifests):
                abort(job, manifests)  # Nothing to append: only a folder to remove.
            else:
                done = commit(job, manifests)
                again = "there already: " if done.is_repeated else ""
                _LOG.info("batch %d of %s: %s%s", batchId, job.key, again, done)
            self._sweep()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with named_errors():
            job, manifests = _gathered(messages)
            if job is not None:
                abort(job, manifests)
            self._sweep()

    def _planned(self) -> WriteJob:
        if self._job is None:
            raise StoreError("Spark sent the writer of the commit to a task")
        return self._job

    def _sweep(self) -> None:
        """Remove staged files of earlier tries of the stream, if it has a name."""
        if self._settings.name is None:
            return
        try:
            streams.sweep(self._settings.write, self._settings.name, before_ns=self._made_ns)
        except (StoreError, OSError) as error:  # The files do no harm.
            _LOG.warning("staged files of earlier tries could not be removed: %s", error)


def plan_batch(settings: StreamSettings, schema: StructType) -> WriteJob:
    """Return the job of one micro-batch; raises what ``prepare`` raises, and makes its folder."""
    job = prepare(settings.write, write_schema(schema))
    try:
        if settings.name is not None:
            streams.claim(job, settings.name)
    except BaseException:
        abort(job, [])
        raise
    return job


def refuse_complete() -> InvalidOptionError:
    """Return the error for a query in output mode complete."""
    return InvalidOptionError(
        "outputMode",
        "complete",
        "a message store only grows: use append. For a changing result write each change as a "
        'message: outputMode("update") with foreachBatch and df.write',
    )


def _gathered(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[WriteJob | None, list[Manifest]]:
    """Return the job of the tasks, and their manifests; the message of a failed task is None."""
    staged = [message for message in messages if isinstance(message, StagedBatch)]
    if not staged:
        return None, []
    job = max((message.job for message in staged), key=lambda job: len(job.topics))
    return job, [message.manifest for message in staged]


def this_batch() -> tuple[str, int]:
    """Return the query's id and the number of the micro-batch of this Spark task."""
    context: Any = TaskContext.get()
    query_id, batch_id = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query_id is None or batch_id is None or not batch_id.isdecimal():
        raise StoreError(
            f"Spark did not give the task {_QUERY} and {_BATCH}, without which a batch cannot be "
            "written exactly once: write in foreachBatch with txnAppId and txnVersion"
        )
    return query_id, int(batch_id)

"""The stream writer: each micro-batch a write of its own, known by its query and its number.

Spark makes a writer twice for a micro-batch: the one it plans with is pickled to the tasks, the
other, which shares nothing with the first, commits or aborts what the tasks say. So every message
carries the job, and the job the key: the query's id, which a restart from the same checkpoint
keeps, and the batch's number. Spark tells both in tasks alone, and it may commit a batch again
(after a restart, after ``stop()`` in the middle of a commit): the ledger says that it is there.

Reference: StreamingWrite#commit, PythonStreamingWrite, MicroBatchExecution (the properties).
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.stage.job import Manifest, WriteJob
from mqstore.stage.settings import WriteSettings
from mqstore.stage.task import stage
from mqstore.write import streams
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from pyspark_mqlog.schema import write_schema
from pyspark_mqlog.worker import freeze_once, named_errors

_LOG = logging.getLogger(__name__)
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class StagedBatch(WriterCommitMessage):
    """What a task staged of a micro-batch, and for which job: its message to the commit."""

    job: WriteJob
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream writes, and what it is called, as far as its options tell."""

    write: WriteSettings
    name: str | None


class MqlogStreamWriter(DataSourceStreamArrowWriter):
    """Appends a micro-batch to one store: all of its rows, or none, and once."""

    def __init__(self, settings: StreamSettings, job: WriteJob | None) -> None:
        self._settings = settings
        self._job = job
        self._made_ns = time.time_ns()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context: Any = TaskContext.get()
        with named_errors():
            job = streams.of_batch(self._planned(), *_batch(context))
            partition = context.partitionId()
            manifest = stage(job, iterator, partition=partition, attempt=context.taskAttemptId())
        freeze_once()
        # A store may have many topics; one message that tells them is enough.
        return StagedBatch(replace(job, topics=job.topics if partition == 0 else {}), manifest)

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
                if done.another:
                    _LOG.warning("%s: is the checkpoint an older one?", done.another)
            self._sweep()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with named_errors():
            job, manifests = _gathered(messages)
            if job is not None:
                abort(job, manifests)
            self._sweep()

    def _planned(self) -> WriteJob:
        if self._job is None:
            raise StoreError("Spark planned this batch with a writer that it meant to commit with")
        return self._job

    def _sweep(self) -> None:
        """Remove what earlier tries of the stream left, where it has a name to know them by."""
        if self._settings.name is None:
            return
        try:
            streams.sweep(self._settings.write, self._settings.name, before_ns=self._made_ns)
        except (StoreError, OSError) as error:  # What is left is in nobody's way.
            _LOG.warning("staged files of earlier tries could not be removed: %s", error)


def plan_batch(settings: StreamSettings, schema: StructType) -> WriteJob:
    """Return the job of one micro-batch, its staging folder made; refuse what cannot succeed."""
    job = prepare(settings.write, write_schema(schema))
    try:
        if settings.name is not None:
            streams.claim(job, settings.name)
    except BaseException:
        abort(job, [])
        raise
    return job


def refuse_complete() -> InvalidOptionError:
    """Return the error for a query whose result replaces what was written before."""
    return InvalidOptionError(
        "outputMode",
        "complete",
        "a message store only grows: say append. For a changing result write each change as a "
        'message: outputMode("update") with foreachBatch and df.write',
    )


def _gathered(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[WriteJob | None, list[Manifest]]:
    """Return the job that the tasks worked for, and what they staged; one that failed left None."""
    staged = [message for message in messages if isinstance(message, StagedBatch)]
    if not staged:
        return None, []
    job = max((message.job for message in staged), key=lambda job: len(job.topics))
    return job, [message.manifest for message in staged]


def _batch(context: Any) -> tuple[str, int]:
    query_id, batch_id = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if query_id is None or batch_id is None or not batch_id.isdecimal():
        raise StoreError(
            f"Spark tells a task neither {_QUERY} nor {_BATCH}, without which a batch cannot be "
            "written exactly once: write in foreachBatch with txnAppId and txnVersion"
        )
    return query_id, int(batch_id)

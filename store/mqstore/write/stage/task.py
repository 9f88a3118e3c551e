"""A task's side of a write: rows in, a staged segment and its Manifest out.

The store is not touched. Rows are taken in chunks of bounded size: validated, given a queue, made
messages, and handed to the target's sink (``stage.record_sink``). Nothing is staged of a task with
a bad row, unless ``onInvalid`` says otherwise.
"""

from collections.abc import Iterable, Iterator
from time import time_ns
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from mqstore.codec.encode import Messages
from mqstore.files.base import durable
from mqstore.files.txn import staging
from mqstore.format.arrays import Int64s
from mqstore.write.stage.assign import assign_queues
from mqstore.write.stage.bad_rows import SideWriter
from mqstore.write.stage.compose import Composed, compose
from mqstore.write.stage.job import Manifest, RowJob, WriteJob
from mqstore.write.stage.record_sink import RecordSink
from mqstore.write.stage.row_digest import digest_of, joined
from mqstore.write.stage.rows import Rows, cast_rows
from mqstore.write.stage.validate import RowLimits, find_bad_rows, refuse

CHUNK_BYTES: Final = 8 * 1024 * 1024
CHUNK_ROWS: Final = 16_384


class Sink(Protocol):
    """Where the messages of a task go."""

    written: str
    """What has become of rows before a bad one that fails the job, as a sentence."""

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message as the limits count them: int64[n]."""

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Take the messages of ``rows``, which are sound; ``queue_ids`` are where they go."""


def stage(
    job: WriteJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> Manifest:
    """Stage the rows of ``batches`` and return what the commit needs to find them.

    Of a job that was committed before, only the digest of the rows is taken. Raises
    InvalidMessageError (the first ten reasons of the first chunk that has bad rows),
    StagingNotSharedError, NoSpaceError. Whatever is raised, no staged file is left.
    """
    if job.is_repeated:
        return _passed_over(job, batches, partition=partition, attempt=attempt)
    staging.check_shared(job.target.staging, job.target.nonce)
    sink = RecordSink(job, partition, attempt)
    task = RowTask(job, partition, attempt, sink, limits_of(job))
    try:
        with durable.synced(wanted=job.settings.fsync == "commit"):
            task.take_all(batches)
            side = task.finish()
            return Manifest(
                partition=partition,
                attempt=attempt,
                segment=sink.finish(),
                skipped=task.skipped,
                side=side,
                digest=joined(sink.digest, task.digest),
            )
    except BaseException:
        sink.discard()
        task.discard()
        raise


def _passed_over(
    job: WriteJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> Manifest:
    """Count rows of a job that was committed before, and sum their digests; nothing is checked."""
    count = digest = 0
    for batch in batches:
        rows = cast_rows(batch, job, numbers=np.arange(batch.num_rows), now_ms=0)
        count, digest = count + len(rows), joined(digest, digest_of(rows))
    return Manifest(partition=partition, attempt=attempt, passed_over=count, digest=digest)


def limits_of(job: WriteJob) -> RowLimits:
    """Return what the job's rows are checked against."""
    settings = job.settings
    return RowLimits(
        queue_counts=job.topics,
        new_topic_queues=settings.new_topic_queues if settings.create_topic else 0,
        extends_new_topics=job.carries_read,
        max_message_size=settings.max_message_size,
        record_room=job.target.record_room,
        commit_log_file_size=job.target.sizes.commit_log,
        allow_system_topics=settings.allow_system_topics,
    )


class RowTask:
    """Rows of one task to messages in a sink, chunk by chunk; bad rows aside, or refused."""

    def __init__(
        self, job: RowJob, partition: int, attempt: int, sink: Sink, limits: RowLimits
    ) -> None:
        self._job = job
        self._partition = partition
        self._limits = limits
        self._now_ms = time_ns() // 1_000_000
        self._sink = sink
        side, name = job.settings.side_path, staging.segment_name(partition, attempt)
        self._side = SideWriter(side, job.job_id, name) if side else None
        self._taken = 0
        self.skipped = 0
        self.digest = 0
        """Of the rows that were skipped."""

    def take_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append the messages of all rows, which go on from those of the last call.

        Raises InvalidMessageError, and what the sink does.
        """
        for chunk in _chunks(batches):
            self._take(chunk, self._taken)
            self._taken += chunk.num_rows

    def finish(self) -> str:
        """Make the file with the bad rows durable and return its name; empty if there is none."""
        return self._side.finish() if self._side else ""

    def discard(self) -> None:
        """Remove the file with the bad rows."""
        if self._side:
            self._side.discard()

    def _take(self, chunk: pa.RecordBatch, first_number: int) -> None:
        numbers = np.arange(first_number, first_number + chunk.num_rows)
        rows, queue_ids, composed = self._compose(chunk, numbers)
        sizes = self._sink.record_sizes(composed.messages)
        bad = find_bad_rows(rows, composed.messages.properties, sizes, self._limits)
        if bad:
            if self._job.settings.on_invalid == "fail":
                raise refuse(bad, rows, self._partition, self._sink.written)
            if self._side:
                self._side.append(chunk, bad)
            self.skipped += len(bad)
            keep = np.ones(len(rows), np.bool_)
            keep[[b.row for b in bad]] = False
            self.digest = joined(self.digest, self._digest(chunk.filter(pa.array(~keep))))
            chunk = chunk.filter(pa.array(keep))
            rows, queue_ids, composed = self._compose(chunk, numbers[keep])
        if len(rows):
            self._sink.append(rows, queue_ids, composed)

    def _digest(self, chunk: pa.RecordBatch) -> int:
        numbers = np.arange(chunk.num_rows)
        return digest_of(cast_rows(chunk, self._job, numbers=numbers, now_ms=self._now_ms))

    def _compose(self, chunk: pa.RecordBatch, numbers: Int64s) -> tuple[Rows, Int64s, Composed]:
        rows = cast_rows(chunk, self._job, numbers=numbers, now_ms=self._now_ms)
        counts = {name: self._limits.queues(name) for name in rows.topic_names}
        queue_ids = assign_queues(rows, counts, self._job, self._partition)
        return rows, queue_ids, compose(rows, queue_ids, self._job, self._partition)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut large batches and gather small ones, so that message batches can be filled."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            if held and size + piece.nbytes > CHUNK_BYTES:
                yield _joined(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows >= CHUNK_ROWS:
                yield _joined(held)
                held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    if batch.num_rows == 1 or (batch.nbytes <= CHUNK_BYTES and batch.num_rows <= CHUNK_ROWS):
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

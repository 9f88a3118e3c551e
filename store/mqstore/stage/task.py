"""A task's side of a write: rows in, a staged segment and its Manifest out.

The store is not touched. Rows are taken in chunks of bounded size: validated, given a queue,
put in the order of the CommitLog, encoded and written. Nothing is staged of a task with a bad
row, unless ``onInvalid`` says otherwise.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import time_ns
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.arrays import Int32s, Int64s, Mask
from mqstore.codec.encode import binary_lengths, encode
from mqstore.files import durable
from mqstore.format.message import MIN_BLANK_BYTES
from mqstore.format.names import RETRY_PREFIX
from mqstore.format.staged import MESSAGE
from mqstore.stage.assign import assign_queues
from mqstore.stage.bad_rows import SideWriter
from mqstore.stage.batches import BatchLimits, order_rows, split_batches
from mqstore.stage.compose import Composed, compose, index_keys, tags_codes_of
from mqstore.stage.job import Manifest, WriteJob
from mqstore.stage.rows import Rows, cast_rows
from mqstore.stage.validate import Limits, find_bad_rows, refuse
from mqstore.txn import staging
from mqstore.txn.segment import Frame, SegmentWriter

CHUNK_BYTES: Final = 8 * 1024 * 1024
CHUNK_ROWS: Final = 16_384
# A batch takes at most this part of a CommitLog file, so that little is lost where a file ends.
_FILE_PART: Final = 4
_QUEUE_BITS: Final = 32
_BATCH_OVERHEAD: Final = 22  # MessageDecoder#encodeMessage: bytes of a message beside its data


def stage(
    job: WriteJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> Manifest:
    """Stage the rows of ``batches`` and return what the commit needs to find them.

    Of a job that was committed before, rows are only counted. Raises InvalidMessageError (the
    first ten bad rows of the first chunk that has any), StagingNotSharedError, NoSpaceError.
    Whatever is raised, no staged file is left.
    """
    if job.is_repeated:
        rows = sum(batch.num_rows for batch in batches)
        return Manifest(partition=partition, attempt=attempt, passed_over=rows)
    staging.check_shared(job.staging, job.nonce)
    task = _Task(job, partition, attempt)
    try:
        number = 0
        with durable.synced(wanted=job.settings.fsync == "commit"):
            for chunk in _chunks(batches):
                task.take(chunk, number)
                number += chunk.num_rows
            return task.finish()
    except BaseException:
        task.discard()
        raise


def limits_of(job: WriteJob) -> Limits:
    """Return what the job's rows are checked against."""
    settings = job.settings
    return Limits(
        queue_counts=job.topics,
        new_topic_queues=settings.queue_nums if settings.create_topic else 0,
        extends_new_topics=job.carries_read,
        max_message_size=settings.max_message_size,
        commit_log_file_size=job.sizes.commit_log,
        allow_system_topics=settings.allow_system_topics,
    )


class _Task:
    def __init__(self, job: WriteJob, partition: int, attempt: int) -> None:
        self._job = job
        self._partition = partition
        self._attempt = attempt
        self._limits = limits_of(job)
        self._now_ms = time_ns() // 1_000_000
        self._writer: SegmentWriter | None = None
        side, name = job.settings.side_path, staging.segment_name(partition, attempt)
        self._side = SideWriter(side, job.job_id, name) if side else None
        self._skipped = 0

    def take(self, chunk: pa.RecordBatch, first_number: int) -> None:
        numbers = np.arange(first_number, first_number + chunk.num_rows)
        rows, queue_ids, composed = self._compose(chunk, numbers)
        sizes = composed.messages.sizes(self._job.hosts)
        bad = find_bad_rows(rows, composed.messages.properties, sizes, self._limits)
        if bad:
            if self._job.settings.on_invalid == "fail":
                raise refuse(bad, self._partition)
            if self._side:
                self._side.append(chunk, bad)
            self._skipped += len(bad)
            keep = np.ones(len(rows), np.bool_)
            keep[[b.row for b in bad]] = False
            chunk = chunk.filter(pa.array(keep))
            rows, queue_ids, composed = self._compose(chunk, numbers[keep])
        if len(rows):
            self._append(self._frame(rows, queue_ids, composed))

    def finish(self) -> Manifest:
        side = self._side.finish() if self._side else ""
        return Manifest(
            partition=self._partition,
            attempt=self._attempt,
            segment=self._writer.finish() if self._writer else None,
            skipped=self._skipped,
            side=side,
        )

    def discard(self) -> None:
        if self._writer:
            self._writer.discard()
        if self._side:
            self._side.discard()

    def _compose(self, chunk: pa.RecordBatch, numbers: Int64s) -> tuple[Rows, Int64s, Composed]:
        settings = self._job.settings
        rows = cast_rows(chunk, self._job, numbers=numbers, now_ms=self._now_ms)
        counts = {name: self._limits.queues(name) for name in rows.topic_names}
        queue_ids = assign_queues(rows, counts, settings.partitioner, self._partition)
        return rows, queue_ids, compose(rows, queue_ids, self._job, self._partition)

    def _append(self, frame: Frame) -> None:
        if self._writer is None:
            self._writer = SegmentWriter(
                self._job.staging,
                self._job.job_id,
                partition=self._partition,
                attempt=self._attempt,
            )
        self._writer.append(frame, self._job.hosts.variant)

    def _frame(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> Frame:
        messages = composed.messages
        placed = _queues(rows, queue_ids, composed)
        order = self._order(rows, placed.codes)
        count = len(order)
        table = np.zeros(count, MESSAGE)
        encoded = encode(messages, self._job.hosts, order)
        table["queue"] = placed.codes[order]
        table["size"] = encoded.sizes
        table["tags_code"] = tags_codes_of(rows, composed.delayed)[order]
        table["delay_level"] = np.where(composed.delayed, rows.delay_levels, 0)[order]
        table["store_timestamp_ms"] = np.maximum(rows.store_timestamps_ms, 0)[order]
        table["starts_batch"] = self._starts(rows, composed, placed.codes, order, encoded.sizes)
        keys = np.zeros(0, np.int32)
        if self._job.settings.build_index:
            table["key_count"], keys = index_keys(rows, composed, order)
        return Frame(placed.queues, table, keys, encoded.records)

    def _order(self, rows: Rows, codes: Int64s) -> NDArray[np.intp]:
        settings = self._job.settings
        moments = rows.store_timestamps_ms if settings.timestamps == "preserve" else None
        keyed = _sharding_codes(rows) if settings.batch_builder == "keyBased" else None
        return order_rows(codes, keyed, moments)

    def _starts(
        self,
        rows: Rows,
        composed: Composed,
        codes: Int64s,
        order: NDArray[np.intp],
        record_sizes: Int64s,
    ) -> Mask:
        settings, messages = self._job.settings, composed.messages
        retry = np.array([n.startswith(RETRY_PREFIX) for n in messages.topic_names])
        alone = composed.delayed | (messages.sys_flags != 0) | retry[messages.topics]
        kinds = codes * 2 + rows.waits
        if settings.batch_builder == "keyBased":
            sharding = _sharding_codes(rows)
            kinds = kinds * (int(sharding.max(initial=0)) + 2) + sharding + 1
        encoded = (
            _BATCH_OVERHEAD + binary_lengths(messages.bodies) + binary_lengths(messages.properties)
        )
        limits = BatchLimits(
            max_bytes=settings.batch_max_bytes,
            max_record_bytes=(self._job.sizes.commit_log - MIN_BLANK_BYTES) // _FILE_PART,
            max_messages=settings.batch_max_messages,
        )
        return split_batches(kinds[order], alone[order], encoded[order], record_sizes, limits)


@dataclass(frozen=True, slots=True)
class _Queues:
    queues: tuple[tuple[str, int], ...]
    codes: Int64s


def _queues(rows: Rows, queue_ids: Int64s, composed: Composed) -> _Queues:
    """Return the distinct (topic, queueId) and, for each row, which one it is stored in.

    After them come the queues that delayed messages will be delivered to: the frame has no
    message of those, but the store must have the topics.
    """
    messages = composed.messages
    stored = _pairs(messages.topics, messages.queue_ids)
    distinct, codes = np.unique(stored, return_inverse=True)
    late = np.unique(_pairs(rows.topics[composed.delayed], queue_ids[composed.delayed]))
    pairs = np.concatenate((distinct, np.setdiff1d(late, distinct)))
    queues = tuple(
        (messages.topic_names[pair >> _QUEUE_BITS], pair & ((1 << _QUEUE_BITS) - 1))
        for pair in pairs.tolist()
    )
    return _Queues(queues, codes.astype(np.int64))


def _pairs(topics: Int32s, queue_ids: NDArray[np.integer]) -> Int64s:
    return topics.astype(np.int64) << _QUEUE_BITS | queue_ids


def _sharding_codes(rows: Rows) -> Int64s:
    """Return a number for each shardingKey, −1 where there is none."""
    codes = rows.sharding_keys.dictionary_encode().indices.fill_null(-1)
    found: Int64s = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


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

"""Messages of one task as records of a store, staged frame by frame.

This is what the directory of a store does with a task's messages; a task itself
(``stage.task``) ends with ``Composed``, which is the same for every target.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.encode import Encoded, Messages, encode
from mqstore.codec.gather import RecordHeaders
from mqstore.files.txn.segment import Segment, SegmentFrame, SegmentWriter
from mqstore.format.arrays import Int32s, Int64s, Mask, Recycled, TopicQueue
from mqstore.format.message import MIN_BLANK_BYTES
from mqstore.format.names import RETRY_PREFIX
from mqstore.format.staged import MESSAGE
from mqstore.write.stage.batches import BatchLimits, order_rows, split_batches
from mqstore.write.stage.compose import Composed, index_keys, tags_codes_of
from mqstore.write.stage.job import WriteJob
from mqstore.write.stage.row_digest import digest_of, joined
from mqstore.write.stage.rows import Rows

# A batch takes at most this part of a CommitLog file, so that little is lost where a file ends.
_FILE_PART: Final = 4
_QUEUE_BITS: Final = 32


class RecordSink:
    """Encodes messages as records and stages them in the order of the CommitLog.

    The staged file is there only after ``finish``.
    """

    written = "Nothing was written"

    def __init__(self, job: WriteJob, partition: int, attempt: int) -> None:
        self._job = job
        self._target = job.target
        self._partition = partition
        self._attempt = attempt
        self._writer: SegmentWriter | None = None
        self._memory = Recycled(most=1)
        self.digest = 0
        """Of the rows that were staged, of a job with a key."""

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message's record: int64[n]."""
        return messages.sizes(self._target.hosts)

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Stage the messages of ``rows``, which are sound; ``queue_ids`` are where they go.

        Of a job with a key, ``digest`` then covers these rows too.
        """
        frame = self._frame(rows, queue_ids, composed)
        if self._writer is None:
            self._writer = SegmentWriter(
                self._target.staging,
                self._job.job_id,
                partition=self._partition,
                attempt=self._attempt,
            )
        self._writer.append(frame, self._target.hosts.variant)

    def finish(self) -> Segment | None:
        """Make the staged file durable and return it; None if no message was appended."""
        return self._writer.finish() if self._writer else None

    def discard(self) -> None:
        """Remove the staged file."""
        if self._writer:
            self._writer.discard()

    def _frame(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> SegmentFrame:
        messages = composed.messages
        placed = _queues(rows, queue_ids, composed)
        order = self._order(rows, placed.codes)
        count = len(order)
        table = np.zeros(count, MESSAGE)
        encoded = encode(messages, self._target.hosts, order, self._memory)
        if self._job.key is not None:
            crcs = _crcs(rows, messages, order, encoded)
            self.digest = joined(self.digest, digest_of(rows, crcs))
        table["queue"] = placed.codes[order]
        table["size"] = encoded.sizes
        table["tags_code"] = tags_codes_of(rows, composed.delayed)[order]
        table["delay_level"] = np.where(composed.delayed, rows.delay_levels, 0)[order]
        table["store_timestamp_ms"] = np.maximum(rows.store_timestamps_ms, 0)[order]
        table["starts_batch"] = self._starts(rows, composed, placed.codes, order, encoded.sizes)
        keys = np.zeros(0, np.int32)
        if self._job.settings.build_index:
            table["key_count"], keys = index_keys(rows, composed, order)
        return SegmentFrame(placed.queues, table, keys, encoded.records)

    def _order(self, rows: Rows, codes: Int64s) -> NDArray[np.intp]:
        settings = self._job.settings
        moments = rows.store_timestamps_ms if settings.timestamps == "preserve" else None
        keyed = rows.sharding_codes() if settings.batch_builder == "keyBased" else None
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
            sharding = rows.sharding_codes()
            kinds = kinds * (int(sharding.max(initial=0)) + 2) + sharding + 1
        limits = BatchLimits(
            max_bytes=min(settings.batch_max_bytes, settings.max_message_size),
            max_record_bytes=(self._target.sizes.commit_log - MIN_BLANK_BYTES) // _FILE_PART,
            max_messages=settings.batch_max_messages,
        )
        client_sizes = messages.client_sizes()[order]
        return split_batches(kinds[order], alone[order], client_sizes, record_sizes, limits)


def _crcs(
    rows: Rows, messages: Messages, order: NDArray[np.intp], encoded: Encoded
) -> Int64s | None:
    """Return BODYCRC of the rows' bodies where their records have it; None: they differ."""
    if messages.bodies is not rows.bodies:
        return None  # Compressed now.
    found = np.empty(len(order), np.int64)
    headers = RecordHeaders(encoded.records, encoded.starts, encoded.sizes)
    found[order] = headers.field("body_crc")
    return found


@dataclass(frozen=True, slots=True)
class _Queues:
    queues: tuple[TopicQueue, ...]
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

"""What tasks staged, as the commit reads it: frame by frame, in the order it is appended.

A commit reads it three times: to verify and count, to append the records, and without the
records to enter them into queues and index. One frame is in memory at a time.

A broker cuts its CommitLog off at the first record it cannot parse or whose checksum does not
hold, and what lies behind is lost. So the sums of a staged file are not enough: each record must
be sound, and one of the queue that the frame's tables enter it into.

Reference: CommitLog#checkMessageAndReturnSize, #recoverNormally.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mqstore.codec.checksum import broken
from mqstore.codec.gather import RecordHeaders
from mqstore.files.txn.errors import CorruptStagingError
from mqstore.files.txn.segment import Segment, SegmentFrame, read_frames, verify
from mqstore.format.arrays import Int64s, Mask, Recycled, TopicQueue
from mqstore.format.message import HARD_RECORD_BYTES, MIN_RECORD_BYTES
from mqstore.format.names import MAX_QUEUE_ID, is_topic
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqstore.write.stage.job import WriteJob

_MEMORIES: Final = 2  # A frame in use, and the one that is read next.


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedMessages:
    """Staged segments in order. Messages that are ``present`` in the log already are left out."""

    directory: str
    job_id: str
    host_variant: int
    segments: tuple[Segment, ...]
    present: Mask | None = None

    @classmethod
    def of(cls, job: WriteJob, segments: Iterable[Segment]) -> "StagedMessages":
        """Return what the tasks of a job staged."""
        return cls(
            directory=job.target.staging,
            job_id=job.job_id,
            host_variant=job.target.hosts.variant,
            segments=tuple(segments),
        )

    @property
    def count(self) -> int:
        """Staged messages, present ones included."""
        return sum(segment.message_count for segment in self.segments)

    def without(self, present: Mask | None) -> "StagedMessages":
        """Return the source without messages that are in the log."""
        return replace(self, present=present)

    def verified(self, *, bodies: bool = False) -> Iterator[tuple[Segment, SegmentFrame]]:
        """Yield all frames with records, every staged byte checked. Raises CorruptStagingError.

        What our own task reported the digest of is what it wrote. Where the digest comes from the
        store itself, anybody may have made both: then let ``bodies`` be checked as a broker does.
        """
        done, memory = 0, Recycled(_MEMORIES)
        for segment in self.segments:
            for frame in self.check(segment, memory):
                _check_records(frame, segment, bodies=bodies)
                yield from ((segment, kept) for kept in self._left(frame, done))
                done += len(frame.messages)

    def frames(self, *, with_records: bool) -> Iterator[SegmentFrame]:
        """Yield all frames of a source that was verified. Raises CorruptStagingError."""
        done, memory = 0, Recycled(_MEMORIES)
        for segment in self.segments:
            frames = read_frames(self.directory, segment, with_records=with_records, memory=memory)
            for frame in frames:
                yield from self._left(frame, done)
                done += len(frame.messages)

    def check(self, segment: Segment, memory: Recycled | None = None) -> Iterator[SegmentFrame]:
        """Yield the frames of one segment with their records, every byte of it verified."""
        return verify(
            self.directory,
            segment,
            job_id=self.job_id,
            host_variant=self.host_variant,
            memory=memory,
        )

    def _left(self, frame: SegmentFrame, done: int) -> Iterator[SegmentFrame]:
        if self.present is None:
            yield frame
            return
        keep = ~self.present[done : done + len(frame.messages)]
        if keep.all():
            yield frame
        elif keep.any():
            yield _only(frame, keep)


def _check_records(frame: SegmentFrame, segment: Segment, *, bodies: bool) -> None:
    wrong = _problem(frame, bodies=bodies)
    if wrong is not None:
        raise CorruptStagingError(f"{segment.name}: {wrong}")


def _only(frame: SegmentFrame, keep: Mask) -> SegmentFrame:
    """Return the frame with those messages alone, each a batch of its own."""
    table = frame.messages[keep].copy()
    table["starts_batch"] = 1
    keys = frame.keys[np.repeat(keep, frame.messages["key_count"])]
    records = frame.records
    if len(records):
        records = records[np.repeat(keep, frame.messages["size"])]
    return SegmentFrame(frame.queues, table, keys, records)


def _problem(frame: SegmentFrame, *, bodies: bool) -> str | None:
    """Return what is wrong with a frame's records, or None. With ``bodies`` checksums count too."""
    queues, records = frame.queues, frame.records
    of = frame.messages["queue"].astype(np.int64)
    sizes = frame.messages["size"].astype(np.int64)
    if not _are_topics(queues):
        return "a queue of no topic"
    believable = (sizes >= MIN_RECORD_BYTES) & (sizes <= HARD_RECORD_BYTES)
    if not believable.all() or int(sizes.sum()) != len(records):
        return "sizes that do not add up to the records"
    if len(of) and not 0 <= int(of.min()) <= int(of.max()) < len(queues):
        return "a message of no queue"
    headers = RecordHeaders(records, np.cumsum(sizes) - sizes, sizes)
    found = headers.problems()
    if found:
        return next(iter(found.values()))
    states = headers.sys_flags & TRANSACTION_MASK
    in_none = np.isin(states, (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)).any()
    if in_none or not _names_queues(headers, queues, of):
        return "a record of another topic or queue, or of none"
    wrong = bodies and broken(headers).any()
    return "the checksum of a record does not hold" if wrong else None


def _are_topics(queues: Sequence[TopicQueue]) -> bool:
    return all(is_topic(topic) and 0 <= queue_id <= MAX_QUEUE_ID for topic, queue_id in queues)


def _names_queues(headers: RecordHeaders, queues: Sequence[TopicQueue], of: Int64s) -> bool:
    """Tell whether each record says it is of the topic and the queue that it is said to be of."""
    ids = np.array([queue_id for _, queue_id in queues], np.int64)
    if len(of) and not np.array_equal(headers.field("queue_id"), ids[of]):
        return False
    return bool(headers.have_topics([topic for topic, _ in queues], of).all())

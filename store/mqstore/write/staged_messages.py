"""What tasks staged, as the commit reads it: frame by frame, in the order it is appended.

A commit reads it three times: to verify and count, to append the records, and without the
records to enter them into queues and index. One frame is in memory at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mqstore.arrays import Mask
from mqstore.codec.as_staged import problem
from mqstore.errors import CorruptStagingError
from mqstore.stage.job import WriteJob
from mqstore.txn.segment import Frame, Segment, read_frames, verify


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
            directory=job.staging,
            job_id=job.job_id,
            host_variant=job.hosts.variant,
            segments=tuple(segments),
        )

    @property
    def count(self) -> int:
        """Staged messages, present ones included."""
        return sum(segment.message_count for segment in self.segments)

    def without(self, present: Mask | None) -> "StagedMessages":
        """Return the source without messages that are in the log."""
        return replace(self, present=present)

    def verified(self, *, bodies: bool = False) -> Iterator[tuple[Segment, Frame]]:
        """Yield all frames with records, every staged byte checked. Raises CorruptStagingError.

        What our own task reported the digest of is what it wrote. Where the digest comes from the
        store itself, anybody may have made both: then let ``bodies`` be checked as a broker does.
        """
        done = 0
        for segment in self.segments:
            for frame in self.check(segment):
                _check_records(frame, segment, bodies=bodies)
                yield from ((segment, kept) for kept in self._left(frame, done))
                done += len(frame.messages)

    def frames(self, *, with_records: bool) -> Iterator[Frame]:
        """Yield all frames of a source that was verified. Raises CorruptStagingError."""
        done = 0
        for segment in self.segments:
            for frame in read_frames(self.directory, segment, with_records=with_records):
                yield from self._left(frame, done)
                done += len(frame.messages)

    def check(self, segment: Segment) -> Iterator[Frame]:
        """Yield the frames of one segment with their records, every byte of it verified."""
        variant = self.host_variant
        return verify(self.directory, segment, job_id=self.job_id, host_variant=variant)

    def _left(self, frame: Frame, done: int) -> Iterator[Frame]:
        if self.present is None:
            yield frame
            return
        keep = ~self.present[done : done + len(frame.messages)]
        if keep.all():
            yield frame
        elif keep.any():
            yield _only(frame, keep)


def _check_records(frame: Frame, segment: Segment, *, bodies: bool) -> None:
    of, sizes = frame.messages["queue"], frame.messages["size"]
    wrong = problem(
        frame.queues, of.astype(np.int64), sizes.astype(np.int64), frame.records, bodies=bodies
    )
    if wrong is not None:
        raise CorruptStagingError(f"{segment.name}: {wrong}")


def _only(frame: Frame, keep: Mask) -> Frame:
    """Return the frame with those messages alone, each a batch of its own."""
    table = frame.messages[keep].copy()
    table["starts_batch"] = 1
    keys = frame.keys[np.repeat(keep, frame.messages["key_count"])]
    records = frame.records
    if len(records):
        records = records[np.repeat(keep, frame.messages["size"])]
    return Frame(frame.queues, table, keys, records)

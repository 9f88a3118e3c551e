"""Bring kept store timestamps into order, across all tasks of a job.

A CommitLog's clock never goes back, but partitions are staged side by side: with
``timestamps=preserve`` their messages are merged by storeTimestamp before they are appended.
Only the tables of all frames are in memory, about 40 bytes a message; records are read one by
one in the new order and staged again, in bounded frames. What is in order is left as it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.errors import InvalidMessageError
from mqstore.files.txn.segment import Segment, SegmentFrame, SegmentWriter
from mqstore.files.txn.staging import StagedReader
from mqstore.format.arrays import Int32s, Int64s, TopicQueue
from mqstore.format.staged import MESSAGE
from mqstore.write.stage.job import WriteJob
from mqstore.write.staged_messages import StagedMessages

MAX_COMMIT_MESSAGES: Final = 1_500_000
_FRAME_ROWS: Final = 16_384
_FRAME_BYTES: Final = 8 * 1024 * 1024
_NO_BYTES: Final = np.zeros(0, np.uint8)
_LAST: Final = np.iinfo(np.int64).max


def in_order(job: WriteJob, segments: list[Segment]) -> list[Segment]:
    """Return segments whose kept timestamps ascend: these ones, or one merged from them.

    Messages without a timestamp of their own come last; the others keep the order of tasks and
    rows where their times are equal. Raises InvalidMessageError if too many would have to be
    brought into order here.
    """
    if job.settings.timestamps != "preserve":
        return segments
    source = _Tables(job, segments)
    if (source.moments[1:] >= source.moments[:-1]).all():
        return segments
    if len(source.moments) > MAX_COMMIT_MESSAGES:
        raise InvalidMessageError(
            f"{len(source.moments)} messages keep a storeTimestamp and are not in its order; more "
            f'than {MAX_COMMIT_MESSAGES} are not sorted here: write df.orderBy("storeTimestamp")'
        )
    writer = SegmentWriter(job.target.staging, job.job_id, partition=0, attempt=0)
    try:
        with source:
            for frame in source.merged():
                writer.append(frame, job.target.hosts.variant)
        return [writer.finish()]
    except BaseException:
        writer.discard()
        raise


class _Tables:
    """The tables of all frames, and the files with their records."""

    def __init__(self, job: WriteJob, segments: list[Segment]) -> None:
        self._directory = job.target.staging
        self._segments = segments
        self._stack = ExitStack()
        self._files: list[StagedReader] = []
        self._frames: list[SegmentFrame] = []
        self._file_of: list[int] = []
        staged = StagedMessages.of(job, segments)
        for number, segment in enumerate(segments):
            for frame in staged.check(segment):
                # Copies: views would keep the records they were read with in memory.
                tables = frame.messages.copy(), frame.keys.copy()
                self._frames.append(
                    SegmentFrame(frame.queues, *tables, _NO_BYTES, frame.records_at)
                )
                self._file_of.append(number)
        counts = [len(frame.messages) for frame in self._frames]
        self._edges = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        kept = [frame.messages["store_timestamp_ms"] for frame in self._frames]
        joined = np.concatenate(kept) if kept else np.zeros(0, np.int64)
        self.moments = np.where(joined > 0, joined, _LAST)

    def __enter__(self) -> "_Tables":
        for segment in self._segments:
            file = StagedReader(self._directory, segment.name, segment.size)
            self._files.append(self._stack.enter_context(file))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def merged(self) -> Iterator[SegmentFrame]:
        """Yield all messages in the order of their times."""
        order = np.argsort(self.moments, kind="stable")
        sizes = np.concatenate([frame.messages["size"] for frame in self._frames])[order]
        ends = np.cumsum(sizes.astype(np.int64))
        edges = [0]
        while edges[-1] < len(order):
            done = int(ends[edges[-1] - 1]) if edges[-1] else 0
            fits = int(np.searchsorted(ends, done + _FRAME_BYTES, "right"))
            edges.append(min(max(fits, edges[-1] + 1), edges[-1] + _FRAME_ROWS, len(order)))
        for start, end in pairwise(edges):
            yield self._gather(order[start:end])

    def _gather(self, numbers: Int64s) -> SegmentFrame:
        """Return those messages as one frame, each a batch of its own."""
        frame_of = np.searchsorted(self._edges, numbers, side="right") - 1
        table = np.zeros(len(numbers), MESSAGE)
        queues: dict[TopicQueue, int] = {}
        keys: list[tuple[Int64s, Int32s]] = []
        parts = [memoryview(b"")] * len(numbers)
        for index in np.unique(frame_of).tolist():
            frame = self._frames[index]
            places = np.flatnonzero(frame_of == index)
            rows = numbers[places] - self._edges[index]
            table[places] = frame.messages[rows]
            codes = [queues.setdefault(queue, len(queues)) for queue in frame.queues]
            table["queue"][places] = np.array(codes, np.int32)[frame.messages["queue"][rows]]
            keys.append(_keys_of(frame, rows, places))
            self._read(index, rows, places, parts)
        table["starts_batch"] = 1
        owners = np.concatenate([owner for owner, _ in keys])
        hashes = np.concatenate([found for _, found in keys])
        records = np.asarray(memoryview(bytearray().join(parts)))
        return SegmentFrame(
            tuple(queues), table, hashes[np.argsort(owners, kind="stable")], records
        )

    def _read(self, index: int, rows: Int64s, places: Int64s, parts: list[memoryview]) -> None:
        frame, file = self._frames[index], self._files[self._file_of[index]]
        sizes = frame.messages["size"].astype(np.int64)
        starts = frame.records_at + np.cumsum(sizes) - sizes
        # A loop over records: in the new order neighbours come from different places.
        for place, start, size in zip(
            places.tolist(), starts[rows].tolist(), sizes[rows].tolist(), strict=True
        ):
            parts[place] = file.read(start, size)


def _keys_of(frame: SegmentFrame, rows: Int64s, places: Int64s) -> tuple[Int64s, Int32s]:
    """Return the index keys of those rows and the new place of each one's message."""
    counts = frame.messages["key_count"].astype(np.int64)
    firsts = (np.cumsum(counts) - counts)[rows]
    counts = counts[rows]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(places, counts), frame.keys[np.repeat(firsts, counts) + within]

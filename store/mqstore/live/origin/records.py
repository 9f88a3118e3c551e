"""Pulled bytes to records that the decoder can take: framed, checked, and at their places.

The body of a pull's answer is records of the CommitLog, byte for byte. Each must be whole, of the
topic and queue that were asked, and where the queue says; a record that is not whole is pulled
again alone, so that it spoils no other.

The place of a message is its index in the queue, which is what consumers commit. The queueOffset
in a record is the same unless the broker lost part of a queue and went on: then messages are
missing, which is data loss by name.

Reference: org.apache.rocketmq.common.message.MessageDecoder#decodesBatch,
PullAPIWrapper#processPullResult; DefaultMessageStore#getMessage (MESSAGE_WAS_REMOVING).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.decode import QueuePositions
from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.codec.hashing import tags_codes
from mqstore.codec.properties import PropertyBlocks
from mqstore.codec.walk import Data, follow
from mqstore.errors import DataLossError
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.names import LMQ_PREFIX
from mqstore.format.properties import TAGS
from mqstore.live.origin.again import whole
from mqstore.live.origin.pull import Answer, LiveSlice, PullReader
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.read.settings import BATCH_BYTES, BATCH_ROWS, FIRST_BATCH_ROWS
from mqstore.read.units import QueueName

_LOG = logging.getLogger(__name__)
_SHOWN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """A record that cannot be parsed: where the queue has it, why, its size and first bytes."""

    piece: LiveSlice
    queue_offset: int
    reason: str
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PulledRecords:
    """Checked records with where they come from, as the decoder takes them, and what is broken.

    ``positions.queues`` are (topic, queueId, brokerName). Its ``tags_codes`` are hashes of the TAGS
    where they were asked for, else 0; in the schedule topic, whose ConsumeQueue has times of
    delivery in their place, they are hashes all the same.
    """

    headers: RecordHeaders
    positions: QueuePositions
    broken: tuple[BrokenRecord, ...] = ()

    def take(self, rows: Int64s) -> "PulledRecords":
        """Return those sound records, and all that are broken."""
        return PulledRecords(self.headers.take(rows), self.positions.take(rows), self.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """How records are put together; plain values.

    A batch ends with the answer that brings it to ``batch_bytes`` bytes, and before one that would
    bring it above ``batch_rows`` rows; the first batch at ``first_rows``, so that a look at a few
    is cheap.
    """

    tags: str = "*"
    fail_on_data_loss: bool = True
    with_tags_codes: bool = False
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    first_rows: int = FIRST_BATCH_ROWS


def read(reader: PullReader, settings: PullSettings) -> Iterator[PulledRecords]:
    """Yield the records of a reader's slices, in their order, in batches.

    Raises as PullReader does, and BrokenAnswerError for records that were not asked for.
    """
    for answers in batches(reader, settings):
        yield assemble(answers, reader, settings)


def batches(reader: PullReader, settings: PullSettings) -> Iterator[list[Answer]]:
    """Yield the answers of each batch; raises as PullReader does."""
    rows = min(settings.first_rows, settings.batch_rows)
    pending: list[Answer] = []
    count = size = 0
    for answer in reader.answers():
        span = answer.end - answer.start
        if pending and count + span > settings.batch_rows:
            yield pending
            pending, count, size, rows = [], 0, 0, settings.batch_rows
        pending.append(answer)
        count += span
        size += len(answer.body)
        if count >= rows or size >= settings.batch_bytes:
            yield pending
            pending, count, size, rows = [], 0, 0, settings.batch_rows
    if pending:
        yield pending


def assemble(
    answers: Sequence[Answer], reader: PullReader, settings: PullSettings
) -> PulledRecords:
    """Return the records of some answers of a reader; see ``read`` for what it raises."""
    framed = frame(answers)
    if framed is None or not (reader.is_filtered or framed.is_enough()):
        pulled = [part for answer in answers for part in _mended(answer, reader)]
        framed = frame(pulled)
        assert framed is not None
    problems = framed.headers.problems()
    broken = tuple(framed.broken(row, reason) for row, reason in sorted(problems.items()))
    if problems:
        sound = np.setdiff1d(np.arange(len(framed.headers)), np.fromiter(problems, np.int64))
        framed = framed.take(sound)
    framed.check_whose()
    framed, queue_offsets = framed.filtered() if reader.is_filtered else framed.dense(settings)
    positions = framed.positions(queue_offsets, with_codes=settings.with_tags_codes)
    return PulledRecords(framed.headers, positions, broken)


def headers_of(address: str, body: Data) -> RecordHeaders:
    """Return the headers of records that stand one after the other, and are whole.

    Raises BrokenAnswerError.
    """
    walked = follow(body)
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    problems = headers.problems()
    if walked.end != len(body) or problems:
        reason = next(iter(problems.values()), "bytes that are no record")
        raise BrokenAnswerError(address, f"the records in an answer are broken: {reason}")
    return headers


@dataclass(frozen=True, slots=True)
class Framed:
    """Records, the answer each is of, and how many lie before it in that answer.

    ``counts`` are the records of each answer.
    """

    answers: Sequence[Answer]
    headers: RecordHeaders
    answer: Int64s
    index: Int64s
    counts: Int64s

    def take(self, rows: NDArray[Any]) -> "Framed":
        """Return those rows only."""
        return Framed(
            self.answers,
            self.headers.take(rows),
            self.answer[rows],
            self.index[rows],
            self.counts,
        )

    def is_enough(self) -> bool:
        """Tell whether each answer has a sound record for each queue offset of its range.

        Too many are enough: to ask again does not help.
        """
        short, more = self.counts < self.spans(), self.counts > self.spans()
        if short.any() or self.headers.problems():
            return False
        return bool(more.any()) or not self._differing().any()

    def spans(self) -> Int64s:
        """Return how many queue offsets each answer has."""
        return np.array([answer.end - answer.start for answer in self.answers], np.int64)

    def places(self) -> Int64s:
        """Return the queue offsets of records that stand one for each in their answers."""
        return self.per_answer([answer.start for answer in self.answers]) + self.index

    def per_answer(self, values: Sequence[int]) -> Int64s:
        """Return for each record a value of its answer."""
        return np.array(values, np.int64)[self.answer]

    def broken(self, row: int, reason: str) -> BrokenRecord:
        """Return a record that breaks a rule."""
        answer = self.answers[int(self.answer[row])]
        start, size = int(self.headers.starts[row]), int(self.headers.sizes[row])
        data = self.headers.buffer[start : start + min(size, _SHOWN_BYTES)].tobytes()
        place = answer.start + int(self.index[row])
        return BrokenRecord(answer.piece, place, reason, size, data)

    def check_whose(self) -> None:
        """Raise BrokenAnswerError for a record of another topic or queue than asked for."""
        queue_ids = self.headers.field("queue_id")
        # A light queue (LMQ) points at records of its parent topic.
        light = [answer.piece.topic.startswith(LMQ_PREFIX) for answer in self.answers]
        same = queue_ids == self.per_answer([a.piece.queue_id for a in self.answers])
        same &= self._same_topic()
        same |= np.array(light, np.bool_)[self.answer]
        if not same.all():
            answer = self.answers[int(self.answer[np.flatnonzero(~same)[0]])]
            reason = f"a pull of {answer.piece} gave a record of another topic or queue"
            raise BrokenAnswerError(answer.address, reason)

    def filtered(self) -> "tuple[Framed, Int64s]":
        """Return the records of the ranges of their answers, and their own queue offsets."""
        found = self.headers.field("queue_offset").astype(np.int64)
        starts = self.per_answer([answer.start for answer in self.answers])
        inside = (found >= starts) & (
            found < self.per_answer([answer.end for answer in self.answers])
        )
        self._check_order(found, found >= starts)
        rows = np.flatnonzero(inside)
        return self.take(rows), found[rows]

    def _check_order(self, found: Int64s, right: Mask) -> None:
        """Raise BrokenAnswerError unless ``right``, and offsets ascend within each answer."""
        ascending = np.ones(len(found), np.bool_)
        ascending[1:] = (np.diff(found) > 0) | (np.diff(self.answer) > 0)
        for row in np.flatnonzero(~(ascending & right))[:1].tolist():
            answer = self.answers[int(self.answer[row])]
            reason = f"a pull of {answer.piece} at {answer.start} gave queue offset {found[row]}"
            raise BrokenAnswerError(answer.address, f"{reason}, out of order")

    def dense(self, settings: PullSettings) -> "tuple[Framed, Int64s]":
        """Return the records and their places: one for each offset of its answer's range.

        Where a broker skipped messages, DataLossError, or without ``fail_on_data_loss`` the
        places that can be had.
        """
        spans, places = self.spans(), self.places()
        stored = self.headers.field("queue_offset").astype(np.int64)
        differs = self._differing()
        if (self.counts == spans).all() and not differs.any():
            return self, places
        for place in np.flatnonzero(self.counts > spans).tolist():
            answer = self.answers[place]
            reason = f"a pull of {answer.piece} from {answer.start} to {answer.end} gave more"
            raise BrokenAnswerError(answer.address, f"{reason} messages than that")
        self._lose(settings, np.union1d(np.flatnonzero(self.counts < spans), self.answer[differs]))
        return self._left(spans, stored, places)

    def _differing(self) -> Mask:
        """Tell of each record whether it says another queue offset than its place."""
        stored = self.headers.field("queue_offset").astype(np.int64)
        light = [answer.piece.topic.startswith(LMQ_PREFIX) for answer in self.answers]
        differs: Mask = (stored != self.places()) & ~np.array(light, np.bool_)[self.answer]
        return differs

    def _left(self, spans: Int64s, stored: Int64s, places: Int64s) -> "tuple[Framed, Int64s]":
        # In an answer that lacks messages only the records can tell which they are.
        starts = self.per_answer([answer.start for answer in self.answers])
        ends = self.per_answer([answer.end for answer in self.answers])
        whole = (self.counts == spans)[self.answer]
        found = np.where(whole, places, stored)
        self._check_order(found, whole | ((stored >= starts) & (stored < ends)))
        return self, found

    def positions(self, queue_offsets: Int64s, *, with_codes: bool) -> QueuePositions:
        """Return where the records come from; with hashes of TAGS, all must be whole."""
        queues, of_answer = queues_of(self.answers)
        codes = np.zeros(len(self.headers), np.int64)
        if with_codes:
            codes = tags_codes(PropertyBlocks.of(self.headers).column(TAGS))
        return QueuePositions(queues, of_answer[self.answer], queue_offsets, codes)

    def _lose(self, settings: PullSettings, places: Int64s) -> None:
        for place in places.tolist():
            answer = self.answers[place]
            start, end = answer.start, answer.end
            error = _SkippedMessagesError(str(answer.piece), start, end, low=start, high=end)
            if settings.fail_on_data_loss:
                raise error
            _LOG.warning("%s", error)

    def _same_topic(self) -> Mask:
        headers = self.headers
        same = np.zeros(len(headers), np.bool_)
        topics = [answer.piece.topic.encode() for answer in self.answers]
        for topic in set(topics):
            of_it = np.array([name == topic for name in topics], np.bool_)
            rows = np.flatnonzero(of_it[self.answer] & (headers.topic_lengths == len(topic)))
            window = sliding(headers.buffer, np.dtype(f"S{len(topic)}"))
            same[rows] = window[headers.topic_starts[rows]] == topic
        return same


class _SkippedMessagesError(DataLossError):
    """A broker's queue lacks messages between others that it has."""

    text = (
        "{queue!s}: of queue offsets [{start}, {end}) the broker gave fewer messages, or ones "
        "that say they are others, also when they were asked for again, alone: its queue skipped "
        "messages in a crash, they expired meanwhile, or its tiered storage lacks them. Set "
        "failOnDataLoss=false to read what is left"
    )


def queues_of(answers: Sequence[Answer]) -> tuple[list[QueueName], Int64s]:
    """Return the queues of answers, and which of them each answer is of."""
    queues: dict[QueueName, int] = {}
    pieces = [answer.piece for answer in answers]
    names = [(piece.topic, piece.queue_id, piece.broker) for piece in pieces]
    numbers = [queues.setdefault(name, len(queues)) for name in names]
    return list(queues), np.array(numbers, np.int64)


def frame(answers: Sequence[Answer]) -> Framed | None:
    """Return the records of the answers, unchecked; None if an answer holds part of a record."""
    lengths = np.array([len(answer.body) for answer in answers], np.int64)
    edges = np.concatenate(([0], np.cumsum(lengths)))
    bodies = [answer.body for answer in answers]
    data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    if any(answer.is_single for answer in answers):
        return _frame_apart(answers, data, edges)
    walked = follow(data)
    ends = np.append(walked.starts, walked.end)
    firsts = np.searchsorted(ends, edges)
    if walked.end != len(data) or not (ends[firsts] == edges).all():
        return None
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    return _framed(answers, headers, np.diff(firsts))


def _frame_apart(answers: Sequence[Answer], data: Data, edges: Int64s) -> Framed:
    """As ``frame``, for answers of which some are single; the others are whole."""
    starts, sizes, counts = [], [], []
    for answer, edge in zip(answers, edges.tolist(), strict=False):
        if answer.is_single:
            starts.append(np.array([edge], np.int64))
            sizes.append(np.array([len(answer.body)], np.int64))
        else:
            walked = follow(answer.body)
            starts.append(walked.starts + edge)
            sizes.append(walked.sizes)
        counts.append(len(starts[-1]))
    buffer = follow(data).buffer
    headers = RecordHeaders(buffer, np.concatenate(starts), np.concatenate(sizes))
    return _framed(answers, headers, np.array(counts, np.int64))


def _framed(answers: Sequence[Answer], headers: RecordHeaders, counts: Int64s) -> Framed:
    answer = np.repeat(np.arange(len(answers)), counts)
    firsts = np.cumsum(counts) - counts
    index = np.arange(len(answer)) - firsts[answer]
    return Framed(answers, headers, answer, index, counts)


def _mended(answer: Answer, reader: PullReader) -> Iterator[Answer]:
    """Yield the answer if its records are whole, else what comes of its range when asked alone.

    Where that holds part of a record, its messages are pulled one by one.
    """
    for part in [answer] if reader.is_filtered else whole(answer, reader):
        if frame([part]) is None:
            yield from reader.singles(part)
        else:
            yield part

"""Answers to pulls as the decode kernel takes them: units that say what was asked for, and blocks.

Of the records only sizes are followed here, and physical offsets taken over. The kernel checks that
each is whole, of its queue and at its queue offset. Answers that break any of this go by
``records``, which pulls again, counts, and finds the name of what is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.codec.walk import follow
from mqstore.files.log.commit_log import Block
from mqstore.format.arrays import Int64s
from mqstore.format.message import HEADER
from mqstore.live.origin.pull import Answer
from mqstore.live.origin.records import frame, queues_of
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.read.units import UnitBatch, join

_LARGE_BYTES: Final = 256 * 1024
_JOINED_BYTES: Final = 1024 * 1024
assert HEADER.fields is not None
_PLACE_FIELD: Final = HEADER.fields["physical_offset"]


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Units of records, and the memory in which they are, part by part."""

    units: UnitBatch
    parts: Sequence[RecordHeaders]

    def blocks(self) -> Iterator[Block]:
        """Yield the records of all units, unchecked."""
        first = 0
        for part in self.parts:
            last = first + len(part)
            yield Block(first, last, part.buffer, part.starts, 0)
            first = last


def placed(answers: Sequence[Answer]) -> PlacedRecords | None:
    """Return the records of answers, one for each queue offset of their ranges.

    None for answers that do not have so many, or hold anything but whole ones.
    """
    parts = []
    for some in _blocks(answers):
        part = _dense(some)
        if part is None:
            return None
        parts.append(part)
    units = UnitBatch(
        np.concatenate(list(map(_physical_offsets, parts))),
        np.concatenate([part.sizes for part in parts]),
        _positions(answers),
    )
    return PlacedRecords(units, parts)


def placed_by_headers(
    answers: Sequence[Answer], *, filtered: bool, with_tags_codes: bool
) -> PlacedRecords | None:
    """As ``placed``, for what takes more of the records: their hashes, or their queue offsets.

    Answers that are ``filtered`` have some of the queue offsets of their ranges.
    """
    parts, units = [], []
    for some in _blocks(answers):
        framed = frame(some)
        if framed is None or (with_tags_codes and framed.headers.problems()):
            return None
        if filtered:
            try:
                framed, queue_offsets = framed.filtered()
            except BrokenAnswerError:  # Or a record that is not whole.
                return None
        elif (framed.counts == framed.spans()).all():
            queue_offsets = framed.places()
        else:
            return None
        headers = framed.headers
        positions = framed.positions(queue_offsets, with_codes=with_tags_codes)
        parts.append(headers)
        units.append(UnitBatch(_physical_offsets(headers), headers.sizes, positions))
    return PlacedRecords(join(units), parts)


def _blocks(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    """Yield a large answer by itself, and several small ones to be copied together.

    A block costs as much as some tens of messages, whatever is in it.
    """
    some: list[Answer] = []
    size = 0
    for answer in answers:
        if some and (len(answer.body) >= _LARGE_BYTES or size >= _JOINED_BYTES):
            yield some
            some, size = [], 0
        some.append(answer)
        size += len(answer.body)
        if len(answer.body) >= _LARGE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _dense(answers: Sequence[Answer]) -> RecordHeaders | None:
    """Return the records of answers; None unless each has as many as its range."""
    data = answers[0].body if len(answers) == 1 else b"".join(one.body for one in answers)
    walked = follow(data)
    spans = [one.end - one.start for one in answers]
    if walked.end != len(data) or len(walked.starts) != sum(spans):
        return None
    firsts, edges = np.cumsum(spans[:-1]), np.cumsum([len(one.body) for one in answers[:-1]])
    if len(answers) > 1 and not (walked.starts[firsts] == edges).all():
        return None
    return RecordHeaders(walked.buffer, walked.starts, walked.sizes)


def _positions(answers: Sequence[Answer]) -> QueuePositions:
    spans = np.array([one.end - one.start for one in answers], np.int64)
    starts = np.array([one.start for one in answers], np.int64)
    queues, of_answer = queues_of(answers)
    count = int(spans.sum())
    queue_offsets = np.arange(count) + np.repeat(starts - np.cumsum(spans) + spans, spans)
    none = np.zeros(count, np.int64)
    return QueuePositions(queues, np.repeat(of_answer, spans), queue_offsets, none)


def _physical_offsets(headers: RecordHeaders) -> Int64s:
    dtype, position = _PLACE_FIELD[:2]
    return sliding(headers.buffer, dtype)[headers.starts + position].astype(np.int64)

"""Answers to pulls as the decode kernel takes them: units that say what was asked for, and blocks.

Of the records only sizes are followed here, and physical offsets taken over. The kernel checks that
each is whole, of its queue and at its queue offset. Answers that break any of this go by
``records``, which pulls again, counts, and finds the name of what is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.arrays import Int64s
from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.files.log.commit_log import Block
from mqstore.format.message import HEADER
from mqstore.live.errors import BrokenAnswerError
from mqstore.live.pull import Answer
from mqstore.live.records import Framed, frame
from mqstore.read.units import UnitBatch, join

_LARGE_BYTES: Final = 256 * 1024
_BLOCK_BYTES: Final = 1024 * 1024
assert HEADER.fields is not None
_PHYSICAL_OFFSET: Final = HEADER.fields["physical_offset"]


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


def placed(
    answers: Sequence[Answer], *, filtered: bool, with_tags_codes: bool
) -> PlacedRecords | None:
    """Return the records of answers, some of their ranges if ``filtered``.

    None for answers that lack records of their range, or hold anything but whole ones.
    """
    parts = []
    for some in _blocks(answers):
        framed = frame(some)
        if framed is None or (with_tags_codes and framed.headers.problems()):
            return None
        found = _filtered(framed) if filtered else _dense(framed)
        if found is None:
            return None
        framed, queue_offsets = found
        positions = framed.positions(queue_offsets, with_codes=with_tags_codes)
        units = UnitBatch(_physical_offsets(framed.headers), framed.headers.sizes, positions)
        parts.append((units, framed.headers))
    return PlacedRecords(join([units for units, _ in parts]), [headers for _, headers in parts])


def _blocks(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    """Yield a large answer by itself, and several small ones to be copied together.

    A block costs as much as a hundred messages, whatever is in it.
    """
    some: list[Answer] = []
    size = 0
    for answer in answers:
        if some and (len(answer.body) >= _LARGE_BYTES or size >= _BLOCK_BYTES):
            yield some
            some, size = [], 0
        some.append(answer)
        size += len(answer.body)
        if len(answer.body) >= _LARGE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _dense(framed: Framed) -> tuple[Framed, Int64s] | None:
    return (framed, framed.places()) if (framed.counts == framed.spans()).all() else None


def _filtered(framed: Framed) -> tuple[Framed, Int64s] | None:
    try:
        return framed.filtered()
    except BrokenAnswerError:  # Or a record that is not whole.
        return None


def _physical_offsets(headers: RecordHeaders) -> Int64s:
    dtype, position = _PHYSICAL_OFFSET[:2]
    return sliding(headers.buffer, dtype)[headers.starts + position].astype(np.int64)

"""The estimate of a 5.x broker for a group that takes a queue by tag.

It counts ConsumeQueue units whose hash matches, from the committed offset on, and gives up after
20,000 units or 5,000 matches: then it stretches what it found over the whole range.

As the broker does: the 5,001st match is counted; an offset before the queue's first message is
raised to it and the end with it, and a file that would have to be read beyond what is written
in it counts for nothing, though it was the only one.

Reference: DefaultMessageStore#estimateMessageCount, ConsumeQueue#estimateMessageCount,
MappedFileQueue#range, DefaultMappedFile#selectMappedBuffer, DefaultMessageFilter
#isMatchedByConsumeQueue; MessageStoreConfig#maxConsumeQueueScan, #sampleCountThreshold.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.format.arrays import Mask, Span, TopicQueue
from mqstore.read.source import RecordSource
from mqstore.read.tags import TagFilter

MAX_SCAN: Final = 20_000
SAMPLE_THRESHOLD: Final = 5_000
_BLOCK_UNITS: Final = 32_768
_BLOCKS: Final = 64


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of messages; ``is_sample``: not all were looked at."""

    count: int
    is_sample: bool


class Matches:
    """Which units of a queue match a filter, by hash: read in blocks, the last few kept.

    Many groups take one queue with one expression from offsets that lie close together.
    """

    def __init__(self, source: RecordSource, queue: TopicQueue, wanted: TagFilter) -> None:
        self._source = source
        self._queue = queue
        self._codes = np.fromiter(wanted.codes, np.int32, len(wanted.codes))
        self._blocks: OrderedDict[int, Mask] = OrderedDict()

    def read(self, start: int, end: int) -> Iterator[Mask]:
        """Yield for the units [start, end), which are there, whether they match."""
        for base in range(start - start % _BLOCK_UNITS, end, _BLOCK_UNITS):
            block = self._block(base)
            yield block[max(start - base, 0) : end - base]

    @property
    def files(self) -> list[Span]:
        """The queue offsets [start, end) of each of the queue's files."""
        return self._source.unit_files(self._queue)

    def _block(self, base: int) -> Mask:
        block = self._blocks.pop(base, None)
        if block is None:
            if len(self._blocks) >= _BLOCKS:
                self._blocks.popitem(last=False)
            block = np.zeros(_BLOCK_UNITS, np.bool_)
            for units in self._source.units(self._queue, base, base + _BLOCK_UNITS):
                # As Long#intValue: the lower half of a code, whatever the upper one is.
                found = np.isin(units.tags_codes.astype(np.int32), self._codes)
                block[units.start - base : units.end - base] = found
        self._blocks[base] = block
        return block


def estimate(matches: Matches, bounds: Span, committed: int) -> Estimate:
    """Return a broker's guess at the messages of a queue from ``committed`` to its end.

    ``bounds`` are the queue's low and high; ``committed`` lies before high.
    """
    low, high = bounds
    start, end = max(committed, 0), high
    if start < low:
        start, end = low, end + low - start
    ranges = list(_ranges(matches.files, high, start, end))
    if not ranges:
        return Estimate(end - start, is_sample=False)
    scanned = matched = 0
    for first, last in ranges:
        for found in matches.read(first, min(last, first + MAX_SCAN)):
            upto = _stop(found, scanned, matched)
            scanned += upto
            matched += int(np.count_nonzero(found[:upto]))
            if scanned >= MAX_SCAN or matched > SAMPLE_THRESHOLD:
                # In doubles, as there: matched times the range may be beyond 2**53.
                return Estimate(int(float(matched * (end - start)) / scanned), is_sample=True)
    return Estimate(matched, is_sample=False)


def _ranges(files: Sequence[Span], high: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the part of [start, end) in each file that has one; empty where it is not written."""
    for file_start, file_end in files:
        if file_end <= start or end <= file_start:
            continue
        first, count = file_start, file_end - file_start
        if file_start <= start:
            first = start
            count = end - start if file_end >= end else file_end - first
        if first == file_start and file_end > end:
            count = end - file_start
        wrote = min(max(high, file_start), file_end)
        yield first, first + count if first + count <= wrote else first


def _stop(matches: Mask, scanned: int, matched: int) -> int:
    """Return how many of these units are looked at before there are enough."""
    most = min(len(matches), MAX_SCAN - scanned)
    enough = np.flatnonzero(np.cumsum(matches[:most]) + matched > SAMPLE_THRESHOLD)
    return min(most, int(enough[0]) + 1) if len(enough) else most

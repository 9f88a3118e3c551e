"""The tags of ranges of messages: counted in all of them, or in a sample where there are many.

A sample is stretches of messages, evenly spread over each queue, and each queue has its share.
Where a topic has very many queues, the longest stand for the others.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.report.facts import Looked, TagHeld, Tags
from mqstore.read.source import QueueSlice
from mqstore.tables import tags as count_tags

Key = TypeVar("Key", bound=Hashable)

MOST_MESSAGES: Final = 500_000  # that are looked at: some seconds
_COUNTED_QUEUES: Final = 64  # of a topic that are looked into
_STRETCH: Final = 1_000
_SHORTEST: Final = 16
_MOST_TAGS: Final = 12  # of a topic that are told one by one
_COLUMNS: Final = ("tag", "messageCount", "bytes")


def tags_of(
    ranges: Mapping[Key, Sequence[QueueSlice]], most: int = MOST_MESSAGES
) -> dict[Key, Tags]:
    """Return the tags of the messages of each key's ranges, looking at about ``most`` in all.

    Raises what reading records raises.
    """
    total = sum(_length(piece) for pieces in ranges.values() for piece in pieces)
    share = min(1.0, most / total) if total else 1.0
    return {key: _counted(pieces, share) for key, pieces in ranges.items()}


def stretches(piece: QueueSlice, share: float) -> list[QueueSlice]:
    """Return about that share of a range: stretches of at most a thousand, evenly spread."""
    length = _length(piece)
    wanted = max(length * share, _SHORTEST)
    if wanted >= length:
        return [piece]
    number = -(-int(wanted) // _STRETCH)
    each = int(wanted) // number
    starts = [piece.start + (length - each) * (2 * n + 1) // (2 * number) for n in range(number)]
    return [replace(piece, start=at, end=at + each, weight=None) for at in starts]


def _counted(pieces: Sequence[QueueSlice], share: float) -> Tags:
    longest = sorted(pieces, key=_length, reverse=True)[:_COUNTED_QUEUES]
    total = sum(map(_length, pieces))
    scale = total / max(sum(map(_length, longest)), 1)
    messages: defaultdict[str | None, float] = defaultdict(float)
    sizes: defaultdict[str | None, float] = defaultdict(float)
    looked = 0
    for piece in longest:
        chosen = stretches(piece, share)
        length = sum(map(_length, chosen))
        looked += length
        for tag, count, size in _read(chosen):
            messages[tag] += scale * count * _length(piece) / length
            sizes[tag] += scale * size * _length(piece) / length
    held = [TagHeld(tag, round(count), round(sizes[tag])) for tag, count in messages.items()]
    held.sort(key=lambda one: (-one.messages, one.tag or ""))
    listed = tuple(held if len(held) <= _MOST_TAGS + 1 else held[:_MOST_TAGS])
    return Tags(listed, len(held) - len(listed), Looked(looked, total))


def _read(pieces: Sequence[QueueSlice]) -> Iterator[tuple[str | None, int, int]]:
    for part in count_tags.plan(pieces, "*"):
        for batch in part.batches(_COLUMNS):
            for row in rows_of(batch.select(_COLUMNS)):
                tag, count, size = row.values()
                assert isinstance(count, int)
                assert isinstance(size, int)
                yield tag if tag is None else str(tag), count, size


def _length(piece: QueueSlice) -> int:
    return piece.end - piece.start

"""Where groups go on in the target of a replay, found in its offset map piece by piece.

Of each source queue and each offset that a group committed in it, a few numbers are kept for each
target queue, however many messages were replayed.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.deliver.replay.rows import SourceQueue
from mqstore.deliver.replay.run import OffsetMapTarget
from mqstore.format.arrays import Int64s, Mask
from mqstore.live.send.requests import Queue

_OF_SOURCE: Final = ("brokerName", "topic", "queueId")
_OF_TARGET: Final = ("newTopic", "newBrokerName", "newQueueId")
CommittedBy: TypeAlias = Mapping[SourceQueue, Collection[int]]
"""The offsets that groups committed, by source queue."""


@dataclass(slots=True)
class Mark:
    """Messages of one source queue in one target queue, beside a committed offset.

    ``waiting`` are those at or behind it, ``first`` is the least new offset of them; ``behind`` is
    the new offset behind those before it. None where there is no such message.
    """

    waiting: int = 0
    first: int | None = None
    behind: int | None = None

    def add(self, new_offsets: Int64s, waits: Mask) -> None:
        """Count messages: their new offsets, and which of them wait."""
        left, done = new_offsets[waits], new_offsets[~waits]
        self.waiting += len(left)
        if len(left):
            least = int(left.min())
            self.first = least if self.first is None else min(self.first, least)
        if len(done):
            self.behind = max(self.behind or 0, int(done.max()) + 1)


@dataclass(slots=True)
class MarksOfOffset:
    """The marks beside one committed offset, by target queue.

    ``unknown`` are waiting messages of which no place is known.
    """

    by_queue: dict[Queue, Mark] = field(default_factory=dict)
    unknown: int = 0


class GroupMarks:
    """An OffsetMapTarget that keeps what the offsets of groups need, and no rows."""

    def __init__(self, committed: CommittedBy) -> None:
        """Begin with no message."""
        self._found = {
            queue: {at: MarksOfOffset() for at in places} for queue, places in committed.items()
        }

    def of(self, queue: SourceQueue, committed: int) -> MarksOfOffset:
        """Return the marks beside an offset that was committed in a source queue."""
        return self._found[queue][committed]

    def has(self, _name: str) -> bool:
        """Tell that a piece is wanted: it is in no file."""
        return False

    def write(self, _name: str, rows: pa.Table) -> None:
        """Count the messages of a piece of the map."""
        for source, some in _by_queue(rows, _OF_SOURCE):
            broker, topic, queue_id = source
            for at, marks in self._found.get((broker, topic, queue_id), {}).items():
                self._count(some, at, marks)

    def _count(self, rows: pa.Table, at: int, marks: MarksOfOffset) -> None:
        for (topic, broker, queue_id), some in _by_queue(rows, _OF_TARGET):
            waits = some["queueOffset"].to_numpy() >= at
            if topic is None:  # It is not known where these are.
                marks.unknown += int(waits.sum())
                continue
            mark = marks.by_queue.setdefault(Queue(topic, broker, queue_id), Mark())
            mark.add(some["newQueueOffset"].to_numpy(), waits)


@dataclass(frozen=True, slots=True)
class BothTargets:
    """An OffsetMapTarget of two: each piece is written to both of them."""

    files: OffsetMapTarget | None
    marks: GroupMarks

    def has(self, name: str) -> bool:
        """Tell that a piece is wanted: the marks are in no file."""
        return self.marks.has(name)

    def write(self, name: str, rows: pa.Table) -> None:
        """Write a piece, unless its file is there, and count its messages."""
        if self.files is not None and not self.files.has(name):
            self.files.write(name, rows)
        self.marks.write(name, rows)


def _by_queue(
    rows: pa.Table, columns: tuple[str, str, str]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each queue that three columns name, in their order."""
    if not len(rows):
        return
    encoded = [rows[name].combine_chunks().dictionary_encode("encode") for name in columns]
    codes = np.zeros(len(rows), np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    for number, row in enumerate(first.tolist()):
        names = tuple(column[row].as_py() for column in encoded)
        chosen = rows if len(distinct) == 1 else rows.take(np.flatnonzero(inverse == number))
        yield names, chosen

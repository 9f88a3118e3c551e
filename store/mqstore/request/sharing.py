"""The work of tasks in two parts: what all tasks of a read share, and a short row for each of them.

A read of 100 TB has some 400,000 tasks. What they share (options, columns, where the messages are)
is sent once; a row has the queue and its range, as plain values, which pickle into a few bytes.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

import numpy as np

from mqstore.read.source import Origin, QueueSlice
from mqstore.request.plan import MessageWork, Work
from mqstore.request.tables import TableWork

TaskRow: TypeAlias = tuple[Any, ...]
"""What one task has for itself: plain values of its slices, or the part of a table."""
_WIDTH: Final = 5
"""The values of a slice: the number of its place, topic, queueId, start, end."""
_END_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class SharedWork:
    """What the tasks of one read have in common. Pickles into tasks.

    ``work`` is that of a task without its slices; of a table, with any part. ``places`` are the
    origins and names of brokers that rows number.
    """

    work: Work
    places: tuple[tuple[Origin, str], ...] = ()

    def of(self, row: TaskRow) -> Work:
        """Return the work of the task that has that row."""
        if isinstance(self.work, TableWork):
            return replace(self.work, part=row[0])
        assert isinstance(self.work, MessageWork)
        slices = tuple(
            QueueSlice(*self.places[row[first]], *row[first + 1 : first + _WIDTH])
            for first in range(0, len(row), _WIDTH)
        )
        return replace(self.work, slices=slices)


def shared(works: Sequence[Work]) -> tuple[SharedWork | None, list[TaskRow]]:
    """Return what the works of one read share, and the row of each; None where there is no work."""
    if not works:
        return None, []
    first = works[0]
    if isinstance(first, TableWork):
        return SharedWork(first), [(work.part,) for work in works if isinstance(work, TableWork)]
    assert isinstance(first, MessageWork)
    # By identity: origins that compare equal may carry different facts for their tasks.
    numbers: dict[tuple[int, str], int] = {}
    places: list[tuple[Origin, str]] = []
    rows: list[TaskRow] = []
    for work in works:
        assert isinstance(work, MessageWork)
        row: list[Any] = []
        for piece in work.slices:
            key = id(piece.origin), piece.broker_name
            if key not in numbers:
                numbers[key] = len(places)
                places.append((piece.origin, piece.broker_name))
            row += (numbers[key], piece.topic, piece.queue_id, piece.start, piece.end)
        rows.append(tuple(row))
    return SharedWork(replace(first, slices=()), tuple(places)), rows


def of_task(work: Work) -> tuple[tuple[tuple[Origin, str], ...], TaskRow]:
    """Return the places and the row of one task's work, for a task that has the rest already."""
    found, rows = shared([work])
    return found.places if found is not None else (), rows[0]


@dataclass(frozen=True, slots=True)
class PackedWork:
    """The work of many tasks for a function that Spark sends to each of them.

    Rows of messages are one text of JSON each in one ``bytes``, row ``n`` up to ``ends[n]``: a task
    that opens its own row makes no object for the others. ``parts`` are the rows of a table.
    """

    shared: SharedWork | None
    texts: bytes = b""
    ends: bytes = b""
    parts: tuple[TaskRow, ...] = ()

    @classmethod
    def of(cls, works: Sequence[Work]) -> Self:
        """Pack the work of one read."""
        common, rows = shared(works)
        if common is None or isinstance(common.work, TableWork):
            return cls(common, parts=tuple(rows))
        texts = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return cls(common, b"".join(texts), ends.tobytes())

    def __len__(self) -> int:
        return len(self.parts) or len(self.ends) // _END_BYTES

    def work(self, number: int) -> Work:
        """Return the work of a task by its number."""
        assert self.shared is not None
        if self.parts:
            return self.shared.of(self.parts[number])
        start = self._end(number - 1) if number else 0
        return self.shared.of(tuple(json.loads(self.texts[start : self._end(number)])))

    def _end(self, number: int) -> int:
        at = number * _END_BYTES
        return int.from_bytes(self.ends[at : at + _END_BYTES], sys.byteorder)

"""Bodies of JSON to a struct array: blocks by the fast way, what it leaves one by one."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqstore.bodies.decoded import DecodedBodies, assembled, text_rows
from mqstore.bodies.json_blocks import Failure, JsonBlocks
from mqstore.bodies.json_suspects import SuspectNumbers
from mqstore.bodies.json_values import JsonValues
from mqstore.bodies.times import Times

Rows = NDArray[np.int64]
_JSON_BLOCK_ROWS: Final = 8_192
_PART_ROWS: Final = 256
_JSON_BLOCK_BYTES: Final = 8 << 20
_ONE_BY_ONE_BYTES: Final = 1 << 20
"""Of bodies whose values are held as objects of Python before they are a column."""
_FEW: Final = 4
_ODD_SHARE: Final = 0.25
"""Of rows that the fast way does not read: with more, the slow way is the faster one."""
_MOST_WORK: Final = 4
"""How often, at most, the rows of a block are read by the fast way."""
_JUDGED: Final = 64
"""Blocks of fewer rows say nothing of the next ones."""
_REST_BLOCKS: Final = 8
"""Blocks that are read the slow way after one that the fast way could not read."""


class JsonBodies:
    """Reads bodies of JSON of one type, batch by batch."""

    def __init__(self, kind: pa.DataType, times: Times) -> None:
        self._kind = kind
        self._slow = JsonValues(kind, times)
        self._fast = JsonBlocks(kind, times) if JsonBlocks.takes(kind) else None
        self._suspects = SuspectNumbers.of(kind)
        self._rest = 0

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the values of bodies, and the reasons of those that are bad."""
        fast: list[tuple[Rows, pa.Array]] = []
        slow: list[Rows] = []
        candidates = np.arange(len(bodies))
        if self._fast is None:
            slow.append(candidates)
        else:
            sound = text_rows(bodies)
            slow.append(candidates[~sound])
            for block in _blocks(bodies, candidates[sound]):
                self._read(self._fast, bodies, block, fast, slow)
        return self._with_slow(bodies, fast, np.sort(np.concatenate(slow)))

    def _read(
        self,
        blocks: JsonBlocks,
        bodies: pa.BinaryArray,
        block: Rows,
        fast: list[tuple[Rows, pa.Array]],
        slow: list[Rows],
    ) -> None:
        """Read a block by the fast way, in parts where it fails; the rest is slow."""
        if self._rest:
            self._rest -= 1
            slow.append(block)
            return
        todo, work, left = [block], 0, 0
        searched: set[str] = set()
        while todo:
            rows = todo.pop()
            if len(rows) <= _FEW or work > _MOST_WORK * len(block):
                slow.append(rows)
                left += len(rows)
                continue
            found = blocks.read(_taken(bodies, rows))
            if not isinstance(found, Failure):
                values, doubtful = found
                work += len(rows)
                sound = ~doubtful
                if doubtful.any():
                    slow.append(rows[doubtful])
                    rows, values = rows[sound], values.filter(pa.array(sound))
                fast.append((rows, values))
                continue
            row = found.row if found.row is not None and found.row < len(rows) else None
            work += len(rows) if row is None else row + 1
            how = "stops" if row is not None else "numbers"
            if how not in searched and len(rows) > _PART_ROWS:
                searched.add(how)
                work += len(rows)
                odd, parts = self._without_odd(blocks, bodies, rows, row)
            else:
                odd, parts = _cut(bodies, rows, found)
            slow.append(odd)
            left += len(odd)
            todo += parts
        if len(block) >= _JUDGED and left > len(block) // 2:
            self._rest = _REST_BLOCKS

    def _without_odd(
        self, blocks: JsonBlocks, bodies: pa.BinaryArray, rows: Rows, stop: int | None
    ) -> tuple[Rows, list[Rows]]:
        """Return the rows that the fast way does not read, and the others.

        The reader stopped at ``stop``, or at a number that it did not take, None. Where too many
        are odd all are.
        """
        taken = _taken(bodies, rows)
        odd = np.zeros(len(rows), np.bool_)
        if stop is not None:
            odd[blocks.odd_rows(taken, stop)] = True
        elif self._suspects is not None:
            odd |= self._suspects.rows(taken).to_numpy(zero_copy_only=False)
        if odd.sum() > _ODD_SHARE * len(rows):
            return (rows, []) if stop is not None else (rows[:0], _parts(rows))
        return rows[odd], [rows[~odd]] if odd.any() else _parts(rows)

    def _with_slow(
        self, bodies: pa.BinaryArray, fast: list[tuple[Rows, pa.Array]], slow: Rows
    ) -> DecodedBodies:
        pieces = list(fast)
        reasons: dict[int, str] = {}
        start, size, values = 0, 0, list[dict[str, Any] | None]()
        for place, row in enumerate(slow.tolist(), 1):
            body = bodies[row].as_py()
            value, reason = self._slow.read(body)
            values.append(value)
            size += len(body)
            if reason is not None:
                reasons[row] = reason
            if size > _ONE_BY_ONE_BYTES or place == len(slow):
                pieces.append((slow[start:place], pa.array(values, self._kind)))
                start, size, values = place, 0, []
        return DecodedBodies(assembled(pieces, self._kind), reasons)


def _blocks(bodies: pa.BinaryArray, rows: Rows) -> Iterator[Rows]:
    """Yield rows in blocks, bounded by number and by bytes."""
    if not len(rows):
        return
    ends = np.cumsum(pc.binary_length(bodies).to_numpy(zero_copy_only=False)[rows], dtype=np.int64)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _JSON_BLOCK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _JSON_BLOCK_ROWS)
        yield rows[start:stop]
        start = stop


def _taken(bodies: pa.BinaryArray, rows: Rows) -> pa.BinaryArray:
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return bodies.slice(int(rows[0]), len(rows))
    return bodies.take(pa.array(rows))


def _cut(bodies: pa.BinaryArray, rows: Rows, failure: Failure) -> tuple[Rows, list[Rows]]:
    """Return the rows that a failure names, and the parts around them to read again."""
    none = rows[:0]
    if failure.row is not None and failure.row < len(rows):
        row = failure.row
        parts = [*_parts(rows[row + 1 :])[::-1], rows[:row]]
        return rows[row : row + 1], [part for part in parts if len(part)]
    if failure.value is not None:
        has = pc.match_substring(_taken(bodies, rows), failure.value)
        mask = has.to_numpy(zero_copy_only=False)
        if mask.any() and not mask.all():
            return rows[mask], _parts(rows[~mask])
    if len(rows) <= 2 * _FEW:
        return rows, []
    half = len(rows) // 2
    return none, [rows[half:], rows[:half]]


def _parts(rows: Rows) -> list[Rows]:
    return [rows[n : n + _PART_ROWS] for n in range(0, len(rows), _PART_ROWS)]

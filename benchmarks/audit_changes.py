"""Known differences, made in a store by changing its bytes: what an audit must find, and no more.

Of a hundred messages one differs. Records are changed where they lie, with the checksums of their
bodies, and the last units of the queues are taken away.
"""

import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.laid_out import RARE_ONE_IN, Shape
from mqstore.audit.found import ALTERED, DOUBLED, NOT_IN_FIRST, NOT_IN_SECOND, Difference
from mqstore.format.consume_queue import UNIT, UNITS_PER_FILE
from mqstore.format.message import CRC_MASK, HEADER, MIN_BLANK_BYTES
from mqstore.format.names import mapped_file_name

Ints: TypeAlias = NDArray[np.int64]
Known: TypeAlias = tuple[str, int, str]
"""Kind; number of the message by its id or by its place; the fields that differ."""

_SHARES = {
    "body": 25_000,
    "flag": 12_500,
    "KEYS": 12_500,
    "overwritten": 12_500,
    "renamed": 10_000,
    "swapped": 22_500,
    "lost": 5_000,
}
"""Records that are changed, of ten million."""
_OF = 10_000_000
QUEUES = 4
_AT_PLACE = ("queue_id", "queue_offset", "physical_offset", "store_timestamp_ms")
_NEW = ord("F")
_DIGITS = 8


def known(found: Difference, by: str) -> Known:
    """Return what a difference is as ``Changes.expected`` says it."""
    if by == "id":
        number = int((found.message_id or "")[-_DIGITS:], 16)
        return found.kind, number, ",".join(found.fields)
    place = found.first or found.second
    assert place is not None
    fields = "" if "UNIQ_KEY" in found.fields else ",".join(found.fields)  # Another message.
    return found.kind, place.queue_offset * QUEUES + place.queue_id, fields


@dataclass(frozen=True, slots=True)
class Changes:
    """The numbers of the messages of each change; ``sources`` are written over others."""

    shape: Shape
    numbers: dict[str, Ints]
    sources: Ints

    @classmethod
    def of(cls, shape: Shape) -> "Changes":
        """Choose the messages, the same ones each time."""
        counts = {name: max(2, share * shape.messages // _OF) for name, share in _SHARES.items()}
        counts["swapped"] -= counts["swapped"] % 2
        lost = counts.pop("lost") // shape.queues * shape.queues
        end = shape.messages - lost
        # Tags stay where the queue says that they are.
        free = np.flatnonzero(np.arange(end) // shape.queues % RARE_ONE_IN != 0)
        free = np.random.default_rng(11).permutation(free)
        numbers = {"lost": np.arange(end, shape.messages)}
        for name, count in counts.items():
            numbers[name], free = free[:count], free[count:]
        return cls(shape, numbers, free[: counts["overwritten"]])

    def expected(self, by: str) -> Counter[Known]:
        """Return what an audit finds by ``offset`` or by ``id``."""
        told = [(ALTERED, n, field) for field in ("body", "flag", "KEYS") for n in self._of(field)]
        told += [(NOT_IN_SECOND, n, "") for n in self._of("lost")]
        if by == "offset":
            others = ("overwritten", "renamed", "swapped")
            return Counter([*told, *((ALTERED, n, "") for name in others for n in self._of(name))])
        gone = (*self._of("overwritten"), *self._of("renamed"))
        told += [(NOT_IN_SECOND, n, "") for n in gone]
        told += [(DOUBLED, n, "") for n in self.sources.tolist()]
        new = _NEW - ord("A") + 10 << 4 * (_DIGITS - 1)
        return Counter([*told, *((NOT_IN_FIRST, n | new, "") for n in self._of("renamed"))])

    def make(self, root: Path, size: int) -> None:
        """Change a store of records of ``size`` bytes."""
        log = _Log(root, self.shape, size)
        half = len(self.numbers["swapped"]) // 2
        pairs = self.numbers["swapped"][:half], self.numbers["swapped"][half:]
        first, second = (log.read(one) for one in pairs)
        log.write(pairs[0], second)
        log.write(pairs[1], first)
        log.write(self.numbers["overwritten"], log.read(self.sources))
        body = HEADER.itemsize
        for name in ("body", "flag", "KEYS", "renamed"):
            records = log.read(self.numbers[name])
            if name == "body":
                records[:, body] ^= 1
                bodies = records[:, body : body + self.shape.body_bytes]
                crc = [zlib.crc32(one.tobytes()) & CRC_MASK for one in bodies]
                _view(records)["body_crc"] = crc
            elif name == "flag":
                _view(records)["flag"] += 1
            else:
                key = b"KEYS\x01order-" if name == "KEYS" else b"UNIQ_KEY\x01" + b"0" * 24
                records[:, records[0].tobytes().rindex(key) + len(key)] = _NEW
            log.write(self.numbers[name], records)
        self._lose(root)

    def _lose(self, root: Path) -> None:
        each = self.shape.each
        for folder in (root / "consumequeue").glob("*/*"):
            for unit in range(each - len(self.numbers["lost"]) // self.shape.queues, each):
                first = unit // UNITS_PER_FILE * UNITS_PER_FILE
                with (folder / mapped_file_name(first * UNIT.itemsize)).open("r+b") as file:
                    file.seek((unit - first) * UNIT.itemsize)
                    file.write(bytes(UNIT.itemsize))

    def _of(self, name: str) -> list[int]:
        found: list[int] = self.numbers[name].tolist()
        return found


class _Log:
    """The records of a CommitLog, all of one size."""

    def __init__(self, root: Path, shape: Shape, size: int) -> None:
        self._per_file = (shape.log_bytes - MIN_BLANK_BYTES) // size
        self._size = size
        paths = sorted((root / "commitlog").iterdir())
        self._files = [np.memmap(path, np.uint8, "r+") for path in paths]

    def read(self, numbers: Ints) -> NDArray[np.uint8]:
        """Return the bytes of records, a row each."""
        return np.stack([self._record(number) for number in numbers.tolist()])

    def write(self, numbers: Ints, records: NDArray[np.uint8]) -> None:
        """Write the content of records to the places of others, which stay what they are."""
        content = records.copy()
        for name in _AT_PLACE:
            _view(content)[name] = _view(self.read(numbers))[name]
        for number, record in zip(numbers.tolist(), content, strict=True):
            self._record(number)[:] = record

    def _record(self, number: int) -> NDArray[np.uint8]:
        file, at = divmod(number, self._per_file)
        return self._files[file][at * self._size : (at + 1) * self._size]


def _view(records: NDArray[np.uint8]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return the headers of records, to be read and changed."""
    return np.ndarray(len(records), HEADER, records, strides=(records.strides[0],))

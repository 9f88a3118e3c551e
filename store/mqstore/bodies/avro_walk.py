"""A walk over the bytes of a datum of Avro: what fastavro would take without a word is refused.

fastavro 1.13 takes a branch or a symbol below 0 from the end of their list, numbers of any length,
and arrays of nulls of any number; it does not tell whether a body goes on behind the datum.

Reference: https://avro.apache.org/docs/1.12.0/specification#binary-encoding.
"""

from collections.abc import Callable
from typing import Final

from mqstore.bodies.avro_types import AvroType

WalkStep = Callable[[bytes, int], int]
"""Returns where a value ends that begins at a place; IndexError where the body ends within it."""
MALFORMED_AVRO: Final = "MALFORMED_AVRO"
_MOST_BYTES_OF_A_NUMBER: Final = 10
_MOST_CONTAINERS: Final = 1_000_000
"""Of records, lists, maps and nulls in lists: each takes memory, and some take no byte."""


class Walk:
    """Checks data of one schema."""

    def __init__(self, kind: AvroType) -> None:
        self._containers = 0
        self._step = self._of(kind)

    def check(self, body: bytes, start: int) -> None:
        """Raise ValueError with the reason where a body is no datum from ``start`` to its end."""
        self._containers = 0
        try:
            end = self._step(body, start)
        except IndexError:
            raise ValueError(f"{MALFORMED_AVRO}: the body ends within a value") from None
        if end != len(body):
            raise ValueError(
                f"{MALFORMED_AVRO}: {len(body) - end:,} bytes lie behind the last value"
            )

    def _of(self, kind: AvroType) -> WalkStep:
        written = kind.written
        if written == "record":
            return self._record([self._of(inner) for _, inner in kind.inner])
        if written == "union":
            return _union([self._of(inner) for _, inner in kind.inner])
        if written in {"array", "map"}:
            of_value = self._of(kind.values)
            counted = kind.values.written in {"null", "fixed"}
            return self._blocks(of_value, with_key=written == "map", counted=counted)
        if written == "enum":
            return _enum(kind.size)
        fixed = {"null": 0, "float": 4, "double": 8, "fixed": kind.size}
        if written in fixed:
            return _fixed(fixed[written])
        return {"boolean": _boolean, "int": _skip_long, "long": _skip_long}.get(written, _text)

    def _record(self, steps: list[WalkStep]) -> WalkStep:
        def step(body: bytes, at: int) -> int:
            self._add(1)
            for of_field in steps:
                at = of_field(body, at)
            return at

        return step

    def _blocks(self, of_value: WalkStep, *, with_key: bool, counted: bool) -> WalkStep:
        def step(body: bytes, at: int) -> int:
            self._add(1)
            while True:
                count, at = read_long(body, at)
                if count == 0:
                    return at
                if count < 0:
                    count, at = -count, _skip_long(body, at)
                if counted:
                    self._add(count)
                for _ in range(count):
                    if with_key:
                        at = _text(body, at)
                    at = of_value(body, at)

        return step

    def _add(self, count: int) -> None:
        self._containers += count
        if self._containers > _MOST_CONTAINERS:
            raise ValueError(f"TOO_MANY_VALUES: more than {_MOST_CONTAINERS:,} records and lists")


def read_long(body: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number of 64 bits, and where it ends; raises ValueError, IndexError."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 0x7F, 7
    for place in range(at + 1, at + _MOST_BYTES_OF_A_NUMBER):
        byte = body[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise ValueError(f"{MALFORMED_AVRO}: a number of more than 64 bits at byte {at}")


def _skip_long(body: bytes, at: int) -> int:
    return at + 1 if body[at] < 0x80 else read_long(body, at)[1]


def _text(body: bytes, at: int) -> int:
    start = at
    byte = body[at]
    length, at = (byte >> 1, at + 1) if byte < 0x80 and not byte & 1 else read_long(body, at)
    if length < 0:
        raise ValueError(f"{MALFORMED_AVRO}: a length below 0 at byte {start}")
    if at + length > len(body):
        raise IndexError
    return at + length


def _boolean(body: bytes, at: int) -> int:
    if body[at] > 1:
        raise ValueError(f"{MALFORMED_AVRO}: a boolean of {body[at]} at byte {at}")
    return at + 1


def _fixed(size: int) -> WalkStep:
    def step(body: bytes, at: int) -> int:
        if at + size > len(body):
            raise IndexError
        return at + size

    return step


def _enum(symbols: int) -> WalkStep:
    def step(body: bytes, at: int) -> int:
        number, end = read_long(body, at)
        if not 0 <= number < symbols:
            raise ValueError(f"{MALFORMED_AVRO}: symbol {number} of {symbols} at byte {at}")
        return end

    return step


def _union(steps: list[WalkStep]) -> WalkStep:
    def step(body: bytes, at: int) -> int:
        number, end = read_long(body, at)
        if not 0 <= number < len(steps):
            raise ValueError(f"{MALFORMED_AVRO}: branch {number} of {len(steps)} at byte {at}")
        return steps[number](body, end)

    return step

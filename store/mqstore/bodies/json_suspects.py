"""Which bodies of JSON may have a number that its column does not take, by a pattern of text.

Arrow's reader does not say in which row such a number is. The pattern finds more than these: what
it finds is read one by one.
"""

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_MOST_SUSPECTS: Final = 500


class SuspectNumbers:
    """Finds bodies of a type with such a number."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    @classmethod
    def of(cls, kind: pa.DataType) -> "SuspectNumbers | None":
        """Return what finds bodies of a struct; None where it has no such column, or too many."""
        parts = [_pattern(name, leaf) for name, leaf in _leaves(kind)]
        return cls("|".join(parts)) if 0 < len(parts) <= _MOST_SUSPECTS else None

    def rows(self, bodies: pa.BinaryArray) -> pa.BooleanArray:
        """Return which bodies may have such a number."""
        suspects: pa.BooleanArray = pc.match_substring_regex(bodies, self._pattern)
        return suspects


def _leaves(kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the whole numbers and decimals of a type, with the name of their field."""
    for field in kind:
        inner = field.type
        while pa.types.is_list(inner):
            inner = inner.value_type
        if pa.types.is_struct(inner):
            yield from _leaves(inner)
        elif inner in _BITS or pa.types.is_decimal(inner):
            yield field.name, field.type


def _pattern(name: str, kind: pa.DataType) -> str:
    before = f'"{re.escape(name)}"\\s*:\\s*'
    if pa.types.is_list(kind):
        before += r"\[[^{}]*"
        while pa.types.is_list(kind):
            kind = kind.value_type
    if kind in _BITS:
        return rf"{before}-?(?:{_above(2 ** (_BITS[kind] - 1) - 1)}|\d+[.eE])"
    whole, behind = kind.precision - kind.scale + 1, kind.scale + 1
    return rf'{before}"?-?(?:\d{{{whole},}}|\d*\.\d{{{behind},}}|[\d.]+[eE])'


def _above(limit: int) -> str:
    """Return the pattern of digits of the numbers above a limit."""
    digits = str(limit)
    larger = [
        rf"{digits[:place]}[{int(digit) + 1}-9]\d{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return "|".join([rf"\d{{{len(digits) + 1},}}", *larger])

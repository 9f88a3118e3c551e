"""What kinds of values the fields of bodies have, and the types that hold all of them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC as UTC_ZONE
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.ddl import UTC, list_of, struct_of
from mqstore.bodies.json_values import Fraction, Integer
from mqstore.bodies.times import day, moment

_DATE_FORM: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME_FORM: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_HAS_ZONE: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)\Z", re.ASCII)
_SURE_DIGITS: Final = 15
"""Significant digits that a DOUBLE keeps."""
_MANY_FIELDS: Final = 200
_RARE_KEY: Final = 0.05
_NAMED_KEYS: Final = 3
_DEPTH_LOOKED_AT: Final = 40
_ENOUGH: Final = 10
_LIKE_MILLISECONDS: Final = (1_000_000_000_000, 4_000_000_000_000)
_LIKE_SECONDS: Final = (1_000_000_000, 4_000_000_000)


def kind_of(value: object) -> str:
    """Return the kind of a value of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Integer):
        return _kind_of_integer(value)
    if isinstance(value, Fraction):
        return "double"
    if isinstance(value, str):
        return _kind_of_text(value)
    return "list" if isinstance(value, list) else "struct"


def _kind_of_integer(text: str) -> str:
    digits = len(text.lstrip("-"))
    if digits <= 18 or (digits == 19 and -(2**63) <= int(text) < 2**63):
        return "bigint"
    return "decimal" if digits <= 38 else "number"


def _kind_of_text(text: str) -> str:
    try:
        if _DATE_FORM.fullmatch(text):
            day(text)
            return "date"
        if _TIME_FORM.fullmatch(text):
            moment(text, UTC_ZONE)
            return "timestamp"
    except (ValueError, OverflowError):
        pass
    return "string"


@dataclass(slots=True)
class Values:
    """The values of one field: how many of each kind, and what lies within them."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, "Values"] = field(default_factory=dict)
    items: "Values | None" = None
    first: dict[str, int] = field(default_factory=dict)
    """The storeTimestamp, in ms, of the first value of each kind."""
    last: dict[str, int] = field(default_factory=dict)
    without_zone: int = 0
    digits: int = 0
    numbers: tuple[int, int] | None = None

    def add(self, value: object, time: int, depth: int = 0) -> None:
        """Add a value of a body that was stored at ``time``, in ms."""
        kind = "text" if depth > _DEPTH_LOOKED_AT else kind_of(value)
        self.kinds[kind] += 1
        self.first[kind] = min(time, self.first.get(kind, time))
        self.last[kind] = max(time, self.last.get(kind, time))
        if isinstance(value, dict) and kind == "struct":
            for name, inner in value.items():
                self.fields.setdefault(name, Values()).add(inner, time, depth + 1)
        elif isinstance(value, list) and kind == "list":
            self.items = self.items or Values()
            for inner in value:
                self.items.add(inner, time, depth + 1)
        elif kind == "timestamp":
            self.without_zone += not _HAS_ZONE.search(str(value)[10:])
        elif kind == "double":
            mantissa = re.split("[eE]", str(value))[0].replace(".", "").strip("-0")
            self.digits = max(self.digits, len(mantissa))
        elif kind == "bigint":
            low, high = self.numbers or (int(str(value)), int(str(value)))
            self.numbers = min(low, int(str(value))), max(high, int(str(value)))

    @property
    def count(self) -> int:
        """How many values, null among them."""
        return self.kinds.total()

    def type(self) -> pa.DataType:
        """Return the type that takes every value."""
        kinds = {kind for kind in self.kinds if kind != "null"}
        if kinds == {"struct"} and self.fields:
            if self.is_map:
                return pa.map_(pa.string(), self._together().type())
            return struct_of([pa.field(n, f.type()) for n, f in self.fields.items()])
        if kinds == {"list"}:
            return list_of(self.items.type() if self.items and self.items.count else pa.string())
        simple: tuple[tuple[set[str], pa.DataType], ...] = (
            ({"boolean"}, pa.bool_()),
            ({"bigint"}, pa.int64()),
            ({"bigint", "decimal"}, pa.decimal128(38, 0)),
            ({"bigint", "decimal", "double"}, pa.float64()),
            ({"date"}, pa.date32()),
            ({"date", "timestamp"}, UTC),
        )
        fitting = (kind for among, kind in simple if kinds and kinds <= among)
        return next(fitting, pa.string())

    @property
    def is_map(self) -> bool:
        """Tell whether names are keys rather than fields: many of them, each rare."""
        seen = self.kinds["struct"]
        return len(self.fields) > _MANY_FIELDS and all(
            inner.count <= max(1, _RARE_KEY * seen) for inner in self.fields.values()
        )

    def _together(self) -> "Values":
        """Return the values of all fields as those of one."""
        values = Values()
        for inner in self.fields.values():
            _merge(values, inner)
        return values

    def remarks(self) -> Iterator[str]:
        """Yield what is unsure about the type."""
        kinds = {kind: n for kind, n in self.kinds.items() if kind != "null"}
        if set(kinds) == {"struct"} and self.is_map:
            yield f"{len(self.fields):,} names, each rare: MAP, which is read more slowly"
        yield from self._of_text(kinds) if self.type() == pa.string() else self._of_numbers(kinds)

    def _of_text(self, kinds: Mapping[str, int]) -> Iterator[str]:
        if not kinds:
            yield f"only null in {self.count:,} bodies: STRING"
        elif set(kinds) == {"struct"}:
            yield "only empty objects: STRING, the text"
        elif not set(kinds) <= {"string", "date", "timestamp", "text"}:
            mixed = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))
            yield f"mixed ({mixed}): STRING, the text"

    def _of_numbers(self, kinds: Mapping[str, int]) -> Iterator[str]:
        kind = self.type()
        if pa.types.is_list(kind) and not (self.items and self.items.count):
            yield "only empty lists: ARRAY<STRING>"
        if kind == UTC and self.without_zone:
            yield f"{self.without_zone:,} texts without a zone: of bodyTimeZone"
        if kind == pa.decimal128(38, 0):
            yield "above 2^63: DECIMAL(38,0)"
        if kind == pa.float64() and (self.digits > _SURE_DIGITS or kinds.get("decimal")):
            yield "more digits than a DOUBLE keeps: name a DECIMAL"
        if kind == pa.int64() and self.numbers is not None and self.count >= _ENOUGH:
            for (low, high), unit in ((_LIKE_MILLISECONDS, "ms"), (_LIKE_SECONDS, "s")):
                if low <= self.numbers[0] and self.numbers[1] < high:
                    yield f"may be a time: TIMESTAMP with bodyTimestampUnit={unit} reads it"


def _merge(found: Values, other: Values) -> None:
    found.kinds += other.kinds
    if other.kinds["null"]:
        found.kinds["null"] = max(found.kinds["null"], other.kinds["null"])
    for name, inner in other.fields.items():
        _merge(found.fields.setdefault(name, Values()), inner)
    if other.items is not None:
        found.items = found.items or Values()
        _merge(found.items, other.items)


def walked(values: Values, path: str = "") -> Iterator[tuple[str, Values]]:
    """Yield each field with its path, those of a map left out."""
    for name, inner in values.fields.items():
        member_path = f"{path}.{name}" if path else name
        yield member_path, inner
        yield from _within(inner, member_path)


def _within(values: Values, path: str) -> Iterator[tuple[str, Values]]:
    if pa.types.is_struct(values.type()):
        yield from walked(values, path)
    elif values.items is not None and set(values.kinds) <= {"list", "null"}:
        yield f"{path}[]", values.items
        yield from _within(values.items, f"{path}[]")


def some(names: Any, most: int = _NAMED_KEYS) -> str:
    """Return a few names, and how many more there are."""
    known = sorted(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more

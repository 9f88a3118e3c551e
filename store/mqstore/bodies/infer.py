"""A schema for bodies of JSON, of a sample: what it is, how many fit, and what is not sure."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.change_marks import CANAL_PACKET, PACKET, change_of
from mqstore.bodies.ddl import to_ddl, type_ddl
from mqstore.bodies.json_schema import to_json_schema
from mqstore.bodies.json_values import parsed
from mqstore.bodies.kinds import Values, some, walked

_LISTED_FIELDS: Final = 2_000
_MOST_SHAPES: Final = 20
_RARE_FIELD: Final = 0.01
_COMMON_PART: Final = 0.5
_DRIFT: Final = 0.05
"""The part of a sample's time at its ends in which a field may be missing by chance."""


@dataclass(frozen=True, slots=True)
class SampledBody:
    """A body of the sample, with the tag and the storeTimestamp (ms) of its message."""

    body: bytes
    tag: str | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class FieldReport:
    """One field: its path, its type in DDL, the share of the bodies that have it, since when.

    ``share`` is of the bodies that could be read, 0 to 1. ``since`` and ``until`` are
    storeTimestamps in ms: where a field begins or ends within the sample, else None.
    """

    name: str
    type: str
    share: float
    since: int | None
    until: int | None
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BodyShape:
    """Bodies of one tag: how many, and the fields that no other tag has."""

    tag: str | None
    bodies: int
    own_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BodyReport:
    """What a sample says about the bodies of a topic.

    ``ddl`` is a schema that ``bodySchema`` and Spark's from_json take, empty where there is none;
    ``sampled`` bodies were read, ``empty`` of them are blank, ``bad`` counts the reasons of others.
    ``changes`` counts messages of changes of a database by format and table.
    """

    type: pa.DataType | None
    sampled: int
    empty: int
    fit: int
    bad: dict[str, int]
    fields: tuple[FieldReport, ...]
    shapes: tuple[BodyShape, ...]
    changes: dict[str, dict[str, int]]
    unsure: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """The schema as DDL."""
        return "" if self.type is None else to_ddl(self.type)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema as JSON Schema; empty where there is none."""
        return {} if self.type is None else to_json_schema(self.type)


@dataclass(slots=True)
class _GatheredBodies:
    """What is counted while bodies are read."""

    root: Values = field(default_factory=Values)
    empty: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    tags: dict[str | None, Counter[str]] = field(default_factory=dict)
    per_tag: Counter[str | None] = field(default_factory=Counter)
    changes: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, sampled: SampledBody) -> None:
        try:
            _, value = parsed(sampled.body)
        except ValueError as error:
            if sampled.body.startswith(PACKET):
                self.changes.setdefault(CANAL_PACKET, Counter())["?"] += 1
            self.bad[str(error).split(":", 1)[0]] += 1
            return
        if value is None:
            self.empty += 1
            return
        self.root.add(value, sampled.time_ms)
        self.per_tag[sampled.tag] += 1
        self.tags.setdefault(sampled.tag, Counter()).update(value.keys())
        change = change_of(value)
        if change is not None:
            self.changes.setdefault(change[0], Counter())[change[1]] += 1


def infer(bodies: Sequence[SampledBody]) -> BodyReport:
    """Return the report of a sample of bodies of JSON."""
    gathered = _GatheredBodies()
    for body in bodies:
        gathered.add(body)
    root = gathered.root
    objects = root.count
    kind = root.type() if root.fields else None
    if kind is not None and not pa.types.is_struct(kind):
        kind = None  # Names that are keys: one field cannot stand for them.
    times = [body.time_ms for body in bodies]
    span = (min(times), max(times)) if times else (0, 0)
    listed = list(walked(root))[:_LISTED_FIELDS]
    fields = tuple(_report(path, values, objects, span) for path, values in listed)
    changes = {name: dict(tables) for name, tables in gathered.changes.items()}
    fit = 0 if kind is None else objects + gathered.empty
    return BodyReport(
        kind, len(bodies), gathered.empty, fit, dict(gathered.bad), fields,
        _shapes(gathered), changes, tuple(_unsure(gathered, fields)),
    )  # fmt: skip


def _report(path: str, values: Values, objects: int, span: tuple[int, int]) -> FieldReport:
    since, until = _drift(values, span)
    share = min(1.0, values.count / objects) if objects else 0.0
    remarks = [*values.remarks(), *_changed(values, span)]
    if "." not in path and "[]" not in path and share < _RARE_FIELD:
        remarks.append(f"in {values.count:,} of {objects:,} bodies")
    return FieldReport(path, type_ddl(values.type()), share, since, until, tuple(remarks))


def _drift(values: Values, span: tuple[int, int]) -> tuple[int | None, int | None]:
    """Return since when and until when a field is there, where that is not the whole sample."""
    if not values.first:  # The elements of lists that are all empty.
        return None, None
    edge = (span[1] - span[0]) * _DRIFT
    first, last = min(values.first.values()), max(values.last.values())
    return (first if first > span[0] + edge else None, last if last < span[1] - edge else None)


def _changed(values: Values, span: tuple[int, int]) -> list[str]:
    """Return the kinds that a field has since later only."""
    kinds = [kind for kind in values.kinds if kind != "null"]
    edge = (span[1] - span[0]) * _DRIFT
    if len(kinds) < 2:
        return []
    begin = min(values.first[kind] for kind in kinds)
    return [
        f"{kind} since {instant(values.first[kind])}"
        for kind in kinds
        if values.first[kind] > begin + edge
    ]


def instant(time_ms: int) -> str:
    """Return a storeTimestamp as ISO text to the second, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def _shapes(found: _GatheredBodies) -> tuple[BodyShape, ...]:
    """Return the tags, if their bodies have different fields."""
    tags = found.tags
    if len(tags) < 2:
        return ()
    several = [set(names) for names in tags.values()]
    common = set.intersection(*several)
    if all(len(common) > _COMMON_PART * len(names) for names in several):
        return ()
    shapes = []
    for tag, count in found.per_tag.most_common(_MOST_SHAPES):
        others = {name for other, names in tags.items() if other != tag for name in names}
        shapes.append(BodyShape(tag, count, tuple(sorted(set(tags[tag]) - others))))
    return tuple(shapes)


def _unsure(found: _GatheredBodies, fields: Sequence[FieldReport]) -> list[str]:
    notes = [f"{one.name}: {remark}" for one in fields for remark in one.remarks]
    for one in fields:
        if one.since is not None:
            notes.append(f"{one.name}: first seen at {instant(one.since)}")
        if one.until is not None:
            notes.append(f"{one.name}: last seen at {instant(one.until)}")
    lower = Counter(name.lower() for name in found.root.fields)
    notes += [
        f"{name}: another field differs by its case only"
        for name in found.root.fields
        if lower[name.lower()] > 1
    ]
    shapes = _shapes(found)
    if shapes:
        tags = some([str(shape.tag) for shape in shapes])
        notes.append(f"bodies differ by tag ({tags}): read them apart, by the option tags")
    return notes

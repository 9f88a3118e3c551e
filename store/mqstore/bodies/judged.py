"""How the bodies of a sample fit a schema: how many, why others do not, which fields never come."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.ddl import type_ddl
from mqstore.bodies.infer import BodyReport, FieldReport, SampledBody, infer
from mqstore.bodies.kinds import some
from mqstore.bodies.schema_text import BodySchema
from mqstore.bodies.settings import (
    JSON_BODY,
    PROTOBUF_BODY,
    BodyOptions,
    body_type,
    decoder_of,
    needs_schema,
)

_JUDGED_AT_ONCE: Final = 1_000
_NAMED_FIELDS: Final = 5


def report_of(options: BodyOptions, bodies: Sequence[SampledBody]) -> BodyReport:
    """Return what a sample says: of the schema of the options, or of one that is taken of it."""
    if options.body != JSON_BODY:
        return _given(options, BodyReport(None, len(bodies), 0, 0, {}, (), (), {}), bodies)
    report = infer(bodies)
    if not needs_schema(options):
        return _given(options, report, bodies)
    if not report.ddl:
        return report
    taken = BodySchema(report.ddl, report.ddl)
    fit, bad, _ = _decoded(replace(options, body_schema=taken), bodies)
    return replace(report, fit=fit, bad=bad)


def _given(options: BodyOptions, found: BodyReport, bodies: Sequence[SampledBody]) -> BodyReport:
    """Return the report of a schema that was given."""
    fit, bad, present = _decoded(options, bodies)
    kind = body_type(options)
    count = max(1, len(bodies))
    fields = tuple(
        FieldReport(f.name, type_ddl(f.type), present[f.name] / count, None, None, ()) for f in kind
    )
    missing = [field.name for field in fields if not field.share]
    notes = []
    if len(missing) == len(fields):
        notes.append(f"0 of {len(fields)} fields ever present: these bodies are of another schema")
    elif missing:
        notes.append(f"never present: {some(missing, _NAMED_FIELDS)}")
    known = {field.name for field in fields}
    more = [f.name for f in found.fields if f.name not in known and not {".", "["} & set(f.name)]
    if more:
        notes.append(f"not in the schema: {some(more, _NAMED_FIELDS)}")
    return replace(
        found, type=kind, fit=fit, bad=bad, fields=fields, unsure=(*notes, *_of_shapes(found))
    )


def _of_shapes(found: BodyReport) -> list[str]:
    return [note for note in found.unsure if note.startswith("bodies differ by tag")]


def _decoded(
    options: BodyOptions, bodies: Sequence[SampledBody]
) -> tuple[int, dict[str, int], Counter[str]]:
    """Return how many bodies fit, the conditions of others, and how often a field is not null."""
    import pyarrow.compute as pc  # noqa: PLC0415 - reads start without it

    decoder = decoder_of(options)
    bad: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for start in range(0, len(bodies), _JUDGED_AT_ONCE):
        some_bodies = [sampled.body for sampled in bodies[start : start + _JUDGED_AT_ONCE]]
        decoded = decoder.decode(pa.array(some_bodies, pa.binary()))
        bad.update(
            reason.split(":", 1)[0].split(" at ", 1)[0] for reason in decoded.reasons.values()
        )
        values: Any = decoded.values
        for place, field in enumerate(values.type):
            child = values.field(place)
            valid = pc.and_(values.is_valid(), child.is_valid())
            if options.body == PROTOBUF_BODY and pa.types.is_nested(child.type):
                valid = pc.and_(valid, _is_there(child))
            present[field.name] += pc.sum(valid).as_py() or 0
    return len(bodies) - bad.total(), dict(bad), present


def _is_there(child: pa.Array) -> pa.Array:
    """Return where a field of Protobuf has a value: a list or a map that is empty has no byte."""
    import pyarrow.compute as pc  # noqa: PLC0415 - reads start without it

    if pa.types.is_struct(child.type):
        return child.is_valid()
    ends = pc.fill_null(child.offsets.cast(pa.int64()), 0)
    return pc.greater(ends[1:], ends[:-1])

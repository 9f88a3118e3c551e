"""The schema of the bodies of a topic, by a sample that is spread over all of it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from mqstore.bodies.infer import BodyReport, SampledBody
from mqstore.bodies.judged import report_of
from mqstore.bodies.kinds import some
from mqstore.bodies.schema_text import SCHEMA, BodySchema
from mqstore.bodies.settings import BINARY_BODY, STRUCTS, body_type, needs_schema
from mqstore.changes.change import ChangeMessage
from mqstore.changes.formats import AUTO_FORMAT, CHANGE_FORMATS, decoded
from mqstore.changes.settings import context_of, needs_types, row_type
from mqstore.changes.table_schemas import CHANGES_SCHEMA, TableSchema, TableSchemas
from mqstore.errors import InvalidOptionError, shown
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request.chosen_queues import message_slices, open_stores
from mqstore.request.read_options import MESSAGES, ReadOptions

_LOG = logging.getLogger(__name__)
SAMPLE: Final = 1_000
_STRETCHES: Final = 8
"""In how many places of each queue the sample is taken."""
_MOST_SLICES: Final = 400
_SAMPLED_COLUMNS: Final = ("body", "tags", "storeTimestamp")
_TYPES_TAKEN: Final = (
    "changesSchema=message: the newest of %d sampled messages have the columns below, which this "
    "read takes. Write them as changesSchema, so that another read has the same ones:\n%s"
)
_SCHEMA_TAKEN: Final = (
    "bodySchema was not given: %d of %d sampled bodies fit the schema below, which this read "
    "takes. Set it, so that another read has the same columns:\n%s"
)


def sampled(options: ReadOptions, count: int) -> list[SampledBody]:
    """Return about ``count`` bodies of the messages that options choose, spread over each queue.

    Raises what planning and reading raise.
    """
    stored = replace(options, body=BINARY_BODY, body_schema=None, changes=None)
    settings = ScanSettings.of(stored, _SAMPLED_COLUMNS)
    with closing(open_stores(options)) as stores:
        slices = message_slices(stored, stores)
    found = []
    for batch in scan(spread(slices, count), settings):
        bodies, tags, times = (batch.column(name) for name in _SAMPLED_COLUMNS)
        milliseconds = times.cast("int64").to_numpy() // 1000
        for body, tag, time in zip(bodies, tags, milliseconds.tolist(), strict=True):
            found.append(SampledBody(body.as_py(), tag.as_py(), time))
    return found


def spread(slices: Sequence[QueueSlice], count: int) -> list[QueueSlice]:
    """Return stretches of slices with about ``count`` messages, from their first to their last."""
    total = sum(piece.end - piece.start for piece in slices)
    if total <= count:
        return list(slices)
    kept = sorted(slices, key=lambda piece: piece.start - piece.end)[:_MOST_SLICES]
    total = sum(piece.end - piece.start for piece in kept)
    return [part for piece in kept for part in _stretches(piece, count, total)]


def _stretches(piece: QueueSlice, count: int, total: int) -> Iterator[QueueSlice]:
    held = piece.end - piece.start
    share = min(held, max(2, round(count * held / total)))
    number = min(_STRETCHES, share)
    length = -(-share // number)
    if number * length >= held:
        yield piece
        return
    for place in range(number):
        start = piece.start + (held - length) * place // max(1, number - 1)
        yield replace(piece, start=start, end=start + length, weight=None)


def schema_report(options: ReadOptions, count: int) -> BodyReport:
    """Return what ``count`` bodies say about a schema: that of the options, or one of the sample.

    Raises InvalidOptionError for bodies that have no schema, and as ``sampled``.
    """
    if options.body not in STRUCTS:
        expected = f"must be one of {', '.join(STRUCTS)}: bodies of {options.body} have no schema"
        raise InvalidOptionError("body", options.body, expected)
    if not needs_schema(options):
        body_type(options)  # Raises: before the place is read.
    return report_of(options, sampled(options, count))


def with_schema(options: ReadOptions) -> ReadOptions:
    """Return the options with a schema of bodies, where they need one and have none.

    It is taken of a sample, and a warning says which; so are the types of a row of changes, with
    ``changesSchema=message``. Opens the place. Raises InvalidOptionError where the sample has no
    object, or no types of one table.
    """
    if needs_types(options):
        return replace(options, changes_schema=_types_of(options))
    if options.table != MESSAGES or not needs_schema(options):
        return options
    bodies = sampled(options, SAMPLE)
    report = report_of(options, bodies)
    if not report.ddl:
        expected = (
            f"cannot be taken of the bodies: {len(bodies):,} were looked at, and none is an object "
            "of JSON with fields; write the schema"
        )
        raise InvalidOptionError(SCHEMA, "", expected)
    _LOG.warning(_SCHEMA_TAKEN, report.fit, report.sampled, shown(report.ddl, 100_000))
    return replace(options, body_schema=BodySchema(report.ddl, report.ddl))


def is_sampled(options: ReadOptions) -> bool:
    """Tell whether ``with_schema`` takes a sample."""
    return needs_types(options) or needs_schema(options)


def check_known(options: ReadOptions) -> None:
    """Raise InvalidOptionError where the type of a column is known by a sample only."""
    if needs_types(options):
        row_type(options)
    elif needs_schema(options):
        body_type(options)


def _types_of(options: ReadOptions) -> TableSchemas:
    """Return the table of the changes in a sample, by the types that the messages have."""
    decode, context = CHANGE_FORMATS[options.changes or AUTO_FORMAT], context_of(options)
    tables: dict[tuple[str | None, str | None], TableSchema] = {}
    bodies = sorted(sampled(options, SAMPLE), key=lambda one: one.time_ms, reverse=True)
    for one in bodies:
        for change in decoded(decode, ChangeMessage(one.body, None, {}), context):
            if change.row is None and change.before is None:
                continue
            name = (change.database, change.table)
            known = tables.get(name, TableSchema({}, change.keys, *name))
            # The newest message comes first: its type of a column counts.
            tables[name] = replace(known, columns={**change.types, **known.columns})
    if len(tables) != 1:
        names = some([f"{database}.{table}" for database, table in sorted(tables, key=str)], 5)
        has = f"changes of {len(tables)} tables ({names})" if tables else "no change of a row"
        expected = f"takes the types of one table, and the sample has {has}: write its columns"
        raise InvalidOptionError(CHANGES_SCHEMA, "message", expected)
    [table] = tables.values()
    if not table.columns:
        expected = (
            "takes the types that messages have, and these have none (Debezium without schemas): "
            "write the columns of the table, or its CREATE TABLE"
        )
        raise InvalidOptionError(CHANGES_SCHEMA, "message", expected)
    text = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in table.columns.items())
    _LOG.warning(_TYPES_TAKEN, len(bodies), shown(text, 100_000))
    return TableSchemas(text, (table,))

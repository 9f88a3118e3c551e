"""The options of change rows, and those of bodies that they take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.bodies.settings import BODY_OPTIONS, BodyOptions, check_formats
from mqstore.bodies.times import zone_of
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS
from mqstore.changes.table_schemas import CHANGES_SCHEMA, TableSchemas, table_schemas
from mqstore.errors import InvalidOptionError
from mqstore.options.option import one_of, option, options_of

CHANGES: Final = "changes"
_OF_BODIES: Final = ("body_mode", "corrupt_column", "body_time_zone")
"""The options of bodies that change rows take, by field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(BodyOptions):
    """The options that say how messages become rows: a message, or the changes in it."""

    changes: str | None = option(CHANGES, one_of(*CHANGE_FORMATS))
    changes_schema: TableSchemas | None = option(CHANGES_SCHEMA, table_schemas)


CHANGE_OPTIONS: Final = options_of(ChangeOptions)
"""The options of bodies and of changes, by field."""
PLAIN_MESSAGES: Final = ChangeOptions()
"""Rows are messages, and their bodies bytes."""


def check_changes(options: ChangeOptions, given: Mapping[str, str]) -> None:
    """Raise InvalidOptionError for an option that rows, messages or changes, do not take.

    ``given`` has the options that were set, by name, as typed.
    """
    if options.changes is None:
        if CHANGES_SCHEMA in given:
            expected = f"is for changes={'|'.join(CHANGE_FORMATS)}, which is not set"
            raise InvalidOptionError(CHANGES_SCHEMA, given[CHANGES_SCHEMA], expected)
        check_formats(options, given)
        return
    for field, one in BODY_OPTIONS.items():
        if one.name in given and field not in _OF_BODIES:
            expected = f"is not together with changes={options.changes}, which decodes the body"
            raise InvalidOptionError(one.name, given[one.name], expected)


def context_of(options: ChangeOptions) -> DecodeContext:
    """Return what decoders are given besides a message."""
    return DecodeContext(options.changes_schema, zone_of(options.body_time_zone))


def needs_types(options: ChangeOptions) -> bool:
    """Tell whether the types of rows are to be taken of a sample: ``changesSchema=message``."""
    schemas = options.changes_schema
    return options.changes is not None and schemas is not None and not schemas.tables


def row_type(options: ChangeOptions) -> pa.DataType | None:
    """Return the struct of a row where one table's schema is known, None where rows are maps.

    Raises InvalidOptionError for the word ``message`` of changesSchema, which nobody has replaced
    by the types of a sample.
    """
    schemas = options.changes_schema
    if schemas is None:
        return None
    if not schemas.tables:
        raise InvalidOptionError(
            CHANGES_SCHEMA,
            schemas.source,
            "is for a batch, which takes the types of a sample: each start of a stream has the "
            "same columns, so write the table's columns here",
        )
    return None if schemas.only is None else schemas.only.arrow

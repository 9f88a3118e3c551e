"""The columns of a table that is there, beside those of the messages that go to it.

As Spark appends by name: a column that a user added to the table gets its default, or null. A
column of the messages that the table lacks, or has with another type, is an error that names the
statement to run. Names are compared without regard to case, as Spark does.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.types import StructField, StructType

from mqstore.errors import InvalidOptionError

_DEFAULT: Final = "CURRENT_DEFAULT"
"""Where the default of a column is: ResolveDefaultColumns#CURRENT_DEFAULT_COLUMN_METADATA_KEY."""


def check_columns(where: str, name: str, there: StructType, ours: StructType, renames: str) -> None:
    """Raise InvalidOptionError where rows of ``ours`` cannot be appended to the table by name.

    ``where`` is the table as it was given, ``name`` as SQL has it, and ``renames`` the statement
    that it needs before a column can be renamed; empty where it needs none.
    """
    problems = list(_problems(name, there, ours, renames))
    if problems:
        raise InvalidOptionError("--to", where, "; ".join(problems))


def fitted(rows: DataFrame, there: StructType) -> DataFrame:
    """Return rows with the columns of the table: those that a user added have default or null."""
    ours = {name.lower() for name in rows.columns}
    return rows.select(
        *(col(quoted(f.name)) if f.name.lower() in ours else _value(f) for f in there)
    )


def _value(field: StructField) -> Column:
    default = field.metadata.get(_DEFAULT)
    value = lit(None) if default is None else expr(default)
    return value.cast(field.dataType).alias(field.name)


def _problems(name: str, there: StructType, ours: StructType, renames: str) -> Iterator[str]:
    known = {field.name.lower(): field for field in there}
    missing = [field for field in ours if field.name.lower() not in known]
    if missing:
        added = ", ".join(map(_declared, missing))
        listed = ", ".join(field.name for field in missing)
        yield (
            f"the table lacks {listed}: run ALTER TABLE {name} ADD COLUMNS ({added}), or choose "
            "columns by --option columns=…"
        )
    for field in ours:
        other = known.get(field.name.lower())
        if other is None or other.dataType.simpleString() == field.dataType.simpleString():
            continue
        aside = quoted(f"{other.name}_before")
        before = f"{renames}; " if renames else ""
        yield (
            f"the table has {other.name} as {other.dataType.simpleString()}, the messages as "
            f"{field.dataType.simpleString()}: run {before}ALTER TABLE {name} RENAME COLUMN "
            f"{quoted(other.name)} TO {aside}; ALTER TABLE {name} ADD COLUMNS ({_declared(field)})"
        )
    names = {field.name.lower() for field in ours}
    for field in there:
        if field.name.lower() in names or field.nullable or _DEFAULT in field.metadata:
            continue
        yield (
            f"the column {field.name} of the table is NOT NULL and has no default, and messages "
            f"do not have it: run ALTER TABLE {name} ALTER COLUMN {quoted(field.name)} DROP NOT "
            "NULL"
        )


def _declared(field: StructField) -> str:
    return f"{quoted(field.name)} {field.dataType.simpleString()}"


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return f"`{name.replace('`', '``')}`"

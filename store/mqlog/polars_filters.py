"""The predicate of Polars as a condition of Arrow, which tells what has to be read for it.

A node is known by what Polars calls equal to it: its parts are put together again, by each operator
in turn, until the result is the node. What no operator makes is left out, so the condition passes
at least the rows that the predicate passes; Polars' own filter follows.
"""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import dataset

if TYPE_CHECKING:
    import polars as pl

_COMPARISONS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
_BETWEEN_SIDES: Final[dict[Any, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]]] = {
    "both": (operator.ge, operator.le),
    "left": (operator.ge, operator.lt),
    "right": (operator.gt, operator.le),
    "none": (operator.gt, operator.lt),
}
_MOST_NESTED: Final = 50


def condition_of(predicate: "pl.Expr", schema: pa.Schema) -> dataset.Expression | None:
    """Return a condition that passes all rows that the predicate passes; None if none is known."""
    return _condition(predicate, schema, _MOST_NESTED)


def _condition(node: "pl.Expr", schema: pa.Schema, deep: int) -> dataset.Expression | None:
    parts = node.meta.pop()[::-1]
    if len(parts) == 2 and deep:
        if node.meta.eq(parts[0] & parts[1]):
            known = [_condition(part, schema, deep - 1) for part in parts]
            found = [one for one in known if one is not None]
            return found[0] & found[1] if len(found) == 2 else next(iter(found), None)
        if node.meta.eq(parts[0] | parts[1]):
            left, right = (_condition(part, schema, deep - 1) for part in parts)
            return None if left is None or right is None else left | right
    try:
        return _of_column(node, parts, schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None  # A literal that the column's type does not have.


def _of_column(
    node: "pl.Expr", parts: "list[pl.Expr]", schema: pa.Schema
) -> dataset.Expression | None:
    """Return what a node says of a column beside literals; None if it is another one."""
    names = [part.meta.output_name() for part in parts if part.meta.is_column()]
    if len(names) != 1:
        return None
    field, kind = dataset.field(names[0]), schema.field(names[0]).type
    values = [None if part.meta.is_column() else _values(part, kind) for part in parts]
    if len(parts) == 2 and values[0] is None and node.meta.eq(parts[0].is_in(parts[1])):
        return field.isin(values[1])
    sides = [field if one is None else dataset.scalar(one[0]) for one in values]
    if len(parts) == 2:
        return next(
            (test(*sides) for test in _COMPARISONS if node.meta.eq(test(parts[0], parts[1]))), None
        )
    if len(parts) == 3 and values[0] is None:
        for closed, (from_, to) in _BETWEEN_SIDES.items():
            if node.meta.eq(parts[0].is_between(parts[1], parts[2], closed)):
                return from_(field, sides[1]) & to(field, sides[2])
    return None


def _values(part: "pl.Expr", kind: pa.DataType) -> pa.Array:
    """Return the value or the values of a literal; raises ValueError for another expression."""
    import polars as pl  # noqa: PLC0415 - it asks only where it is installed

    if not part.meta.is_literal():
        raise ValueError("no literal")
    found = pl.select(part).to_series().to_arrow()
    if pa.types.is_large_list(found.type) or pa.types.is_list(found.type):
        found = found.flatten()
    return found.cast(kind)

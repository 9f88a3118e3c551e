"""Columns of a table on a terminal: how a field is shown, and how the columns fit a width."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len

Row: TypeAlias = Mapping[str, object]
Kind: TypeAlias = Literal[
    "text", "number", "count", "bytes", "about bytes", "time", "span", "bar", "status"
]

_STRETCH_LEAST: Final = 24
GAP: Final = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class FieldView:
    """How one field of a row is shown."""

    name: str
    head: str
    kind: Kind = "text"
    rank: int = 0  # 0 stays; the highest is dropped first when the terminal is narrow.
    stretch: bool = False
    wrap: bool = False  # With stretch: several lines, and nothing is cut.
    once: bool = False  # Left blank while it, and such columns before it, repeat the row above.
    style: str = ""


def fitting(columns: Sequence[FieldView], full: Mapping[str, int], width: int) -> list[FieldView]:
    """Return the columns that fit when those with ``stretch`` have their least width."""
    least = {
        column.name: min(full[column.name], _STRETCH_LEAST) if column.stretch else full[column.name]
        for column in columns
    }
    kept = list(columns)
    while _total(kept, least) > width:
        first_to_go = max(kept, key=lambda column: column.rank)
        if first_to_go.rank == 0:
            break  # The columns that must stay are cut.
        kept.remove(first_to_go)
    return kept


def stretched(columns: Sequence[FieldView], full: Mapping[str, int], width: int) -> dict[str, int]:
    """Return the width of each column: its full width, or with ``stretch`` what the rest leaves.

    The widest of those with ``stretch`` is cut first.
    """
    widths = {
        column.name: min(full[column.name], width) if column.stretch else full[column.name]
        for column in columns
    }
    least = {column.name: cell_len(column.head) for column in columns if column.stretch}
    for _ in range(max(_total(columns, widths) - width, 0)):
        cut = [name for name in least if widths[name] > least[name]]
        if not cut:
            break
        widths[max(cut, key=widths.__getitem__)] -= 1
    return widths


def _total(columns: Sequence[FieldView], widths: Mapping[str, int]) -> int:
    return sum(widths[column.name] + GAP for column in columns) - GAP

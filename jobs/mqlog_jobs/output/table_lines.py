"""The lines of a table in a pipe: those that rich would draw, in a twentieth of its time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class LineColumn:
    """The head of a column, its width in cells of a terminal, and the text of each row."""

    head: str
    is_right: bool
    width: int
    texts: Sequence[Text]


def lines_of(columns: Sequence[LineColumn], ends: Sequence[bool], encoding: str) -> Iterator[str]:
    """Yield the lines, each up to its last word; nothing is cut.

    ``ends`` tells of each row but the last whether a gap follows it.
    """
    is_utf = encoding.startswith("utf")
    gap, rule, cross = (" " * _GAP, "─", "─" * _GAP) if is_utf else (" |", "-", "-+")
    fits = [_fit(column) for column in columns]
    heads = (
        fit(column.head, cell_len(column.head)) for fit, column in zip(fits, columns, strict=True)
    )
    ruled = cross.join(rule * column.width for column in columns)
    yield f"{gap.join(heads).rstrip()}\n"
    yield f"{ruled}\n"
    rows = zip(*(column.texts for column in columns), strict=True)
    for texts, is_end in zip(rows, [*ends, False], strict=True):
        cells = (fit(text.plain, text.cell_len) for fit, text in zip(fits, texts, strict=True))
        yield f"{gap.join(cells).rstrip()}\n"
        if is_end:
            yield "\n" if is_utf else f"{ruled}\n"


def _fit(column: LineColumn) -> Callable[[str, int], str]:
    """Return what pads a text of so many cells to the width of the column."""
    width = column.width
    if column.is_right:
        return lambda text, cells: " " * (width - cells) + text
    return lambda text, cells: text + " " * (width - cells)

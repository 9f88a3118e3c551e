"""Rows as a table on a terminal, as plain text in a pipe, as JSON lines or as CSV.

A table fits the terminal: the columns with the highest ``rank`` are dropped first when there is
no room, and a column with ``stretch`` is cut with an ellipsis. In a pipe nothing is dropped, and
there are no colours. Text of a store is untrusted, so its control characters are escaped and
never reach the terminal.
"""

import csv
import math
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Final, Literal, TextIO, TypeAlias

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mqlog_jobs.output.amounts import about_size, count, instant, moment, size, span
from mqlog_jobs.output.table_lines import LineColumn, lines_of
from mqlog_jobs.output.typed_values import json_text, nested
from mqstore.errors import printable, shown

Row: TypeAlias = Mapping[str, object]
Kind: TypeAlias = Literal[
    "text", "number", "count", "bytes", "about bytes", "time", "span", "bar", "status"
]

_STRETCH_LEAST: Final = 24
_BAR_CELLS: Final = 10
_RIGHT: Final = {"number", "count", "bytes", "about bytes", "span"}
ESTIMATED: Final = "Estimate"
"""What the name of a field ends in whose bytes are estimated."""
_GAP: Final = 2
_PIPE_WIDTH: Final = 10_000

STYLES: Final = {
    "OK": "green",
    "NEVER_COMMITTED": "yellow",
    "AHEAD": "bold red",
    "EXPIRED": "bold red",
    "TIERED": "cyan",
    "TOPIC_GONE": "dim",
    "NO_CONSUMERS": "bold yellow",
    "LATE": "bold yellow",
    "PENDING": "yellow",
    "DELIVERED": "green",
    "CANCEL": "dim",
    "RETRY": "yellow",
    "DLQ": "bold red",
    "GIVEN_UP": "bold red",
    "SAME": "green",
    "done": "green",
    "decided": "yellow",
    "published": "yellow",
    "error": "bold red",
    "warning": "yellow",
}


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


def terminal(stream: TextIO | None = None) -> Console:
    """Return the console for people; wide and without colours when it is not a terminal."""
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_PIPE_WIDTH, color_system=None)


def heading(console: Console, title: str, note: str = "") -> None:
    """Print the line above a table: its title, and a note beside it."""
    gap = "  " if note else ""
    console.print(Text.assemble((shown(title), "bold"), gap, (printable(note), "dim")))


def table(console: Console, columns: Sequence[FieldView], rows: Sequence[Row]) -> None:
    """Print ``rows`` under ``columns``, as many of them as fit.

    A field that is an estimate in the rows, such as bytesEstimate for bytes, is marked with ≈.
    """
    columns = _grouped([_as_in(column, rows) for column in columns], rows)
    once = [column.name for column in columns if column.once]
    cells = {
        column.name: _cells(
            console, column, rows, once[: once.index(column.name) + 1] if column.once else []
        )
        for column in columns
    }
    full = {column.name: _width(column, cells[column.name]) for column in columns}
    if not console.is_terminal:
        pairs = pairwise(rows)
        ends = [_first_differs(columns, row, following) for row, following in pairs]
        shown_columns = [
            LineColumn(column.head, column.kind in _RIGHT, full[column.name], cells[column.name])
            for column in columns
        ]
        console.file.writelines(lines_of(shown_columns, ends, console.encoding))
        return
    kept = _fitting(columns, full, console.width)
    widths = _stretched(kept, full, console.width)
    drawn = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),  # The box has one blank of its own between columns.
        header_style="bold",
    )
    for column in kept:
        drawn.add_column(
            column.head,
            justify="right" if column.kind in _RIGHT else "left",
            style=column.style,
            no_wrap=not column.wrap,
            overflow="fold" if column.wrap else "ellipsis",
            width=widths[column.name],
        )
    for number, row in enumerate(rows):
        last = number + 1 == len(rows)
        section = not last and _first_differs(kept, row, rows[number + 1])
        drawn.add_row(*(cells[column.name][number] for column in kept), end_section=section)
    console.print(drawn)
    dropped = ", ".join(column.head for column in columns if column.head and column not in kept)
    if dropped:  # A bar has no head: it repeats the number beside it.
        console.print(Text(f"not shown, the terminal is too narrow: {dropped}", style="dim"))


def json_lines(rows: Iterable[Row], stream: TextIO | None = None) -> int:
    """Write one JSON object a line; return how many.

    Times are ISO-8601 with zone, bytes text or base64. Control characters are escaped, on a
    terminal and elsewhere.
    """
    stream = stream or sys.stdout
    number = 0
    is_ascii = not (stream.encoding or "utf-8").lower().startswith("utf")
    for row in rows:
        stream.write(json_text(_plain(row), is_ascii=is_ascii) + "\n")
        number += 1
    return number


def comma_separated(
    names: Sequence[str], rows: Iterable[Row], stream: TextIO | None = None
) -> None:
    """Write CSV (RFC 4180) with a header line; null is an empty field.

    Text is written as it is; on a terminal control characters are escaped.
    """
    stream = stream or sys.stdout
    escaped = stream.isatty()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        plain = _plain(row)
        writer.writerow([_field(plain[name], escaped=escaped) for name in names])


def text_of(value: bytes) -> str:
    """Return a body as text if it is UTF-8, else its size."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"<{size(len(value))} of bytes>"


def fact(value: object) -> str:
    """Return the whole value for a line of its own; times to the millisecond."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")
    text = text_of(value) if isinstance(value, bytes) else str(value)
    return printable(text, keep="\n\t")


_NUMBERS: Final[Mapping[str, Callable[[int], str]]] = {
    "count": count,
    "bytes": size,
    "about bytes": about_size,
    "span": span,
}


def _as_in(column: FieldView, rows: Sequence[Row]) -> FieldView:
    """Return the column for its field in the rows, which may be an estimate."""
    if not rows or column.name in rows[0]:
        return column
    return replace(column, name=f"{column.name}{ESTIMATED}", kind="about bytes")


def _grouped(columns: Sequence[FieldView], rows: Sequence[Row]) -> list[FieldView]:
    """Return the columns; those are not ``once`` whose values do not stand together."""
    found: list[FieldView] = []
    names: list[str] = []
    for column in columns:
        if column.once:
            names.append(column.name)
            values = [tuple(row[name] for name in names) for row in rows]
            if len(list(groupby(values))) > len(set(values)):
                names.pop()
                found.append(replace(column, once=False))
                continue
        found.append(column)
    return found


def _cells(
    console: Console, column: FieldView, rows: Sequence[Row], once: Sequence[str]
) -> list[Text]:
    """Return a cell for each row, blank where all fields of ``once`` repeat the row above."""
    if column.kind == "bar":
        return _bars(console, [row[column.name] for row in rows])
    cells: list[Text] = []
    before: list[object] | None = None
    for row in rows:
        values = [row[name] for name in once]
        repeated = column.once and values == before
        cells.append(Text("") if repeated else _cell(column, row[column.name]))
        before = values
    return cells


def _cell(column: FieldView, value: object) -> Text:
    if value is None:
        return Text("–", style="dim")
    if column.kind == "status":
        return Text(shown(value), style=STYLES.get(str(value), ""))
    text = _shape(column.kind, value)
    nothing = value == 0 and column.kind in {"count", "bytes", "about bytes"}
    return Text(text, style="dim" if nothing else "")


def _shape(kind: Kind, value: object) -> str:
    match value:
        case int() if kind in _NUMBERS:
            text = _NUMBERS[kind](value)
        case datetime():
            text = moment(value)
        case bytes():
            text = shown(text_of(value))
        case dict() | list():
            text = shown(json_text(nested(value)))
        case _:
            text = shown(value)
    return text


def _width(column: FieldView, cells: Iterable[Text]) -> int:
    """Return the cells that a column takes when nothing of it is cut."""
    return max([cell_len(column.head), *(cell.cell_len for cell in cells)])


def _bars(console: Console, values: Sequence[object]) -> list[Text]:
    """Return a line for each value, as long as the value is beside the largest."""
    numbers = [value if isinstance(value, int) else 0 for value in values]
    most = max([1, *numbers])
    full, half = ("━", "╸") if console.encoding.startswith("utf") else ("=", "-")
    bars = []
    for number in numbers:
        halves = math.ceil(max(number, 0) / most * _BAR_CELLS * 2)
        bar = full * (halves // 2) + half * (halves % 2)
        bars.append(Text(bar.ljust(_BAR_CELLS), style="cyan"))
    return bars


def _fitting(columns: Sequence[FieldView], full: Mapping[str, int], width: int) -> list[FieldView]:
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


def _stretched(columns: Sequence[FieldView], full: Mapping[str, int], width: int) -> dict[str, int]:
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
    return sum(widths[column.name] + _GAP for column in columns) - _GAP


def _first_differs(columns: Sequence[FieldView], row: Row, following: Row) -> bool:
    first = columns[0]
    return first.once and row[first.name] != following[first.name]


def _plain(row: Row) -> dict[str, object]:
    """Return a row of values that JSON has; a body that is no UTF-8 goes to bodyBase64."""
    plain: dict[str, object] = {}
    for name, value in row.items():
        match value:
            case datetime():
                plain[name] = instant(value)
            case timedelta():
                plain[name] = value.total_seconds()
            case bytes():
                try:
                    plain[name] = value.decode()
                except UnicodeDecodeError:
                    plain[name] = None
                    plain[f"{name}Base64"] = b64encode(value).decode()
            case list() if name == "properties":
                plain[name] = dict(value)
            case dict() | list():
                plain[name] = nested(value)
            case _:
                plain[name] = value
    return plain


def _field(value: object, *, escaped: bool) -> object:
    match value:
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return json_text(nested(value))
        case str() if escaped:
            return printable(value)
    return value


def camel_case(name: str) -> str:
    """Return the name of a column for the name of a field: ``lostBytes`` for ``lost_bytes``."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def field_of(row: Row, name: str) -> str:
    """Return the name of a field in a row, which may be that of an estimate of it."""
    return name if name in row else f"{name}{ESTIMATED}"


def number_of(row: Row, name: str) -> int:
    """Return the number in a field of a row; 0 if it has none."""
    value = row[name]
    return value if isinstance(value, int) else 0

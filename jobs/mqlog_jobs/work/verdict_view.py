"""Verdicts about consumer groups on a terminal: the word, what shows it, what to run next."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa
import typer
from rich.console import Console
from rich.text import Text

from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.output import render
from mqlog_jobs.output.form import Form, rows_of
from mqlog_jobs.output.number_ranges import shape_of, with_ranges
from mqlog_jobs.output.render import Row, heading
from mqlog_jobs.output.views import each_group
from mqlog_jobs.places import Named
from mqlog_jobs.work.show_table import TableQuery, read_table
from mqstore.errors import printable, shown

_NO_VERDICT = "no verdict: nothing shows a fault of the groups that were read"

_NOT_OF_ONE_LOOK = (
    "one look does not tell what is stuck, slow, or stands still: --look-again 15s compares two"
)


def show_verdicts(
    named: Named, form: Form, options: Mapping[str, str | None], *, system: bool
) -> None:
    """Print the verdicts of groups; the commands in them name the places that were read.

    Exits with the code FOUND if there is one. Raises as ``show_table``.
    """
    rows = read_table(named, TableQuery("verdicts", options, system=system))
    place = " ".join(shlex.quote(printable(path)) for path in named.paths)
    commands = [command.replace("PLACE", place, 1) for command in rows["next"].to_pylist()]
    at = rows.schema.get_field_index("next")
    rows = rows.set_column(at, rows.schema.field(at), pa.array(commands, pa.string()))
    if not form.written(rows):
        verdicts(render.terminal(), rows_of(rows), rows.num_rows)
        if not {"lookAgain", "samples"} & {name for name, text in options.items() if text}:
            render.terminal().print(_NOT_OF_ONE_LOOK, style="dim", soft_wrap=True)
    if rows.num_rows:
        raise typer.Exit(FOUND)


def verdicts(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the verdicts of each group, one below the other."""
    for group, members in each_group(console, rows):
        heading(console, group)
        for row, about in _folded(members):
            line = Text.assemble("  ", (str(row["verdict"]), "bold yellow"), "  ", (about, "bold"))
            console.print(line, soft_wrap=True)
            console.print(Text(f"    {printable(str(row['evidence']))}"), soft_wrap=True)
            console.print(Text(f"    {printable(str(row['next']))}", style="dim"), soft_wrap=True)
    if not rows:
        console.print(_NO_VERDICT, style="dim")


def _folded(rows: Iterable[Row]) -> Iterator[tuple[Row, str]]:
    """Yield each verdict with what it is about; queues of a broker that differ by numbers are one.

    The numbers of its evidence are then ranges, and its command is that of the first queue.
    """
    same = groupby(rows, lambda row: (row["verdict"], row["topic"], row["brokerName"], _said(row)))
    for _, members in same:
        first, *others = members
        more = "".join(f", {row['queueId']}" for row in others)
        evidence = with_ranges([str(row["evidence"]) for row in (first, *others)])
        yield {**first, "evidence": evidence}, _about(first, more)


def _said(row: Row) -> object:
    return shape_of(str(row["evidence"])) if row["queueId"] is not None else object()


def _about(row: Row, more_queues: str = "") -> str:
    """Return which topic, or which queue of which broker, a verdict is about."""
    if row["topic"] is None:
        return ""
    topic = shown(str(row["topic"]))
    if row["queueId"] is None:
        return topic
    return f"{topic}/{row['queueId']}{more_queues} of {shown(str(row['brokerName']))}"

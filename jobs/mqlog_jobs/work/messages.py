"""The output of the commands ``cat`` and ``find``."""

import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Final

import typer

from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.output import line_format, render, views
from mqlog_jobs.output.change_view import CHANGE_VIEW_COLUMNS
from mqlog_jobs.output.line_format import LineFormat
from mqlog_jobs.output.progress import Bar
from mqlog_jobs.output.render import Row
from mqlog_jobs.places import Named
from mqlog_jobs.work import following, queries
from mqlog_jobs.work.queries import KeyQuery
from mqstore.errors import CorruptStoreError, InvalidOptionError, shown
from mqstore.read.message_query import MessageQuery

_LOOK_S: Final = 0.5  # Between two looks that find nothing.
_WRITTEN_BODIES: Final[Mapping[str, Callable[[bytes], str]]] = {
    "Hex": bytes.hex,
    "Base64": lambda body: b64encode(body).decode(),
}


@dataclass(frozen=True, slots=True)
class MessageForm:
    """The form of messages: a table, JSON lines, or lines in the user's format.

    ``body`` is ``Hex`` or ``Base64`` for bodies that are written so; None: as text.
    """

    as_json: bool = False
    line: LineFormat | None = None
    body: str | None = None
    changes: tuple[str, ...] = ()
    """The columns of changes, where those are read."""

    @classmethod
    def of(
        cls,
        *,
        as_json: bool,
        line: str | None,
        hexadecimal: bool = False,
        base64: bool = False,
        changes: tuple[str, ...] = (),
    ) -> "MessageForm":
        """Return the form; raises InvalidOptionError for two at once."""
        if line is not None and as_json:
            raise InvalidOptionError("--format", line, "choose either --format or --json")
        if hexadecimal and base64:
            raise InvalidOptionError("--hex", "true", "choose either --hex or --base64")
        body = "Hex" if hexadecimal else "Base64" if base64 else None
        form = None if line is None else line_format.parse(line, changes)
        return cls(as_json, form, body, changes)

    def by_line(self) -> "MessageForm":
        """Return the form for messages that are written one by one."""
        if self.is_by_line:
            return self
        one = line_format.ONE_CHANGE if self.changes else line_format.ONE_LINE
        return replace(self, line=line_format.parse(one, self.changes))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed."""
        if self.line:
            return self.line.columns
        if self.changes:
            return self.changes if self.as_json else CHANGE_VIEW_COLUMNS
        return line_format.STANDARD if self.as_json else views.MESSAGE_COLUMNS

    @property
    def is_by_line(self) -> bool:
        """Tell whether a message is written as soon as it is read."""
        return self.as_json or self.line is not None

    def write(self, rows: Iterable[Row]) -> None:
        """Write messages one by one."""
        if self.line is None:
            render.json_lines(map(self.shaped, rows))
        else:
            escaped, fill = sys.stdout.isatty(), self.line.fill
            sys.stdout.writelines(fill(self.shaped(row), escaped=escaped) for row in rows)

    def shaped(self, row: Row) -> Row:
        """Return the row with its body as it is to be written; in JSON under a name of its own."""
        body = row.get("body")
        if self.body is None or not isinstance(body, bytes):
            return row
        text = _WRITTEN_BODIES[self.body](body)
        if not self.as_json:
            return {**row, "body": text}
        name = f"body{self.body}"
        return {name if key == "body" else key: text if key == "body" else value
                for key, value in row.items()}  # fmt: skip


def cat(named: Named, query: MessageQuery, form: MessageForm, number: int) -> None:
    """Print the messages of a query, at most ``number`` if that is not 0."""
    # No bar where rows appear on the terminal one by one: they are progress enough.
    has_bar = not (sys.stdout.isatty() and form.is_by_line)
    problem: CorruptStoreError | None = None
    with Bar("Reading") as bar:
        rows = queries.select(named, query, form.columns, number, bar if has_bar else None)
        if form.is_by_line:
            first = list(islice(rows, 1))
            form.write(chain(first, rows))
            if not first:
                _say_empty(query)
            return
        before, problem = _until_error(rows)
    if before:
        views.messages(render.terminal(), list(map(form.shaped, before)))
    elif problem is None:
        _say_empty(query)
    if problem is not None:
        raise problem


def _say_empty(query: MessageQuery) -> None:
    """Say on standard error that there is nothing: standard output is for messages."""
    sys.stderr.write(f"no message of {shown(query.place)} matches\n")


def follow(named: Named, query: MessageQuery, form: MessageForm, number: int) -> None:
    """Print messages as they are stored, until ``number`` are printed if that is not 0."""
    if query.until is not None:
        raise InvalidOptionError("--until", query.until, "not together with --follow")
    if named.from_log:
        expected = "not together with --follow: a stream follows the ConsumeQueues of a store"
        raise InvalidOptionError("--from-log", "true", expected)
    form = form.by_line()
    places, bodies = queries.of_bodies(named)
    now_ms, wait = time.time_ns() // 1_000_000, partial(time.sleep, _LOOK_S)
    with places.opened(query.topic) as stores:
        rows = following.follow(stores, query, form.columns, now_ms, wait, bodies)
        for row in islice(rows, number or None):
            form.write([row])
            sys.stdout.flush()


def find(named: Named, query: KeyQuery, on_corrupt: str, *, as_json: bool) -> None:
    """Print all messages with a key or an id; exit code 1 if there is none."""
    rows = queries.find(named, query, on_corrupt)
    number = render.json_lines(rows) if as_json else views.cards(render.terminal(), rows)
    if not number:
        kind = "key" if query.keys else "id"
        sought = " or ".join(map(shown, (*query.keys, *query.ids)))
        sys.stderr.write(f"no message has the {kind} {sought}\n")
        raise typer.Exit(FOUND)


def _until_error(rows: Iterable[Row]) -> tuple[list[Row], CorruptStoreError | None]:
    """Return the rows before a broken one, and its error: a table of them is drawn first."""
    before: list[Row] = []
    try:
        for row in rows:
            before.append(row)  # noqa: PERF402 - extend() would lose the rows before an error
    except CorruptStoreError as error:
        return before, error
    return before, None

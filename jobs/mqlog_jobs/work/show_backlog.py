"""The output of the commands ``backlog`` and ``lagcompare``, printed once or repeatedly."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import typer
from rich.console import Console

from mqlog_jobs.machine.codes import ABOVE
from mqlog_jobs.output import amounts, prometheus, render, table_views, views
from mqlog_jobs.output.form import Form, rows_of, with_estimates
from mqlog_jobs.output.gauge_file import check_gauges
from mqlog_jobs.output.group_lines import by_lag, group_lines
from mqlog_jobs.output.render import Row
from mqlog_jobs.output.watch import watch
from mqlog_jobs.output.whole_file import is_standard_output, replace_file
from mqlog_jobs.places import Named
from mqstore.backlog import (
    BacklogItem,
    BacklogRequest,
    measure,
    plan_all,
)
from mqstore.backlog.request import LATE_AFTER_MS, group_names
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar
from mqstore.options.grammar import Sql92
from mqstore.read.message_query import check_known, snapshots_of
from mqstore.read.selection import OpenStores
from mqstore.read.source import Snapshot
from mqstore.read.sql.filter import parse_sql
from mqstore.read.system_topics import system_topics
from mqstore.tables.asides import Aside, asides, pending_halves
from mqstore.tables.catalog import CATALOG

_BY_NAME: Final = "name"
_BY_LAG: Final = "lag"
_SORTS: Final = (_BY_NAME, _BY_LAG)


@dataclass(frozen=True, slots=True)
class BacklogQuery:
    """Which rows of a backlog: those of a request, of one topic."""

    request: BacklogRequest
    topic: str | None = None

    @classmethod
    def of(
        cls,
        groups: str | None,
        topic: str | None,
        expressions: Iterable[str] | None,
        *,
        system: bool,
        by_tag: bool = False,
        late_after: str | None = None,
    ) -> "BacklogQuery":
        """Return the query of a command's arguments; raises InvalidOptionError."""
        subscriptions = subscriptions_of(groups, expressions or ())
        request = BacklogRequest(
            groups=groups,
            subscriptions=subscriptions,
            by_tag=by_tag,
            system=system,
            late_after_ms=late_after_ms(late_after),
        )
        return cls(request, topic)

    def snapshots(self, stores: OpenStores) -> tuple[Snapshot, ...]:
        """Look at all that the stores hold, and at the consumers of the groups."""
        return snapshots_of(stores, held=True, groups=self.request.group_test())

    def look(
        self,
        stores: OpenStores,
        *,
        reads_halves: bool,
        snapshots: tuple[Snapshot, ...] | None = None,
    ) -> tuple[list[BacklogItem], dict[str, Aside]]:
        """Return the queues to measure, by group, broker, topic, queue, and what waits beside.

        ``reads_halves``: half messages are read to count them. What waits beside the backlog is of
        all topics of a group, so there is none of one topic. ``snapshots`` are those of a look that
        was taken already.
        """
        found = self.snapshots(stores) if snapshots is None else snapshots
        items = plan_all(stores.sources, found, self.request)
        beside: dict[str, Aside] = {}
        if self.topic is not None:
            check_known(stores, self.topic, consumed=True)
            items = [item for item in items if item.is_of(lambda topic, _: topic == self.topic)]
        else:
            halves = pending_halves(stores.sources, found) if reads_halves else None
            beside = asides(found, items, halves)
        order = sorted(items, key=lambda i: (i.group, i.broker_name, i.topic, i.queue_id))
        return order, beside

    def gauges(self, measured: pa.Table, snapshots: Iterable[Snapshot]) -> str:
        """Return rows that were measured as Prometheus text."""
        own_topics = frozenset().union(*map(system_topics, snapshots))
        return prometheus.text(rows_of(measured), own_topics)


@dataclass(frozen=True, slots=True)
class Watching:
    """Seconds between two measurements, and their number; 0: without an end."""

    interval_s: float
    rounds: int

    @classmethod
    def of(cls, interval_s: float | None, rounds: int | None, *, repeat: bool) -> "Watching | None":
        """Return it with its defaults, or None if nothing is repeated.

        Raises InvalidOptionError for what is for --watch only.
        """
        if repeat:
            return cls(2 if interval_s is None else interval_s, rounds or 0)
        for option, value in (("--count", rounds), ("--interval", interval_s)):
            if value is not None:
                raise InvalidOptionError(option, value, "belongs to --watch")
        return None


@dataclass(frozen=True, slots=True)
class BacklogReport:
    """How a backlog is shown: its order, a line a group, an alarm above so many messages.

    ``summary``: a line for each group, or for each tag of a group if the rows are of tags.
    ``quiet``: rows are not printed. ``gauges`` is a file for Prometheus.
    """

    form: Form = field(default_factory=Form)
    sort: str = _BY_NAME
    summary: bool = False
    above: int | None = None
    quiet: bool = False
    gauges: str | None = None

    def __post_init__(self) -> None:
        if self.sort not in _SORTS:
            raise InvalidOptionError("--sort", self.sort, f"must be {' or '.join(_SORTS)}")
        if self.quiet and (self.form.as_json or self.form.as_csv):
            raise InvalidOptionError("--quiet", "true", "not together with --json or --csv")
        if self.quiet and self.above is None and self.gauges is None:
            raise InvalidOptionError("--quiet", "true", "belongs to --fail-above or --prometheus")
        check_gauges(self.gauges, self.form)

    def check(self, watching: Watching | None, *, by_tag: bool) -> None:
        """Raise InvalidOptionError for what contradicts the repetition."""
        if watching is not None and self.form.as_csv:
            raise InvalidOptionError("--csv", "--watch", "use --json, one object a line")
        if by_tag and self.gauges is not None:
            raise InvalidOptionError("--prometheus", self.gauges, "has no label for a tag")
        if watching is not None and self.above is not None:
            raise InvalidOptionError("--fail-above", self.above, "is for one measurement")

    def show(
        self,
        console: Console | None,
        measured: pa.Table,
        beside: Mapping[str, Aside],
        *,
        by_tag: bool = False,
    ) -> None:
        """Print the rows; as JSON or CSV without a console. ``by_tag``: each is of one tag.

        ``beside`` has what waits beside the backlog of each group.
        """
        if self.quiet or is_standard_output(self.gauges):
            return
        rows: Sequence[Row] = rows_of(measured)
        names = measured.schema.names
        if self.summary:
            rows = group_lines(rows, beside, by_tag=by_tag)
            names = list(rows[0]) if rows else []
        if self.sort == _BY_LAG:
            rows = by_lag(rows)
        if self.form.as_json:
            render.json_lines(rows)
        elif self.form.as_csv:
            render.comma_separated(names, rows)
        elif console is not None and self.summary:
            table_views.summary(console, rows, beside)
        elif console is not None:
            views.backlog(console, rows, beside)

    def alarm(self, measured: pa.Table) -> None:
        """Exit with the code ABOVE if a group has more messages waiting than wanted."""
        if self.above is None:
            return
        late = [
            (str(line["group"]), waiting)
            for line in group_lines(rows_of(measured))
            if isinstance(waiting := line["lagMatching"], int) and waiting > self.above
        ]
        for group, waiting in late:
            messages = amounts.several(waiting, "message")
            above = f"{messages} waiting, more than {amounts.count(self.above)}"
            sys.stderr.write(f"mqlog: {shown(group)}: {above}\n")
        if late:
            raise typer.Exit(ABOVE)


def late_after_ms(text: str | None) -> int:
    """Return the value of ``--late-after``, or its default. Raises InvalidOptionError."""
    return LATE_AFTER_MS if text is None else grammar.duration("--late-after", text)


def subscriptions_of(
    groups: str | None, expressions: Iterable[str]
) -> Mapping[str, Mapping[str, str]]:
    """Return group → topic → tag expression, each written as ``[GROUP[/TOPIC]=]EXPRESSION``.

    An Sql92 is of all topics of ``groups``.
    """
    found: dict[str, dict[str, str]] = {}
    for text in expressions:
        if isinstance(text, Sql92):
            parse_sql(text, option="--sql")
        place, equals, expression = text.partition("=")
        if equals and not isinstance(text, Sql92):
            group, _, topic = place.strip().partition("/")
            named = [group]
        else:
            named, topic, expression = _named(groups, text), "", text
        for name in named:
            of_group = found.setdefault(name, {})
            if (topic or "*") in of_group:
                raise InvalidOptionError(_option_of(text), text, f"{name} has one already")
            of_group[topic or "*"] = expression
    return found


def _option_of(expression: str) -> str:
    return "--sql" if isinstance(expression, Sql92) else "--subscription"


def backlog(
    named: Named, query: BacklogQuery, report: BacklogReport, watching: Watching | None
) -> None:
    """Print the backlog of the groups."""
    report.check(watching, by_tag=query.request.by_tag)

    def look(console: Console | None) -> pa.Table:
        with named.opened(query.topic, groups=query.request.named) as stores:
            snapshots = query.snapshots(stores)
            halves = watching is None and not report.quiet
            items, beside = query.look(stores, reads_halves=halves, snapshots=snapshots)
        as_of_ms = max(snapshot.taken_ms for snapshot in snapshots)
        measured = pa.Table.from_batches([measure(items, query.request, as_of_ms)])
        if report.gauges is not None:
            replace_file(report.gauges, query.gauges(measured, snapshots))
        if named.is_live and not query.request.by_tag:
            measured = with_estimates(measured, CATALOG["backlog"].estimated)
        report.show(console, measured, beside, by_tag=query.request.by_tag)
        return measured

    if watching is None:
        report.alarm(look(render.terminal()))
        return
    # A stream of JSON objects is for a program, also on a terminal.
    console = None if report.form.as_json else render.terminal()
    watch(console, look, interval_s=watching.interval_s, rounds=watching.rounds)


def backlog_gauges(named: Named, query: BacklogQuery) -> str:
    """Measure the backlog now, and return it as Prometheus text. Raises as ``backlog``."""
    with named.opened(query.topic, groups=query.request.named) as stores:
        snapshots = query.snapshots(stores)
        items, _ = query.look(stores, reads_halves=False, snapshots=snapshots)
    as_of_ms = max(snapshot.taken_ms for snapshot in snapshots)
    measured = measure(items, query.request, as_of_ms)
    return query.gauges(pa.Table.from_batches([measured]), snapshots)


def _named(groups: str | None, expression: str) -> list[str]:
    if groups is None or groups.startswith("/"):
        expected = "an expression belongs to a group: name it with --group"
        if not isinstance(expression, Sql92):
            expected += ", or write GROUP=EXPRESSION"
        raise InvalidOptionError(_option_of(expression), expression, expected)
    return sorted(group_names(groups))

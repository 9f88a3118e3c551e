"""What the command ``backlog`` prints, once or again and again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from mqlog_jobs import render, views
from mqlog_jobs.places import Named, snapshots
from mqlog_jobs.show import Form
from mqlog_jobs.watch import watch
from mqstore.backlog import BacklogRequest, measure, plan_all
from mqstore.backlog.request import is_system_group
from mqstore.errors import InvalidOptionError


@dataclass(frozen=True, slots=True)
class Watching:
    """Seconds between two measurements, and their number; 0: without an end."""

    interval_s: float
    rounds: int

    @classmethod
    def of(cls, interval_s: float | None, rounds: int | None) -> "Watching":
        """Return it with the defaults for what is None."""
        return cls(2 if interval_s is None else interval_s, rounds or 0)


def check_no_watching(interval_s: float | None, rounds: int | None) -> None:
    """Raise InvalidOptionError for what is for --watch only."""
    for option, value in (("--count", rounds), ("--interval", interval_s)):
        if value is not None:
            raise InvalidOptionError(option, value, "belongs to --watch")


def subscriptions_of(group: str | None, expressions: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return group → topic → tag expression of an expression for the groups named."""
    if not expressions:
        return {}
    (expression,) = expressions
    if group is None or group.startswith("/"):
        raise InvalidOptionError(
            "--subscription", expression, "an expression belongs to a group: name it with --group"
        )
    return {name.strip(): {"*": expression} for name in group.split(",")}


def backlog(
    named: Named, request: BacklogRequest, form: Form, watching: Watching | None, *, system: bool
) -> None:
    """Print the backlog of the groups; of RocketMQ's own if ``system`` or named."""

    def show(console: Console | None) -> None:
        with named.opened() as stores:
            found = snapshots(stores, held=True)
            now_ms = time.time_ns() // 1_000_000
            items = plan_all(stores.sources, found, request)
        if request.groups is None and not system:
            items = [item for item in items if not is_system_group(item.group)]
        items.sort(key=lambda item: (item.group, item.broker_name, item.topic, item.queue_id))
        batch = measure(items, request, now_ms)
        if not form.written(batch) and console is not None:
            views.backlog(console, views.rows_of(batch))

    if watching is None:
        show(render.terminal())
        return
    if form.as_csv:
        raise InvalidOptionError("--csv", "--watch", "use --json, one object a line")
    # A stream of JSON objects is for a program, also on a terminal.
    console = None if form.as_json else render.terminal()
    watch(console, show, interval_s=watching.interval_s, rounds=watching.rounds)

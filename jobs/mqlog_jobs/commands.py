"""The commands of ``mqlog`` that show messages: backlog, topics, queues, cat, find, tags.

Each takes a store's directory or a cluster's address: see mqlog_jobs.places.

A command's parameters are its arguments and options. mqlog_jobs.maintenance has the commands that
copy, check and repair a store.
"""

# ruff: noqa: PLR0913

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console
from typer.core import TyperCommand

from mqlog_jobs import line_format, queries, render, views
from mqlog_jobs.exit_codes import FOUND, STANDARD_OUTPUT
from mqlog_jobs.parameters import (
    AsCsv,
    AsJson,
    CommitLog,
    OnCorrupt,
    OneTopic,
    Options,
    Place,
    QueueArgument,
    System,
    SystemGroups,
    Topic,
)
from mqlog_jobs.places import opened, snapshots
from mqlog_jobs.progress import Bar
from mqlog_jobs.queries import KeyQuery, MessageQuery
from mqlog_jobs.render import Row
from mqlog_jobs.watch import watch
from mqstore import __version__, tables
from mqstore.backlog import BacklogRequest, measure, plan_all
from mqstore.backlog.request import is_system_group
from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.printable import shown
from mqstore.read.source import Snapshot, slices_of
from mqstore.tables import tags as count_tags

app = typer.Typer(
    name="mqlog",
    help="Show, check and repair message stores of Apache RocketMQ: a broker's directory, without "
    "a broker. Show running clusters as well: rocketmq://HOST:9876.",
    epilog="Exit codes: 0 done; 1 verify or doctor found errors, or find found nothing; "
    "2 an argument is wrong, a store cannot be read or output cannot be written; "
    "130 interrupted; 141 the reader of the pipe is gone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _StoreCommand(TyperCommand):
    """A command with an argument STORE: an OSError inside has the store's path as well."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            store, name = ctx.params.get("store"), error.filename
            if store is not None and name != STANDARD_OUTPUT:
                error.filename = _within(str(store), name)
            raise


command = partial(app.command, cls=_StoreCommand)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"mqlog {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@command(
    epilog="Examples: mqlog backlog /data/store -g CG_SHOP --subscription 'paid || sent' · "
    "mqlog backlog rocketmq://ns1:9876 --watch --interval 5"
)
def backlog(
    store: Place,
    *,
    group: Annotated[
        str | None, typer.Option("-g", "--group", help="Groups: a comma list, or /regex/.")
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(help="Tag expression of the groups, 'A || B': count its matches."),
    ] = None,
    by_tag: Annotated[bool, typer.Option("--by-tag", help="One row for each tag.")] = False,
    repeat: Annotated[
        bool, typer.Option("--watch", help="Repeat the measurement until interrupted.")
    ] = False,
    interval: Annotated[
        float | None, typer.Option(min=0, help="Seconds between two measurements; default 2.")
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--count", min=0, help="Stop after so many; 0: never."),
    ] = None,
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show the messages that consumer groups have not consumed yet."""
    if repeat and as_csv:
        raise InvalidOptionError("--csv", "--watch", "use --json, one object a line")
    for option, value in (("--count", number), ("--interval", interval)):
        if value is not None and not repeat:
            raise InvalidOptionError(option, value, "belongs to --watch")
    subscriptions = _subscriptions(group, subscription)
    request = BacklogRequest(groups=group, subscriptions=subscriptions, by_tag=by_tag)

    def show(console: Console | None) -> None:
        with opened(store, commit_log, options) as stores:
            found = snapshots(stores)
            now_ms = time.time_ns() // 1_000_000
            items = plan_all(stores.sources, found, request)
        if group is None and not system:
            items = [item for item in items if not is_system_group(item.group)]
        batch = measure(items, request, now_ms)
        if not _written(batch, as_json=as_json, as_csv=as_csv) and console is not None:
            views.backlog(console, views.rows_of(batch))

    if repeat:
        # A stream of JSON objects is for a program, also on a terminal.
        console = None if as_json else render.terminal()
        watch(console, show, interval_s=2 if interval is None else interval, rounds=number or 0)
    else:
        show(render.terminal())


@command(epilog="Examples: mqlog topics /data/store --json · mqlog topics rocketmq://ns1:9876")
def topics(
    store: Place,
    *,
    system: System = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the topics: permissions, queues, messages, bytes."""
    with opened(store, commit_log, options) as stores:
        batch = _joined(map(tables.topics, snapshots(stores)), "topics")
    if not system:
        batch = batch.filter(pc.invert(batch["isSystem"]))
    if not _written(batch, as_json=as_json, as_csv=as_csv):
        views.topics(render.terminal(), views.rows_of(batch))


@command(epilog="Example: mqlog queues /data/store --topic ORDERS")
def queues(
    store: Place,
    *,
    topic: Topic = None,
    system: System = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the queues: offsets, messages, bytes, times of the first and the last message."""
    with opened(store, commit_log, options, topic) as stores:
        found = snapshots(stores, topic)
    if topic is None and not system:
        found = tuple(map(_without_system, found))
    batch = _joined(map(tables.queues, found), "queues")
    if not _written(batch, as_json=as_json, as_csv=as_csv):
        views.queues(render.terminal(), views.rows_of(batch))


@command(
    epilog="Examples: mqlog cat /data/store ORDERS -n 5 · mqlog cat /data/store ORDERS/2@-3 · "
    "mqlog cat /data/store ORDERS --tag paid --since -1h -n 0 -f '{keys} {body}'"
)
def cat(
    store: Place,
    place: QueueArgument,
    *,
    tag: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    key: Annotated[list[str] | None, typer.Option(help="A message key; may be repeated.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored at or after: -15m, epoch ms, or ISO-8601 with zone.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before; written as --since.")] = None,
    number: Annotated[int, typer.Option("-n", min=0, help="Print at most so many; 0: all.")] = 20,
    line: Annotated[
        str | None,
        typer.Option("-f", "--format", help="A line for each, columns in braces: '{keys} {body}'."),
    ] = None,
    on_corrupt: OnCorrupt = "fail",
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Print messages, in the order the broker stored them."""
    if line is not None and as_json:
        raise InvalidOptionError("--format", "--json", "choose one of the two")
    form = line_format.parse(line) if line is not None else None
    columns = form.columns if form else line_format.STANDARD if as_json else views.MESSAGE_COLUMNS
    query = MessageQuery(place, tag, tuple(key or ()), since, until, on_corrupt)
    # No bar where rows appear on the terminal one by one: they are progress enough.
    on_terminal = sys.stdout.isatty()
    has_bar = not (on_terminal and (as_json or form))
    with opened(store, commit_log, options, query.topic) as stores, Bar("Reading") as bar:
        rows = queries.select(stores, query, columns, number, bar if has_bar else None)
        if as_json:
            render.json_lines(rows)
        elif form:
            sys.stdout.writelines(form.fill(row, escaped=on_terminal) for row in rows)
        else:
            before, problem = _until_error(rows)
    if not (as_json or form):
        if before or problem is None:
            views.messages(render.terminal(), before)
        if problem is not None:
            raise problem


@command(
    epilog="Examples: mqlog find /data/store --key order-4711 · "
    "mqlog find /data/store --id 7F0000010BB818B4AAC28B4D5FBE0000 --json"
)
def find(
    store: Place,
    *,
    key: Annotated[list[str] | None, typer.Option(help="A message key; may be repeated.")] = None,
    message_id: Annotated[
        list[str] | None, typer.Option("--id", help="UNIQ_KEY or offsetMsgId; may be repeated.")
    ] = None,
    topic: OneTopic = None,
    on_corrupt: OnCorrupt = "rescue",
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Find all messages with a key or an id, through the index."""
    query = KeyQuery(tuple(key or ()), tuple(message_id or ()))
    with opened(store, commit_log, options, topic) as stores:
        rows = queries.find(stores, topic, query, on_corrupt)
        number = render.json_lines(rows) if as_json else views.cards(render.terminal(), rows)
    if not number:
        sys.stderr.write(f"no message has {' or '.join(map(shown, (*query.keys, *query.ids)))}\n")
        raise typer.Exit(FOUND)


@command(epilog="Example: mqlog tags /data/store --topic ORDERS")
def tags(
    store: Place,
    *,
    topic: Topic = None,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Count the messages of each tag; --json and --csv have a row for each queue."""
    with opened(store, commit_log, options, topic) as stores:
        found = snapshots(stores, topic)
    if topic is None:
        found = tuple(map(_without_system, found))
    parts = count_tags.plan([piece for one in found for piece in slices_of(one)], "*")
    batches: list[pa.RecordBatch] = []
    with Bar("Reading") as bar:
        for number, part in enumerate(parts):
            bar(number, len(parts))
            batches += part.batches(tables.SCHEMAS["tags"].names)
    table = _joined(batches, "tags")
    if not _written(table, as_json=as_json, as_csv=as_csv):
        views.tags(render.terminal(), views.rows_of(table))


def _joined(batches: Iterable[pa.RecordBatch], table: str) -> pa.Table:
    """Return the rows of all brokers."""
    return pa.Table.from_batches(batches, tables.SCHEMAS[table])


def _within(store: str, name: object) -> str:
    """Return the path of a file of a store, whose errors may have its last name only."""
    if not isinstance(name, str):
        return store
    return name if "/" in name or name == store else f"{store}: {name}"


def _until_error(rows: Iterable[Row]) -> tuple[list[Row], CorruptStoreError | None]:
    """Return the rows before a broken one, and its error: a table of them is drawn first."""
    before: list[Row] = []
    try:
        for row in rows:
            before.append(row)  # noqa: PERF402 - extend() would lose the rows before an error
    except CorruptStoreError as error:
        return before, error
    return before, None


def _without_system(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the queues of RocketMQ's own topics."""
    known = views.rows_of(tables.topics(replace(snapshot, queues=())))
    system = {row["topic"] for row in known if row["isSystem"]}
    queues = tuple(queue for queue in snapshot.queues if queue.topic not in system)
    return replace(snapshot, queues=queues)


def _subscriptions(group: str | None, expression: str | None) -> dict[str, dict[str, str]]:
    if expression is None:
        return {}
    if group is None or group.startswith("/"):
        raise InvalidOptionError(
            "--subscription", expression, "an expression belongs to a group: name it with --group"
        )
    return {name.strip(): {"*": expression} for name in group.split(",")}


def _written(batch: pa.RecordBatch | pa.Table, *, as_json: bool, as_csv: bool) -> bool:
    """Write the rows as JSON or CSV if one of them is wanted; tell whether it was."""
    if as_json and as_csv:
        raise InvalidOptionError("--csv", "--json", "choose one of the two")
    if as_json:
        render.json_lines(views.rows_of(batch))
    elif as_csv:
        render.comma_separated(batch.schema.names, views.rows_of(batch))
    return as_json or as_csv

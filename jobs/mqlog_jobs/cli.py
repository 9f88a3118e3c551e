"""The command ``mqlog``: looks into store directories, without a broker and without Spark.

Exit codes: 0 done; 1 ``verify`` or ``doctor`` found errors, or ``find`` found nothing; 2 a wrong
argument, or a store that cannot be read, told in one line on standard error; 130 interrupted.

Only ``demo`` needs Spark, and imports it when it runs: a command starts in a fraction of a second.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console

from mqlog_jobs import lines, mended, render, views
from mqlog_jobs.choice import Wanted, choose
from mqlog_jobs.doctor import ERROR, examine
from mqlog_jobs.find import Sought
from mqlog_jobs.find import find as find_messages
from mqlog_jobs.java import JavaNotFoundError
from mqlog_jobs.parameters import AsCsv, AsJson, CommitLog, OneTopic, Place, Store, System, Topic
from mqlog_jobs.progress import Bar
from mqlog_jobs.watch import watch
from mqstore import __version__, grammar, tables
from mqstore.backlog import BacklogRequest, measure, plan
from mqstore.check import check
from mqstore.errors import InvalidOptionError, StoreError, shown
from mqstore.read.plan import slices_of
from mqstore.read.snapshot import Snapshot, take
from mqstore.snapshot_copy import copy_store
from mqstore.tables import tags as count_tags
from mqstore.write.recover import RecoverSettings
from mqstore.write.recover import recover as recover_store

FOUND: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130
STATES: Final = ("published", "lost")

app = typer.Typer(
    name="mqlog",
    help="Look into Apache RocketMQ message stores: the directory of a broker, no broker needed.",
    epilog="Exit codes: 0 done, 1 verify or doctor found errors or find found nothing, "
    "2 wrong argument or bad store.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
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


@app.command(
    epilog="Examples: mqlog backlog /data/store -g CG_SHOP --subscription 'paid || sent' · "
    "mqlog backlog /data/store --watch --interval 5"
)
def backlog(
    store: Store,
    *,
    group: Annotated[
        str | None, typer.Option("-g", "--group", help="Groups: a comma list, or /regex/.")
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(help="Tag expression of the groups, 'A || B': count what matches it."),
    ] = None,
    by_tag: Annotated[bool, typer.Option("--by-tag", help="One row for each tag.")] = False,
    again: Annotated[bool, typer.Option("--watch", help="Look again and again.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between two looks.")] = 2,
    number: Annotated[int, typer.Option("--count", min=0, help="So many looks; 0: go on.")] = 0,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show what consumer groups have still to consume."""
    subscriptions = _subscriptions(group, subscription)
    request = BacklogRequest(groups=group, subscriptions=subscriptions, by_tag=by_tag)

    def look(console: Console | None) -> None:
        snapshot = _take(store, commit_log)
        now_ms = time.time_ns() // 1_000_000
        batch = measure(plan(snapshot, request), request, now_ms)
        if not _written(batch, as_json=as_json, as_csv=as_csv) and console is not None:
            views.backlog(console, views.rows_of(batch))

    if not again:
        look(render.terminal())
    elif as_csv:
        raise InvalidOptionError("--csv", "--watch", "use --json, one object a line")
    elif as_json:  # A stream of objects is for a program, also on a terminal.
        watch(None, look, interval_s=interval, rounds=number)
    else:
        watch(render.terminal(), look, interval_s=interval, rounds=number)


@app.command(epilog="Example: mqlog topics /data/store --json")
def topics(
    store: Store,
    *,
    system: System = False,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the topics: permissions, queues, messages, bytes."""
    batch = tables.topics(_take(store, commit_log))
    if not system:
        batch = batch.filter(pc.invert(batch["isSystem"]))
    if not _written(batch, as_json=as_json, as_csv=as_csv):
        views.topics(render.terminal(), views.rows_of(batch))


@app.command(epilog="Example: mqlog queues /data/store --topic ORDERS")
def queues(
    store: Store,
    *,
    topic: Topic = None,
    system: System = False,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the queues: offsets, messages, bytes, times of the first and the last message."""
    snapshot = _take(store, commit_log, topic)
    if topic is None and not system:
        snapshot = _of_users(snapshot)
    batch = tables.queues(snapshot)
    if not _written(batch, as_json=as_json, as_csv=as_csv):
        views.queues(render.terminal(), views.rows_of(batch))


@app.command(
    epilog="Examples: mqlog cat /data/store ORDERS -n 5 · mqlog cat /data/store ORDERS/2@-3 · "
    "mqlog cat /data/store ORDERS --tag paid --since -1h -n 0 -f '{keys} {body}'"
)
def cat(
    store: Store,
    place: Place,
    *,
    tag: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    key: Annotated[list[str] | None, typer.Option(help="A key; once for each.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored at or after: -15m, epoch ms, or ISO-8601 with zone.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before; as --since.")] = None,
    number: Annotated[int, typer.Option("-n", min=0, help="At most so many; 0: all.")] = 20,
    line: Annotated[
        str | None,
        typer.Option("-f", "--format", help="A line for each, columns in braces: '{keys} {body}'."),
    ] = None,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Print messages, in the order the broker stored them."""
    shape = lines.parse(line) if line is not None else None
    columns = shape.columns if shape else lines.COLUMNS if as_json else views.MESSAGE_COLUMNS
    wanted = Wanted(place, tags=tag, keys=tuple(key or ()), since=since, until=until)
    # Rows that go to the terminal as they come are progress enough.
    seen = sys.stdout.isatty() and (as_json or shape is not None)
    snapshot = _take(store, commit_log, wanted.topic)
    with Bar("Reading") as bar:
        rows = choose(snapshot, wanted, columns, number, None if seen else bar)
        if as_json:
            render.json_lines(rows)
        elif shape:
            sys.stdout.writelines(shape.fill(row) for row in rows)
        else:
            found = list(rows)
    if not (as_json or shape):
        views.messages(render.terminal(), found)


@app.command(
    epilog="Examples: mqlog find /data/store --key order-4711 · "
    "mqlog find /data/store --id 7F0000010BB818B4AAC28B4D5FBE0000 --json"
)
def find(
    store: Store,
    *,
    key: Annotated[list[str] | None, typer.Option(help="A key; once for each.")] = None,
    message_id: Annotated[
        list[str] | None, typer.Option("--id", help="UNIQ_KEY or offsetMsgId; once for each.")
    ] = None,
    topic: OneTopic = None,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Find messages by key or id, through the index, however many there are."""
    sought = Sought(tuple(key or ()), tuple(message_id or ()))
    rows = find_messages(_take(store, commit_log, topic), sought)
    if as_json:
        found = list(rows)
        render.json_lines(found)
        number = len(found)
    else:
        number = views.cards(render.terminal(), rows)
    if not number:
        sys.stderr.write(f"no message has {' or '.join(map(shown, (*sought.keys, *sought.ids)))}\n")
        raise typer.Exit(FOUND)


@app.command(epilog="Example: mqlog tags /data/store --topic ORDERS")
def tags(
    store: Store,
    *,
    topic: Topic = None,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Count the messages of each tag; --json and --csv also tell the queues apart."""
    snapshot = _take(store, commit_log, topic)
    slices = slices_of(snapshot if topic is not None else _of_users(snapshot))
    parts = count_tags.plan(slices, "*")
    schema = tables.SCHEMAS["tags"]
    batches: list[pa.RecordBatch] = []
    with Bar("Reading") as bar:
        for number, part in enumerate(parts):
            bar(number, len(parts))
            batches += part.batches(schema.names)
    table = pa.Table.from_batches(batches, schema)
    if not _written(table, as_json=as_json, as_csv=as_csv):
        views.tags(render.terminal(), views.rows_of(table))


@app.command(
    epilog="Example: mqlog snapshot /data/store /backup/store-1 && mqlog verify /backup/store-1"
)
def snapshot(
    store: Store,
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A new directory.")],
    *,
    commit_log: CommitLog = None,
) -> None:
    """Copy a store in seconds, also a running broker's: links to full files, bytes of the rest."""
    found = copy_store(store, target, commit_log=tuple(map(str, commit_log or ())))
    views.copied(render.terminal(), found, str(target))


@app.command(epilog="Example: mqlog verify /data/store && echo whole")
def verify(store: Store, *, as_json: AsJson = False) -> None:
    """Check every rule a broker relies on; exit code 1 when one is broken."""
    with Bar("Checking") as bar:
        findings = check(store, told=bar)
    rows = [views.row_of(found) for found in findings]
    if as_json:
        render.json_lines(rows)
    else:
        views.findings(render.terminal(), str(store), rows)
    if any(found.severity == ERROR for found in findings):
        raise typer.Exit(FOUND)


@app.command(
    epilog="Examples: mqlog recover /data/store · mqlog recover /data/store --lock-timeout 30s "
    "--json · mqlog recover /data/store --rebuild && mqlog verify /data/store"
)
def recover(
    store: Store,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make queues and index anew from the CommitLog.")
    ] = False,
    recover_unclean: Annotated[
        bool, typer.Option("--recover-unclean", help="Also where a broker was killed.")
    ] = False,
    allow_no_lease: Annotated[
        bool,
        typer.Option("--allow-no-lease", help="Also where nothing keeps a starting broker out."),
    ] = False,
    lock_timeout: Annotated[
        str, typer.Option(help="Wait so long for a writer or a broker: 500ms, 30s, 5m.")
    ] = "0s",
    staging_dir: Annotated[
        Path | None, typer.Option(help="The stagingDir of the write, if it had one.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(help="Of a commit whose log expired: published, or lost. See the message."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Finish what a killed write left. Writes do the same by themselves when they begin."""
    if assume is not None and assume not in STATES:
        raise InvalidOptionError("--assume", assume, f"must be {' or '.join(STATES)}")
    settings = RecoverSettings(
        lock_timeout_ms=grammar.duration("--lock-timeout", lock_timeout),
        allow_no_lease=allow_no_lease,
        recover_unclean=recover_unclean,
        rebuild=rebuild,
        staging_dir=str(staging_dir) if staging_dir else None,
        assume=assume,
    )
    found = recover_store(store, settings)
    if as_json:
        render.json_lines([mended.row(found)])
    else:
        mended.show(render.terminal(), str(store), found)


@app.command(epilog="Example: mqlog doctor /data/store")
def doctor(
    store: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="Look at this store too.")
    ] = None,
) -> None:
    """Look for what keeps Spark from finding the source, or from reading a store."""
    found = list(examine(store))
    views.diagnoses(render.terminal(), found)
    if any(diagnosis.severity == ERROR for diagnosis in found):
        raise typer.Exit(FOUND)


@app.command(epilog="Example: mqlog demo")
def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Keep the store here; must be new or empty."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save what is shown of it, as SVG.")
    ] = None,
) -> None:
    """Write a store with Spark, read it back, and show its topics, messages and backlog."""
    from mqlog_jobs.demo import run

    run(directory, picture)


def main() -> None:
    """Run the command; errors that a person can mend are one line, not a traceback."""
    try:
        app()
    except (StoreError, JavaNotFoundError) as error:
        sys.stderr.write(f"mqlog: {error}\n")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # The reader of the pipe has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FOUND)


def _take(store: Path, commit_log: list[Path] | None, topic: str | None = None) -> Snapshot:
    wanted = None if topic is None else (lambda name: name == topic)
    return take(store, commit_log=tuple(map(str, commit_log or ())), topics=wanted)


def _of_users(snapshot: Snapshot) -> Snapshot:
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
    """Write the rows for a program, if that was asked for."""
    if as_json and as_csv:
        raise InvalidOptionError("--csv", "--json", "choose one of the two")
    if as_json:
        render.json_lines(views.rows_of(batch))
    elif as_csv:
        render.comma_separated(batch.schema.names, views.rows_of(batch))
    return as_json or as_csv

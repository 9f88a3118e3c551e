"""The commands of ``mqlog`` that show messages: backlog, topics, queues, cat, find, tags.

Each takes directories of stores and addresses of clusters: see mqlog_jobs.places.

A command's parameters are its arguments and options; what does the work is imported when it runs.
mqlog_jobs.maintenance has the commands that copy, check and repair a store.
"""

# ruff: noqa: PLC0415, PLR0913

from typing import Annotated

import typer

from mqlog_jobs.app import command
from mqlog_jobs.parameters import (
    AsCsv,
    AsJson,
    CommitLog,
    OnCorrupt,
    OneTopic,
    Options,
    QueueArgument,
    Stores,
    StoresOfTopics,
    System,
    SystemGroups,
    Topic,
)


@command(
    epilog="Examples: mqlog backlog /data/store -g CG_SHOP --subscription 'paid || sent' · "
    "mqlog backlog rocketmq://ns1:9876 --watch --interval 5"
)
def backlog(
    stores: Stores,
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
    from mqlog_jobs import show_backlog
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form
    from mqstore.backlog import BacklogRequest

    if not repeat:
        show_backlog.check_no_watching(interval, number)
    expressions = () if subscription is None else (subscription,)
    subscriptions = show_backlog.subscriptions_of(group, expressions)
    show_backlog.backlog(
        Named.of(stores, commit_log, options),
        BacklogRequest(groups=group, subscriptions=subscriptions, by_tag=by_tag),
        Form(as_json, as_csv),
        show_backlog.Watching.of(interval, number) if repeat else None,
        system=system,
    )


@command(epilog="Examples: mqlog topics /data/store --json · mqlog topics rocketmq://ns1:9876")
def topics(
    stores: Stores,
    *,
    system: System = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the topics: permissions, queues, messages, bytes."""
    from mqlog_jobs import show
    from mqlog_jobs.places import Named

    named = Named.of(stores, commit_log, options)
    show.topics(named, show.Form(as_json, as_csv), system=system)


@command(epilog="Example: mqlog queues /data/store --topic ORDERS")
def queues(
    stores: Stores,
    *,
    topic: Topic = None,
    system: System = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the queues: offsets, messages, bytes, times of the first and the last message."""
    from mqlog_jobs import show
    from mqlog_jobs.places import Named

    named = Named.of(stores, commit_log, options)
    show.queues(named, show.Form(as_json, as_csv), topic, system=system)


@command(
    epilog="Examples: mqlog cat /data/store ORDERS -n 5 · mqlog cat /data/store ORDERS/2@-3 · "
    "mqlog cat /data/store ORDERS --tag paid --since -1h -n 0 -f '{keys} {body}'"
)
def cat(
    stores: StoresOfTopics,
    place: QueueArgument,
    *,
    tag: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='SQL92 of properties, "a > 5".')] = None,
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
    from mqlog_jobs import messages
    from mqlog_jobs.places import Named
    from mqlog_jobs.queries import MessageQuery

    form = messages.MessageForm.of(as_json=as_json, line=line)
    query = MessageQuery(place, tag, sql, tuple(key or ()), since, until, on_corrupt)
    messages.cat(Named.of(stores, commit_log, options), query, form, number)


@command(
    epilog="Examples: mqlog find /data/store --key order-4711 · "
    "mqlog find /data/store --id 7F0000010BB818B4AAC28B4D5FBE0000 --json"
)
def find(
    stores: Stores,
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
    from mqlog_jobs import messages
    from mqlog_jobs.places import Named
    from mqlog_jobs.queries import KeyQuery

    query = KeyQuery(tuple(key or ()), tuple(message_id or ()))
    named = Named.of(stores, commit_log, options)
    messages.find(named, query, topic, on_corrupt, as_json=as_json)


@command(epilog="Example: mqlog tags /data/store --topic ORDERS")
def tags(
    stores: Stores,
    *,
    topic: Topic = None,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Count the messages of each tag; --json and --csv have a row for each queue."""
    from mqlog_jobs import show
    from mqlog_jobs.places import Named

    named = Named.of(stores, commit_log, options)
    show.tags(named, show.Form(as_json, as_csv), topic)

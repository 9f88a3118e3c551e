"""The commands of ``mqlog`` that show messages and the backlog: backlog, cat, find.

Each takes directories of stores and addresses of clusters: see mqlog_jobs.places.

A command's parameters are its arguments and options; what does the work is imported when it runs.
mqlog_jobs.command.maintenance has the commands that copy, check and repair a store.
"""

# ruff: noqa: PLC0415, PLR0913

from typing import TYPE_CHECKING, Annotated

import typer

from mqlog_jobs.command.app import FIRST_STEPS
from mqlog_jobs.command.parameters import (
    ByTag,
    Groups,
    LateAfter,
    OnCorrupt,
    OneTopic,
    PrometheusFile,
    QueueArgument,
    Since,
    StoresOfTopics,
    Subscriptions,
    SystemGroups,
    Topic,
    Until,
)
from mqlog_jobs.command.place_command import place_command

if TYPE_CHECKING:
    from mqlog_jobs.output.form import Form
    from mqlog_jobs.places import Named


@place_command(
    FIRST_STEPS,
    "mqlog backlog /data/store -g CG_WAREHOUSE --subscription 'paid || sent'",
    "mqlog backlog /data/store --summary --by-tag",
    "mqlog backlog '/data/brokers/*/store' --summary --sort lag --fail-above 10000",
    "mqlog backlog rocketmq://ns1:9876 --watch --interval 5",
    "mqlog backlog rocketmq://ns1:9876 --quiet --prometheus /var/lib/node_exporter/backlog.prom",
)
def backlog(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    subscription: Subscriptions = None,
    sql: Annotated[
        str | None, typer.Option(help='SQL92 that the groups of -g subscribe with, "a > 5".')
    ] = None,
    by_tag: ByTag = False,
    late_after: LateAfter = None,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", help="One line for each group; with --by-tag for each of its tags."
        ),
    ] = False,
    sort: Annotated[
        str, typer.Option(metavar="name|lag", help="Order; lag: the largest first.")
    ] = "name",
    above: Annotated[
        int | None,
        typer.Option(
            "--fail-above",
            min=0,
            metavar="N",
            help="Exit code 3 if a group has more than N messages waiting that match.",
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q", "--quiet", help="Print no rows: with --fail-above what is above, else nothing."
        ),
    ] = False,
    gauges: PrometheusFile = None,
    repeat: Annotated[
        bool, typer.Option("--watch", help="Repeat the measurement until interrupted.")
    ] = False,
    interval: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds between two measurements; default 2.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--count", min=0, help="Stop after so many; 0: never.")
    ] = None,
    system: SystemGroups = False,
) -> None:
    """Show the messages that consumer groups have not consumed yet."""
    from mqlog_jobs.work import show_backlog
    from mqstore.options.grammar import Sql92

    expressions = [*(subscription or ()), *([] if sql is None else [Sql92(sql)])]
    query = show_backlog.BacklogQuery.of(
        groups, topic, expressions, system=system, by_tag=by_tag, late_after=late_after
    )
    report = show_backlog.BacklogReport(form, sort, summary, above, quiet, gauges)
    watching = show_backlog.Watching.of(interval, number, repeat=repeat)
    show_backlog.backlog(named, query, report, watching)


@place_command(
    FIRST_STEPS,
    "mqlog cat /data/store SHOP_ORDERS -n 5",
    "mqlog cat /data/store SHOP_ORDERS/2@-3",
    "mqlog cat /data/store SHOP_ORDERS --tag paid --since -1h -n 0 -f '{keys} {body}'",
    "mqlog cat rocketmq://ns1:9876 SHOP_ORDERS --follow",
    stores=StoresOfTopics,
    without=("as_csv",),
    takes_reads=True,
)
def cat(
    named: "Named",
    form: "Form",
    place: QueueArgument,
    *,
    tag: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='SQL92 of properties, "a > 5".')] = None,
    key: Annotated[list[str] | None, typer.Option(help="A message key; may be repeated.")] = None,
    since: Since = None,
    until: Until = None,
    number: Annotated[
        int | None,
        typer.Option(
            "-n", min=0, help="Print at most so many; 0: all. Default 20, and all with --follow."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Print what is stored from now on, or from --since or @OFFSET."
        ),
    ] = False,
    line: Annotated[
        str | None,
        typer.Option("-f", "--format", help="A line for each, columns in braces: '{keys} {body}'."),
    ] = None,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Bodies as hexadecimal.")] = False,
    base64: Annotated[bool, typer.Option("--base64", help="Bodies as base64.")] = False,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Print messages, in the order the broker stored them."""
    from mqlog_jobs.work import messages
    from mqlog_jobs.work.queries import change_columns
    from mqstore.read.message_query import MessageQuery

    lines = messages.MessageForm.of(
        as_json=form.as_json,
        line=line,
        hexadecimal=hexadecimal,
        base64=base64,
        changes=change_columns(named),
    )
    query = MessageQuery(place, tag, sql, tuple(key or ()), since, until, on_corrupt)
    if follow:
        messages.follow(named, query, lines, number or 0)
    else:
        messages.cat(named, query, lines, 20 if number is None else number)


@place_command(
    FIRST_STEPS,
    "mqlog find /data/store --key order-4711",
    "mqlog find '/data/brokers/*/store' --key order-4711 --since -1d --json",
    "mqlog find rocketmq://ns1:9876 --key order-4711 --trace",
    without=("as_csv",),
    takes_reads=True,
)
def find(
    named: "Named",
    form: "Form",
    *,
    key: Annotated[list[str] | None, typer.Option(help="A message key; may be repeated.")] = None,
    message_id: Annotated[
        list[str] | None, typer.Option("--id", help="UNIQ_KEY or offsetMsgId; may be repeated.")
    ] = None,
    topic: OneTopic = None,
    since: Since = None,
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Show the life of each message, by what clients traced."),
    ] = False,
    trace_topic: Annotated[
        str | None, typer.Option("--trace-topic", help="With --trace; RMQ_SYS_TRACE_TOPIC.")
    ] = None,
    on_corrupt: OnCorrupt = "rescue",
) -> None:
    """Find all messages with a key or an id, through the index."""
    from mqlog_jobs.work import messages, timeline
    from mqlog_jobs.work.queries import KeyQuery
    from mqstore.errors import InvalidOptionError

    query = KeyQuery(tuple(key or ()), tuple(message_id or ()), topic, since)
    if trace_topic is not None and not trace:
        raise InvalidOptionError("--trace-topic", trace_topic, "is for find with --trace")
    if trace:
        timeline.show(named, query, trace_topic, as_json=form.as_json)
        return
    messages.find(named, query, on_corrupt, as_json=form.as_json)


@place_command(
    FIRST_STEPS,
    "mqlog schema /data/store SHOP_ORDERS",
    "mqlog schema rocketmq://ns1:9876 SHOP_ORDERS --sample 10000 --json",
    "mqlog schema /data/store SHOP_ORDERS --ddl -o tags=paid > orders.ddl",
    "mqlog schema /data/store SHOP_ORDERS -o bodySchema=./orders.ddl",
    stores=StoresOfTopics,
    without=("as_csv",),
    takes_reads=True,
)
def schema(
    named: "Named",
    form: "Form",
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", help="About so many bodies, over the whole topic.")
    ] = 3_000,
    ddl: Annotated[bool, typer.Option("--ddl", help="Print the DDL alone, for a file.")] = False,
) -> None:
    """Print a schema for the bodies of a topic, how many fit, and what is not sure.

    With -o bodySchema=… that schema is checked.
    """
    from mqlog_jobs.work import body_schema

    body_schema.show(named, form, topic, body_schema.SchemaRequest(sample, only_ddl=ddl))

"""The commands of ``mqlog`` that say how long messages take, and why groups are behind."""

# ruff: noqa: PLC0415, PLR0913

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mqlog_jobs.app import VIEWS
from mqlog_jobs.parameters import (
    Groups,
    OnCorrupt,
    Since,
    Subscriptions,
    SystemGroups,
    Topic,
    Until,
)
from mqlog_jobs.place_command import place_command

if TYPE_CHECKING:
    from mqlog_jobs.form import Form
    from mqlog_jobs.places import Named


@place_command(
    VIEWS,
    "mqlog latency rocketmq://ns1:9876 -t ORDERS -g CG_SHOP --since -1h",
    "mqlog latency /data/store -t ORDERS --interval 10m --json",
)
def latency(
    named: "Named",
    form: "Form",
    *,
    topic: Topic = None,
    groups: Groups = None,
    since: Since = None,
    until: Until = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="A line for each 10s, 5m, 1h of messages.")
    ] = None,
    by_queue: Annotated[bool, typer.Option("--by-queue", help="A line for each queue.")] = False,
    trace_topic: Annotated[
        str | None, typer.Option("--trace-topic", help="Default: RMQ_SYS_TRACE_TOPIC.")
    ] = None,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Show how long messages took until stored, delivered and worked on, by clients' traces."""
    from mqlog_jobs.show_table import TableQuery, show_table

    options = {
        "subscribe": None if topic is None else json.dumps([topic]),
        "groups": groups,
        "startingTimestamp": since,
        "endingTimestamp": until,
        "interval": interval,
        "byQueue": "true" if by_queue else None,
        "traceTopic": trace_topic,
        "onCorrupt": on_corrupt,
    }
    show_table(named, form, TableQuery("latency", options))


@place_command(
    VIEWS,
    "mqlog why rocketmq://ns1:9876 -g CG_SHOP --look-again 15s",
    "mqlog why /data/store -g CG_SHOP --subscription 'paid || sent' --json",
)
def why(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    subscription: Subscriptions = None,
    look_again: Annotated[
        str | None,
        typer.Option(
            "--look-again",
            metavar="TIME",
            help="Wait so long, look at the offsets again, and compare: 15s. Members of a group "
            "commit every five seconds.",
        ),
    ] = None,
    reserved: Annotated[
        str | None,
        typer.Option(
            "--file-reserved-time",
            metavar="TIME",
            help="The broker's fileReservedTime, 72h: a store does not have it, a cluster says it.",
        ),
    ] = None,
    system: SystemGroups = False,
) -> None:
    """Say why consumer groups are behind: each reason with the numbers that show it."""
    from mqlog_jobs.show_backlog import subscriptions_of
    from mqlog_jobs.verdict_view import show_verdicts

    expressions = subscriptions_of(groups, subscription or ())
    options = {
        "subscribe": None if topic is None else json.dumps([topic]),
        "groups": groups,
        "subscriptions": json.dumps(expressions) if expressions else None,
        "lookAgain": look_again,
        "fileReservedTime": reserved,
    }
    show_verdicts(named, form, options, system=system)

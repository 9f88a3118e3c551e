"""The commands of ``mqlog`` that say how long messages take."""

# ruff: noqa: PLC0415, PLR0913

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mqlog_jobs.app import VIEWS
from mqlog_jobs.parameters import Groups, OnCorrupt, Since, Topic, Until
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
    """Show how long messages took: until stored, delivered, worked on; by clients' traces."""
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

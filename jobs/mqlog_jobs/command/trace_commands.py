"""The commands of ``mqlog`` about times: latency, why, forecast, record."""

# ruff: noqa: PLC0415, PLR0913

import json
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mqlog_jobs.command.app import VIEWS
from mqlog_jobs.command.parameters import (
    Groups,
    LateAfter,
    OnCorrupt,
    PrometheusFile,
    Since,
    Subscriptions,
    SystemGroups,
    Topic,
    TraceTopic,
    Until,
)
from mqlog_jobs.command.place_command import place_command

if TYPE_CHECKING:
    from mqlog_jobs.output.form import Form
    from mqlog_jobs.places import Named


@place_command(
    VIEWS,
    "mqlog latency rocketmq://ns1:9876 -t SHOP_ORDERS -g CG_WAREHOUSE --since -1h",
    "mqlog latency /data/store -t SHOP_ORDERS --interval 10m --json",
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
    trace_topic: TraceTopic = None,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Show how long messages took until stored, delivered and worked on, by clients' traces."""
    from mqlog_jobs.work.show_table import TableQuery, show_table

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


LookAgain: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--look-again",
        metavar="TIME",
        help="Wait so long, look at the offsets again, and compare: 15s. Members of a group "
        "commit every five seconds.",
    ),
]
Samples: TypeAlias = Annotated[
    str | None,
    typer.Option("--samples", metavar="FILE", help="Compare with what mqlog record wrote there."),
]
Reserved: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--file-reserved-time",
        metavar="TIME",
        help="The broker's fileReservedTime, 72h: a store does not have it, a cluster says it.",
    ),
]
BrokerConf: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--broker-conf",
        metavar="FILE",
        help="The broker's broker.conf: when it deletes files. A cluster says it.",
    ),
]


@place_command(
    VIEWS,
    "mqlog why rocketmq://ns1:9876 -g CG_WAREHOUSE --look-again 15s",
    "mqlog why /data/store -g CG_WAREHOUSE --subscription 'paid || sent' --json",
)
def why(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    subscription: Subscriptions = None,
    look_again: LookAgain = None,
    samples: Samples = None,
    reserved: Reserved = None,
    broker_conf: BrokerConf = None,
    system: SystemGroups = False,
) -> None:
    """Say why consumer groups are behind: each reason with the numbers that show it."""
    from mqlog_jobs.work.show_backlog import subscriptions_of
    from mqlog_jobs.work.verdict_view import show_verdicts

    expressions = subscriptions_of(groups, subscription or ())
    options = {
        "subscribe": None if topic is None else json.dumps([topic]),
        "groups": groups,
        "subscriptions": json.dumps(expressions) if expressions else None,
        "lookAgain": look_again,
        "samples": samples,
        "fileReservedTime": reserved,
        "brokerConf": broker_conf,
    }
    show_verdicts(named, form, options, system=system)


@place_command(
    VIEWS,
    "mqlog forecast rocketmq://ns1:9876 -g CG_WAREHOUSE --look-again 30s",
    "mqlog forecast /data/store --samples samples.parquet --broker-conf /opt/rocketmq/broker.conf",
)
def forecast(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    look_again: LookAgain = None,
    samples: Samples = None,
    reserved: Reserved = None,
    broker_conf: BrokerConf = None,
    prometheus: PrometheusFile = None,
    late_after: LateAfter = None,
    system: SystemGroups = False,
) -> None:
    """Foresee when groups have caught up, and when what waits will be deleted."""
    from mqlog_jobs.work.forecasting import ForecastQuery, show_forecast

    query = ForecastQuery(
        groups, topic, look_again, samples, reserved, broker_conf, system, late_after
    )
    show_forecast(named, form, query, prometheus)


@place_command(
    VIEWS,
    "mqlog record rocketmq://ns1:9876 --every 30s samples.parquet",
    "mqlog record /data/store --every 30s --max-size 1g -g CG_WAREHOUSE samples.parquet",
    without=("as_csv",),
)
def record(
    named: "Named",
    form: "Form",
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A directory of Parquet files; made if it is not there."
        ),
    ],
    *,
    every: Annotated[str, typer.Option(metavar="TIME", help="A sample so often: 30s, 5m.")] = "30s",
    number: Annotated[
        int, typer.Option("--count", min=0, help="Stop after so many samples; 0: never.")
    ] = 0,
    max_size: Annotated[
        str,
        typer.Option("--max-size", metavar="SIZE", help="Beyond it the oldest samples go: 256m."),
    ] = "256m",
    groups: Groups = None,
    topic: Topic = None,
    reserved: Reserved = None,
    broker_conf: BrokerConf = None,
    prometheus: PrometheusFile = None,
    system: SystemGroups = False,
) -> None:
    """Keep samples of the offsets of groups, for rates: why, forecast and any reader of Parquet."""
    from mqlog_jobs.work.forecasting import ForecastQuery
    from mqlog_jobs.work.recording import RecordingPlan, record_samples

    query = ForecastQuery(groups, topic, None, file, reserved, broker_conf, system)
    plan = RecordingPlan.of(file, every, number, max_size, prometheus)
    record_samples(named, form, query, plan)

"""The commands of ``mqlog`` that show whole stores at a glance: report and top.

What does the work is imported when a command runs.
"""

# ruff: noqa: PLC0415, PLR0913

from pathlib import Path
from typing import Annotated

import typer

from mqlog_jobs.command.app import FIRST_STEPS, command
from mqlog_jobs.command.parameters import (
    OF_A_CLUSTER,
    AsJson,
    CommitLog,
    LateAfter,
    Options,
    Stores,
    SystemGroups,
    Topic,
    TraceTopic,
)
from mqlog_jobs.top.orders import TOP_ORDERS
from mqstore.errors import InvalidOptionError


def _known_order(value: str) -> str:
    if value not in TOP_ORDERS:
        raise InvalidOptionError("--sort", value, f"must be one of {', '.join(TOP_ORDERS)}")
    return value


@command(
    FIRST_STEPS,
    "mqlog report /data/store",
    "mqlog report '/data/brokers/*/store' -o brokers.html --verify",
    "mqlog report rocketmq://ns1:9876 --samples samples.parquet",
)
def report(
    stores: Stores,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The page to write; an existing file is replaced, - is standard output. Default: "
            "report.html, if there is none yet.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option("-g", "--group", help="Groups: a comma list, or /regex/.")
    ] = None,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Check every rule that a broker relies on; default: up to 1 GiB of CommitLog.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lag over time, from what mqlog record wrote."),
    ] = None,
    trace_topic: TraceTopic = None,
    late_after: LateAfter = None,
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help=OF_A_CLUSTER)
    ] = None,
) -> None:
    """Write a page for a browser: backlog, latency, rates, topics, tags, files, findings of verify.

    Its time is bounded: where a store is large it looks at a sample, and the page says so.
    """
    from mqlog_jobs.places import Named
    from mqlog_jobs.report.write import ReportArguments, report_to_file

    given = ReportArguments(group, system, verify, samples, trace_topic, late_after)
    report_to_file(Named.of(stores, commit_log, options), given, output)


@command(
    FIRST_STEPS,
    "mqlog top /data/store",
    "mqlog top rocketmq://ns1:9876 --sort time",
    "mqlog top /data/store --json --interval 10",
)
def top(
    stores: Stores,
    *,
    sort: Annotated[
        str,
        typer.Option(
            metavar="|".join(TOP_ORDERS),
            callback=_known_order,
            help="What comes first: most waiting, most stored, most consumed, longest to catch up.",
        ),
    ] = TOP_ORDERS[0],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    frames: Annotated[
        int, typer.Option("--count", min=0, help="End after so many frames; 0: never.")
    ] = 0,
    group: Annotated[
        str | None, typer.Option("-g", "--group", help="Groups: a comma list, or /regex/.")
    ] = None,
    topic: Topic = None,
    late_after: LateAfter = None,
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Show what is stored and consumed a second, the lag, and when groups have caught up.

    On a terminal it fills the screen until q ends it. The key / filters groups and topics, Enter
    shows the queues of a group.

    In a pipe, or with --json, it looks twice, an interval apart, and prints the second look; with
    --count more of them. So it does on a terminal that cannot be redrawn (TERM=dumb), without end.
    """
    from mqlog_jobs.places import Named
    from mqlog_jobs.top import show
    from mqlog_jobs.top.view import Sorting
    from mqlog_jobs.work.show_backlog import late_after_ms

    request = show.TopRequest(
        group,
        Sorting(sort),
        interval,
        frames,
        system=system,
        topic=topic,
        late_after_ms=late_after_ms(late_after),
    )
    show.top(Named.of(stores, commit_log, options), request, as_json=as_json)

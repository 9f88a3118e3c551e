"""The commands of ``mqlog`` that show whole stores at a glance: report and top.

What does the work is imported when a command runs.
"""

# ruff: noqa: PLC0415, PLR0913

from pathlib import Path
from typing import Annotated

import typer

from mqlog_jobs.command.app import VIEWS, command
from mqlog_jobs.command.parameters import (
    OF_A_CLUSTER,
    AsJson,
    CommitLog,
    Options,
    Stores,
    SystemGroups,
    Topic,
    TraceTopic,
)
from mqlog_jobs.top.orders import TOP_ORDERS
from mqstore.errors import InvalidOptionError, shown


def _known_order(value: str) -> str:
    if value not in TOP_ORDERS:
        raise InvalidOptionError("--sort", value, f"must be one of {', '.join(TOP_ORDERS)}")
    return value


@command(
    VIEWS,
    "mqlog report /data/store",
    "mqlog report '/data/brokers/*/store' -o brokers.html --verify",
    "mqlog report rocketmq://ns1:9876 --samples samples.parquet",
)
def report(
    stores: Stores,
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
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
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help=OF_A_CLUSTER)
    ] = None,
) -> None:
    """Write a page for a browser: backlog, latency, rates, topics, tags, files, findings of verify.

    Its time is bounded: where a store is large it looks at a sample, and the page says so.
    """
    from mqlog_jobs.output.amounts import several, size
    from mqlog_jobs.output.progress import Bar
    from mqlog_jobs.output.render import terminal
    from mqlog_jobs.output.whole_file import check_file
    from mqlog_jobs.places import Named
    from mqlog_jobs.report.gather import ReportRequest
    from mqlog_jobs.report.lag_history import HistoryQuery
    from mqlog_jobs.report.write import write_report
    from mqstore.request.places import LIVE, OBJECTS

    name = output.name.partition("=")[0]
    if "=" in output.name and name in {one.name for one in (*LIVE.values(), *OBJECTS.values())}:
        expected = "is the file of the page here: an option of a cluster is --option NAME=VALUE"
        raise InvalidOptionError("-o", f"{name}=…", expected)
    check_file(output)
    named = Named.of(stores, commit_log, options)
    told = None if samples is None else HistoryQuery(str(samples.absolute()), group, system)
    history = None if told is None else told.read(named)
    request = ReportRequest(group, system, verify, history, trace_topic)
    with named.opened(damaged=True) as found, Bar("Checking") as bar:
        written = write_report(found, request, output, bar)
    waiting = (
        f"{several(written.waiting, 'message')} waiting for {several(written.groups, 'group')}"
    )
    line = f"{shown(output)}: {size(written.bytes)}; {waiting}"
    if written.errors:
        line += f"; verify found {several(written.errors, 'error')}"
    terminal().print(line, markup=False, soft_wrap=True)


@command(
    VIEWS,
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
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Show what is stored and consumed a second, the lag, and when groups have caught up.

    On a terminal it fills the screen until q ends it. The key / filters groups and topics, Enter
    shows the queues of a group.

    In a pipe, or with --json, it looks twice, an interval apart, and prints the second look.
    """
    from mqlog_jobs.places import Named
    from mqlog_jobs.top import show
    from mqlog_jobs.top.view import Sorting

    request = show.TopRequest(group, Sorting(sort), interval, frames, system=system, topic=topic)
    show.top(Named.of(stores, commit_log, options), request, as_json=as_json)

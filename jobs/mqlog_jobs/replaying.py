"""The command ``mqlog replay``: messages of a store or a cluster to a cluster, exactly once."""

# ruff: noqa: PLC0415, PLR0913

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqlog_jobs.app import command
from mqlog_jobs.parameters import AsJson, FromLog, Since, Until, topics_like
from mqlog_jobs.sending import pairs

if TYPE_CHECKING:
    from mqlog_jobs.replay_plan import ReplayRequest


@command(
    epilog="Examples: mqlog replay /data/broker-a/store rocketmq://ns1:9876 --topic ORDERS "
    "--since 2026-11-20T10:00Z --rate 500 --dry-run · "
    "mqlog replay rocketmq://ns1:9876 rocketmq://ns1:9876 --topic '%DLQ%CG_SHOP' --to-origin"
)
def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A store directory, a glob of several in quotes, or a cluster.",
            show_default=False,
        ),
    ],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The cluster to send to: rocketmq://HOST:9876.")
    ],
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC[/QUEUE[@OFFSET]]",
            help="What to send; may be repeated. Default: all users' topics.",
            autocompletion=topics_like,
        ),
    ] = None,
    tag: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    sql: Annotated[str | None, typer.Option(help='SQL92 of properties, "a > 5".')] = None,
    key: Annotated[list[str] | None, typer.Option(help="A message key; may be repeated.")] = None,
    since: Since = None,
    until: Until = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Send all to this topic. Default: the same.")
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="TOPIC=TOPIC", help="Send the one to the other; repeatable."),
    ] = None,
    to_origin: Annotated[
        bool,
        typer.Option(
            "--to-origin", help="Send dead letters and retries to the topics they came from."
        ),
    ] = False,
    create_topic: Annotated[
        bool,
        typer.Option("--create-topic", help="Make topics that are not there, the control's too."),
    ] = False,
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most N messages a second.")
    ] = None,
    byte_rate: Annotated[
        str | None, typer.Option(metavar="SIZE", help="At most so many bytes a second: 500k, 5m.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be sent where; send nothing.")
    ] = False,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once", help="Send all in each run; a run that was killed leaves its part."
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Tells this replay from another of the same messages: sends them again."),
    ] = None,
    offset_map: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT:DIR",
            help="Write where each message was and is now: parquet:DIR, csv:DIR or json:DIR.",
        ),
    ] = None,
    on_corrupt: Annotated[
        str, typer.Option(metavar="fail|skip", help="At a broken message: fail, or leave it out.")
    ] = "fail",
    commit_log: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A CommitLog folder of SOURCE, if not commitlog."),
    ] = None,
    from_log: FromLog = False,
    source_options: Annotated[
        list[str] | None,
        typer.Option(
            "--source-option", metavar="NAME=VALUE", help="Of SOURCE, a cluster; may be repeated."
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="NAME=VALUE",
            help="Of the write to ADDRESS, such as compression=zlib, sendTimeout=10s or "
            "credentialsFile=FILE; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send messages of a store or a cluster again, to a cluster: each once, in their order."""
    from mqlog_jobs.places import Named
    from mqlog_jobs.replay_plan import ReplayRequest, topic_map

    given = dict(pairs("--option", options or ()))
    if create_topic:
        given["createTopic"] = "true"
    request = ReplayRequest(
        source=Named.of([source], commit_log, source_options, from_log=from_log),
        address=address,
        places=tuple(topic or ()),
        tags=tag,
        sql=sql,
        keys=tuple(key or ()),
        since=since,
        until=until,
        on_corrupt=on_corrupt,
        topics=topic_map(to, pairs("--map", renamed or ()), to_origin=to_origin),
        at_least_once=at_least_once,
        name=name,
        rate=rate,
        byte_rate=byte_rate,
        options=given,
    )
    if dry_run:
        _show_plan(request, offset_map, as_json=as_json)
    else:
        _show_done(_replayed(request, offset_map), as_json=as_json)


def _replayed(request: "ReplayRequest", offset_map: str | None) -> dict[str, Any]:
    from mqlog_jobs.offset_files import OffsetFiles, offset_place
    from mqlog_jobs.progress import Bar
    from mqlog_jobs.replay_work import replayed
    from mqstore.replay.run import HereRunner

    target = None if offset_map is None else OffsetFiles(*offset_place("--offset-map", offset_map))
    with Bar("Sending") as bar:
        return replayed(request, HereRunner(), target, bar)


def _show_done(done: dict[str, Any], *, as_json: bool) -> None:
    from mqlog_jobs import render
    from mqlog_jobs.replay_work import said

    if as_json:
        render.json_lines([done])
    else:
        typer.echo(said(done))


def _show_plan(request: "ReplayRequest", offset_map: str | None, *, as_json: bool) -> None:
    from mqlog_jobs import render, views
    from mqlog_jobs.progress import Bar
    from mqlog_jobs.replay_work import planned
    from mqstore.errors import InvalidOptionError

    if offset_map is not None:
        raise InvalidOptionError("--offset-map", offset_map, "not together with --dry-run")
    with Bar("Reading") as bar:
        rows = planned(request, bar)
    if as_json:
        render.json_lines(rows)
    else:
        views.replay_plan(render.terminal(), rows)

"""The command ``mqlog replay``: messages of a store or a cluster to a cluster, exactly once."""

# ruff: noqa: PLC0415, PLR0913

from typing import TYPE_CHECKING, Any

import typer

from mqlog_jobs.command import replay_parameters as p
from mqlog_jobs.command.app import SENDING, command
from mqlog_jobs.command.parameters import AsJson, FromLog, Since, Until
from mqlog_jobs.command.sending import pairs

if TYPE_CHECKING:
    from mqlog_jobs.replays.replay_plan import ReplayArguments


@command(
    SENDING,
    "mqlog replay /data/store rocketmq://ns1:9876 -t SHOP_ORDERS --since -2h --rate 500 --dry-run",
    "mqlog replay rocketmq://ns1:9876 rocketmq://ns1:9876 -t '%DLQ%CG_WAREHOUSE' --to-origin",
    "mqlog replay rocketmq://old:9876 rocketmq://new:9876 --create-topic --groups CG_WAREHOUSE",
)
def replay(
    source: p.Source,
    address: p.Address,
    *,
    topic: p.TopicPlaces = None,
    tag: p.Tag = "*",
    sql: p.Sql = None,
    keys: p.WithKeys = None,
    since: Since = None,
    until: Until = None,
    to: p.ToTopic = None,
    renamed: p.Renamed = None,
    to_origin: p.ToOrigin = False,
    same_topic: p.SameTopic = False,
    create_topic: p.CreateTopic = False,
    rate: p.MessageRate = None,
    byte_rate: p.ByteRate = None,
    dry_run: p.DryRun = False,
    at_least_once: p.AtLeastOnce = False,
    name: p.Name = None,
    offset_map: p.OffsetMap = None,
    groups: p.CarriedGroups = None,
    on_corrupt: p.FailOrSkip = "fail",
    commit_log: p.SourceLog = None,
    from_log: FromLog = False,
    source_options: p.SourceOptions = None,
    options: p.WriteOptions = None,
    as_json: AsJson = False,
) -> None:
    """Send messages of a store or a cluster again, to a cluster: each once, in their order."""
    from mqlog_jobs.places import Named
    from mqlog_jobs.replays.replay_plan import ReplayArguments, rate_of, topic_map, write_options

    request = ReplayArguments.of(
        source=Named.of(
            [source], commit_log, source_options, from_log=from_log, flag="--source-option"
        ),
        address=address,
        groups=groups,
        places=tuple(topic or ()),
        tags=tag,
        sql=sql,
        keys=tuple(keys or ()),
        times=(since, until),
        on_corrupt=on_corrupt,
        topics=topic_map(to, pairs("--map", renamed or (), "OLD=NEW"), to_origin=to_origin),
        same_topic=same_topic,
        at_least_once=at_least_once,
        name=name,
        rate=rate_of(rate, byte_rate),
        options=write_options(pairs("--option", options or ()), create_topic=create_topic),
    )
    if dry_run:
        _show_plan(request, offset_map, as_json=as_json)
    else:
        _show_done(_replayed(request, offset_map), as_json=as_json)


def _replayed(request: "ReplayArguments", offset_map: str | None) -> dict[str, Any]:
    from mqlog_jobs.output.progress import Bar
    from mqlog_jobs.replays.offset_files import OffsetFiles
    from mqlog_jobs.replays.replay_work import replayed
    from mqstore.audit.offset_maps import MapPlace
    from mqstore.deliver.replay.run import HereRunner

    place = None if offset_map is None else MapPlace.of("--offset-map", offset_map)
    target = None if place is None else OffsetFiles(place)
    with Bar("Sending") as bar:
        return replayed(request, HereRunner(), target, bar)


def _show_done(done: dict[str, Any], *, as_json: bool) -> None:
    from mqlog_jobs.output import render, views
    from mqlog_jobs.replays.replay_work import said

    if as_json:
        render.json_lines([done])
    else:
        typer.echo(said(done))
        if done.get("groups"):
            views.carried_groups(render.terminal(), done["groups"])


def _show_plan(request: "ReplayArguments", offset_map: str | None, *, as_json: bool) -> None:
    from mqlog_jobs.output import render, views
    from mqlog_jobs.output.progress import Bar
    from mqlog_jobs.replays.replay_work import groups_planned, planned
    from mqstore.errors import InvalidOptionError

    if offset_map is not None:
        raise InvalidOptionError("--offset-map", offset_map, "not together with --dry-run")
    with Bar("Reading") as bar:
        rows = planned(request, bar)
    carried = groups_planned(request) if request.groups else []
    if as_json:
        render.json_lines([*rows, *carried])
        return
    views.replay_plan(render.terminal(), rows)
    if carried:
        views.carried_groups(render.terminal(), carried)

"""The commands of ``mqlog`` that keep messages: snapshot, history, restore, prune.

What does the work is imported when a command runs.
"""

# ruff: noqa: PLC0415, PLR0913

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from mqlog_jobs.command.app import KEEP, command
from mqlog_jobs.command.parameters import (
    AsJson,
    CommitLog,
    Options,
    Store,
    new_directory,
    paths_of,
)
from mqlog_jobs.machine.codes import FOUND
from mqstore.errors import InvalidOptionError

if TYPE_CHECKING:
    from mqlog_jobs.work.keep_views import Guarding

Repository: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="REPO",
        help="The repository: a directory, best on another disk, or s3://BUCKET/FOLDER.",
        show_default=False,
    ),
]
_KEEP_HELP: Final = (
    "Which points stay, AGE:STEP: 24h:1h,30d:1d keeps the last of each hour of a day, and the last "
    "of each day of a month."
)


@command(
    KEEP,
    "mqlog snapshot /data/store /backup/broker-a",
    "mqlog snapshot /data/store s3://backup/broker-a --keep 24h:1h,30d:1d",
    "mqlog snapshot /data/store /data/kept --every 30s --hold-max 200GB",
)
def snapshot(
    store: Store,
    repository: Repository,
    *,
    keep: Annotated[
        str | None, typer.Option(metavar="AGE:STEP,...", help=f"Prune afterwards. {_KEEP_HELP}")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Make a point again and again: 30s, 5m; Ctrl-C ends."),
    ] = None,
    hold_max: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="With --every: remove the oldest points while the repository holds more than "
            "this that no store has any more, such as 200GB; exit code 1 at the end.",
        ),
    ] = None,
    number: Annotated[
        int, typer.Option("--count", min=0, help="With --every: stop after so many; 0: never.")
    ] = 0,
    accept_clock: Annotated[
        bool,
        typer.Option(
            "--accept-clock",
            help="Accept a clock that is more than a day ahead of the last point and of the store.",
        ),
    ] = False,
    accept_other_store: Annotated[
        bool,
        typer.Option(
            "--accept-other-store",
            help="Accept a store whose CommitLog does not go on from the last point.",
        ),
    ] = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Add a point to a store's history, also of a running broker: only new bytes are taken."""
    from mqlog_jobs.work import keep_views
    from mqstore.copy.point_continues import Accepted

    if every is None and (hold_max is not None or number):
        flag, text = ("--hold-max", hold_max) if hold_max is not None else ("--count", number)
        raise InvalidOptionError(flag, str(text), "is for --every")
    accepted = Accepted(accept_other_store, accept_clock)
    guarding: Guarding = keep_views.guarding(every, hold_max, number, keep, accepted)
    if keep_views.points(store, repository, paths_of(commit_log), options, guarding, as_json):
        raise typer.Exit(FOUND)


@command(KEEP, "mqlog history /backup/broker-a")
def history(repository: Repository, *, options: Options = None, as_json: AsJson = False) -> None:
    """List the points of a repository, and what each added."""
    from mqlog_jobs.output import render
    from mqlog_jobs.work import keep_views

    heads = keep_views.heads(repository, options)
    if as_json:
        render.json_lines(map(keep_views.row_of_point, heads))
    else:
        keep_views.history(render.terminal(), repository, heads)


@command(
    KEEP,
    "mqlog restore /backup/broker-a@2026-11-22T09:00Z /data/restored",
    "mqlog restore s3://backup/broker-a@latest /data/restored",
)
def restore(
    point: Annotated[
        str,
        typer.Argument(
            metavar="REPO@POINT",
            help="A point: REPO@latest, its number REPO@3, or a time REPO@2026-11-22T09:00Z.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="DEST", help="A new directory.", callback=new_directory)
    ],
    *,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Write a point as a store that a broker of its version opens; all bytes are checked."""
    from mqlog_jobs.output import render, views
    from mqlog_jobs.output.progress import Bar
    from mqlog_jobs.work import keep_views
    from mqstore.copy.restore_point import restore_point

    found = keep_views.point(point, options)
    with Bar("Restoring") as bar:
        restored = restore_point(found, target, bar)
    if as_json:
        render.json_lines([views.row_of_copy(restored, str(target))])
    else:
        views.copied(render.terminal(), restored, str(target))


@command(
    KEEP,
    "mqlog prune /backup/broker-a --keep 24h:1h,30d:1d --dry-run",
    "mqlog prune /backup/broker-a --point 17",
)
def prune(
    repository: Repository,
    *,
    keep: Annotated[str | None, typer.Option(metavar="AGE:STEP,...", help=_KEEP_HELP)] = None,
    point: Annotated[
        list[int] | None,
        typer.Option(metavar="NUMBER", min=1, help="Remove this point; several: name it again."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the points that would go.")
    ] = False,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Remove points that no rule keeps, or named ones, and the bytes that no other point needs."""
    from mqlog_jobs.output import render
    from mqlog_jobs.work import keep_views
    from mqstore.copy.keep_rules import parse_keep
    from mqstore.copy.prune_points import prune_named, prune_points

    if bool(keep) == bool(point):
        raise InvalidOptionError("--keep", keep or "", "give either --keep or --point")
    rules = parse_keep("--keep", keep) if keep else ()
    backing = keep_views.repository(repository, options).backing
    if point:
        pruned = prune_named(backing, point, dry_run=dry_run)
    else:
        pruned = prune_points(backing, rules, dry_run=dry_run)
    if as_json:
        render.json_lines(map(keep_views.row_of_point, pruned.gone))
    else:
        keep_views.pruned(render.terminal(), repository, pruned, dry_run=dry_run)

"""The commands of ``mqlog`` that copy, check and repair a store; doctor and demo.

What does the work is imported when a command runs; only ``demo`` needs Spark.
"""

# ruff: noqa: PLC0415, PLR0913

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from mqlog_jobs.command import (
    auditing,
    changing,
    commands,
    keeping,
    overview,
    replaying,
    sending,
    table_commands,
    trace_commands,
)
from mqlog_jobs.command.app import FIRST_STEPS, REPAIR, START, app, command
from mqlog_jobs.command.parameters import (
    AsJson,
    CommitLog,
    Directories,
    Options,
    Store,
    new_directory,
    own_directory,
    paths_of,
)
from mqlog_jobs.machine.codes import FOUND
from mqstore.errors import InvalidOptionError, UnsupportedStoreError

__all__ = [  # With all its commands.
    "app",
    "auditing",
    "changing",
    "commands",
    "keeping",
    "overview",
    "replaying",
    "sending",
    "table_commands",
    "trace_commands",
]

STATES: Final = ("published", "lost")
_ELSEWHERE: Final = (
    "its CommitLog lies in other folders than commitlog; mqlog reads such stores, and does not "
    "write to them. Its broker recovers it when it starts; mqlog verify --commit-log checks it"
)


@command(REPAIR, "mqlog copy /data/store /backup/store-1 && mqlog verify /backup/store-1")
def copy(
    store: Store,
    target: Annotated[
        Path, typer.Argument(metavar="DEST", help="A new directory.", callback=new_directory)
    ],
    *,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store, also of a running broker: hard links to full files, bytes of the rest."""
    from mqlog_jobs.output import render, views
    from mqstore.copy.copy_store import copy_store

    copied = copy_store(store, target, commit_log=paths_of(commit_log))
    if as_json:
        render.json_lines([views.row_of_copy(copied, str(target))])
    else:
        views.copied(render.terminal(), copied, str(target))


@command(
    REPAIR,
    "mqlog verify /data/store && echo whole",
    "mqlog verify '/data/brokers/*/store'",
    "mqlog verify /backup/broker-a --mend",
)
def verify(
    stores: Directories,
    *,
    mend: Annotated[
        bool,
        typer.Option(
            "--mend",
            help="Of a repository: note which bytes are damaged, so that the next point takes "
            "them anew.",
        ),
    ] = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Check every rule that a broker relies on, or a repository's bytes; exit code 1 for errors.

    A repository is checked by the checksums of its points; name a point to check its store.
    """
    from mqlog_jobs.output import render, views
    from mqlog_jobs.output.progress import Bar
    from mqlog_jobs.places import Named
    from mqlog_jobs.work import keep_views
    from mqstore.check import check
    from mqstore.check.finding import ERROR

    repositories = keep_views.repositories(stores, options)
    is_broken = False
    for path, found in repositories.items():
        is_broken |= keep_views.check(path, found, mends=mend, as_json=as_json)
    if mend and len(repositories) < len(stores):
        raise InvalidOptionError(
            "--mend", "true", "is for repositories; mqlog recover is for a store"
        )
    named = Named.of([path for path in stores if path not in repositories], commit_log, options)
    roots = named.directories("a cluster's files cannot be seen from here").roots()
    for root in roots:
        with Bar(f"Checking {root}" if len(roots) > 1 else "Checking") as bar:
            findings = check(root, paths_of(commit_log), bar)
        rows = [views.row_of(finding) for finding in findings]
        if as_json:
            render.json_lines({"store": root.name, **row} for row in rows)
        else:
            views.findings(render.terminal(), root.name, rows, named=len(roots) > 1)
        is_broken |= any(finding.severity == ERROR for finding in findings)
    if is_broken:
        raise typer.Exit(FOUND)


@command(
    REPAIR,
    "mqlog recover /data/store",
    "mqlog recover /data/store --lock-timeout 30s --json",
    "mqlog recover /data/store --rebuild && mqlog verify /data/store",
)
def recover(
    store: Store,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Write queues and index anew from the CommitLog.")
    ] = False,
    recover_unclean: Annotated[
        bool, typer.Option("--recover-unclean", help="Accept a store whose broker was killed.")
    ] = False,
    cut_at_damage: Annotated[
        bool,
        typer.Option(
            "--cut-at-damage",
            help="Drop all records behind damage in the CommitLog.",
        ),
    ] = False,
    allow_no_lease: Annotated[
        bool,
        typer.Option(
            "--allow-no-lease",
            help="Accept a file system that has no leases.",
        ),
    ] = False,
    lock_timeout: Annotated[
        str, typer.Option(help="How long to wait for another writer or a broker: 500ms, 30s, 5m.")
    ] = "0s",
    staging_dir: Annotated[
        Path | None, typer.Option(help="The write's option stagingDir, if it was set.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(help="For a commit whose records expired: published or lost."),
    ] = None,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Finish a commit that was interrupted. Each write does the same before it starts."""
    from mqlog_jobs.output import recover_report, render
    from mqstore.options import grammar
    from mqstore.write import recover as recovery

    if assume is not None and assume not in STATES:
        raise InvalidOptionError("--assume", assume, f"must be {' or '.join(STATES)}")
    if any(folder.absolute() != (store / "commitlog").absolute() for folder in commit_log or ()):
        raise UnsupportedStoreError(str(store), "MULTI_PATH", _ELSEWHERE)
    settings = recovery.RecoverSettings(
        lock_timeout_ms=grammar.duration("--lock-timeout", lock_timeout),
        allow_no_lease=allow_no_lease,
        recover_unclean=recover_unclean,
        rebuild=rebuild,
        cut_at_damage=cut_at_damage,
        staging_dir=str(staging_dir) if staging_dir else None,
        assume=assume,
    )
    with recover_report.own_flags():
        recovered = recovery.recover(store, settings)
    if as_json:
        render.json_lines([recover_report.row(recovered)])
    else:
        recover_report.show(render.terminal(), str(store), recovered)


@command(
    REPAIR,
    "mqlog salvage /data/store /data/store-new && echo nothing lost",
    "mqlog salvage /mnt/rescued /data/store-new --file-size 1073741824 --json",
)
def salvage(
    store: Store,
    target: Annotated[
        Path, typer.Argument(metavar="DEST", help="A new directory.", callback=new_directory)
    ],
    *,
    file_size: Annotated[
        int | None,
        typer.Option(help="mappedFileSizeCommitLog, if no CommitLog file is whole."),
    ] = None,
    read_uncommitted: Annotated[
        bool,
        typer.Option(
            "--read-uncommitted",
            help="Of a replica of a controller's group, take also what its group may not have.",
        ),
    ] = False,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Make a new, whole store of all whole records on a damaged disk; exit code 1 for losses."""
    from mqlog_jobs.output import render, salvage_report
    from mqlog_jobs.output.progress import Bar
    from mqstore.copy.salvage import salvage as make

    with Bar("Reading the CommitLog") as bar:
        made = make(
            store,
            target,
            commit_log=paths_of(commit_log),
            file_size=file_size,
            takes_unconfirmed=read_uncommitted,
            progress=bar,
        )
    if as_json:
        render.json_lines([salvage_report.row(made, str(target))])
    else:
        salvage_report.show(render.terminal(), made, str(target))
    if not made.is_complete:
        raise typer.Exit(FOUND)


@command(
    FIRST_STEPS,
    "mqlog doctor /data/store",
    "mqlog doctor rocketmqs://ns1:9876 -o tlsCaFile=/etc/mqlog/ca.pem",
    "mqlog doctor rocketmq://ns1:9876 --spark",
)
def doctor(
    stores: Annotated[
        list[str] | None,
        typer.Argument(metavar="PLACE...", help="Examine these stores and clusters too."),
    ] = None,
    *,
    commit_log: CommitLog = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Count what Spark lacks as an error; else a note if a PLACE is given or pyspark "
            "is not installed.",
        ),
    ] = False,
    options: Options = None,
    as_json: AsJson = False,
) -> None:
    """Examine why Spark does not find the format mqlog, or cannot read a store or a cluster."""
    from mqlog_jobs.machine.installation import has_spark
    from mqlog_jobs.output import render, views
    from mqlog_jobs.work.doctor import examine
    from mqstore.diagnosis import ERROR

    found = examine(
        *(stores or ()),
        commit_log=commit_log or (),
        options=options or (),
        spark=spark or (has_spark() and not stores),
    )
    diagnoses = list(found)
    if as_json:
        render.json_lines(asdict(diagnosis) for diagnosis in diagnoses)
    else:
        views.diagnoses(render.terminal(), diagnoses)
    if any(diagnosis.severity == ERROR for diagnosis in diagnoses):
        raise typer.Exit(FOUND)


@command(START, "mqlog demo")
def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            callback=own_directory,
            help="Keep the store here; must be new or empty.",
        ),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Save the output about this store as SVG; - is standard output.",
        ),
    ] = None,
) -> None:
    """Write a store with Spark, read it back, and show its topics, messages and backlog."""
    from mqlog_jobs.work.demo import run

    run(directory, picture)

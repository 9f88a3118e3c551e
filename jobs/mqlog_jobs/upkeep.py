"""The commands of ``mqlog`` that look after a store: copy, check, mend it; and the demo.

Only ``demo`` needs Spark, and imports it when it runs: a command starts in a fraction of a second.
"""

# ruff: noqa: PLC0415, PLR0913

from pathlib import Path
from typing import Annotated, Final

import typer

from mqlog_jobs import recover_report, render, views
from mqlog_jobs.commands import app, command
from mqlog_jobs.doctor import ERROR, examine
from mqlog_jobs.exit_codes import FOUND
from mqlog_jobs.parameters import AsJson, CommitLog, Store
from mqlog_jobs.progress import Bar
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.errors import InvalidOptionError, UnsupportedStoreError
from mqstore.options import grammar
from mqstore.write.recover import RecoverSettings
from mqstore.write.recover import recover as recover_store

__all__ = ["app"]  # With all its commands.

STATES: Final = ("published", "lost")
_ELSEWHERE: Final = (
    "its CommitLog lies in other folders than commitlog; mqlog reads such stores, and does not "
    "write to them. Its broker recovers it when it starts; mqlog verify --commit-log checks it"
)


@command(
    epilog="Example: mqlog snapshot /data/store /backup/store-1 && mqlog verify /backup/store-1"
)
def snapshot(
    store: Store,
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A new directory.")],
    *,
    commit_log: CommitLog = None,
) -> None:
    """Copy a store in seconds, also a running broker's: links to full files, bytes of the rest."""
    found = copy_store(store, target, commit_log=tuple(map(str, commit_log or ())))
    views.copied(render.terminal(), found, str(target))


@command(epilog="Example: mqlog verify /data/store && echo whole")
def verify(store: Store, *, commit_log: CommitLog = None, as_json: AsJson = False) -> None:
    """Check every rule a broker relies on; exit code 1 when one is broken."""
    with Bar("Checking") as bar:
        findings = check(store, tuple(map(str, commit_log or ())), bar)
    rows = [views.row_of(found) for found in findings]
    if as_json:
        render.json_lines(rows)
    else:
        views.findings(render.terminal(), str(store), rows)
    if any(found.severity == ERROR for found in findings):
        raise typer.Exit(FOUND)


@command(
    epilog="Examples: mqlog recover /data/store · mqlog recover /data/store --lock-timeout 30s "
    "--json · mqlog recover /data/store --rebuild && mqlog verify /data/store"
)
def recover(
    store: Store,
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make queues and index anew from the CommitLog.")
    ] = False,
    recover_unclean: Annotated[
        bool, typer.Option("--recover-unclean", help="Also where a broker was killed.")
    ] = False,
    cut_at_damage: Annotated[
        bool,
        typer.Option(
            "--cut-at-damage",
            help="Give up what lies behind damage in the CommitLog: it ends there.",
        ),
    ] = False,
    allow_no_lease: Annotated[
        bool,
        typer.Option("--allow-no-lease", help="Also where nothing keeps a starting broker out."),
    ] = False,
    lock_timeout: Annotated[
        str, typer.Option(help="Wait so long for a writer or a broker: 500ms, 30s, 5m.")
    ] = "0s",
    staging_dir: Annotated[
        Path | None, typer.Option(help="The stagingDir of the write, if it had one.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(help="Of a commit whose log expired: published, or lost. See the message."),
    ] = None,
    commit_log: CommitLog = None,
    as_json: AsJson = False,
) -> None:
    """Finish what a killed write left. Writes do the same by themselves when they begin."""
    if assume is not None and assume not in STATES:
        raise InvalidOptionError("--assume", assume, f"must be {' or '.join(STATES)}")
    if any(folder.absolute() != (store / "commitlog").absolute() for folder in commit_log or ()):
        raise UnsupportedStoreError(str(store), "MULTI_PATH", _ELSEWHERE)
    settings = RecoverSettings(
        lock_timeout_ms=grammar.duration("--lock-timeout", lock_timeout),
        allow_no_lease=allow_no_lease,
        recover_unclean=recover_unclean,
        rebuild=rebuild,
        cut_at_damage=cut_at_damage,
        staging_dir=str(staging_dir) if staging_dir else None,
        assume=assume,
    )
    found = recover_store(store, settings)
    if as_json:
        render.json_lines([recover_report.row(found)])
    else:
        recover_report.show(render.terminal(), str(store), found)


@command(epilog="Example: mqlog doctor /data/store")
def doctor(
    store: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="Look at this store too.")
    ] = None,
    *,
    commit_log: CommitLog = None,
) -> None:
    """Look for what keeps Spark from finding the source, or from reading a store."""
    found = list(examine(store, tuple(map(str, commit_log or ()))))
    views.diagnoses(render.terminal(), found)
    if any(diagnosis.severity == ERROR for diagnosis in found):
        raise typer.Exit(FOUND)


@command(epilog="Example: mqlog demo")
def demo(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Keep the store here; must be new or empty."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save what is shown of it, as SVG.")
    ] = None,
) -> None:
    """Write a store with Spark, read it back, and show its topics, messages and backlog."""
    from mqlog_jobs.demo import run

    run(directory, picture)

"""Diagnoses of an installation, and of a store or a cluster.

See also mqlog_jobs.machine.installation and mqstore.check.cluster.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mqlog_jobs.machine import installation
from mqlog_jobs.machine.exit_codes import reason
from mqlog_jobs.output.amounts import several, size
from mqlog_jobs.places import Named
from mqstore.check.cluster import examine_cluster
from mqstore.check.condition import Condition, look
from mqstore.check.replica import doubts_of
from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis
from mqstore.errors import InvalidOptionError, StoreError
from mqstore.native.registry import COMPILED, kernels_in_use
from mqstore.read.directory import take

_OF_THIS_MACHINE: Final = (
    "lies in an object store, and doctor looks at locks and processes of this machine: "
    "check its files with mqlog verify"
)


def examine(
    *paths: str | Path,
    commit_log: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    spark: bool = True,
) -> Iterator[Diagnosis]:
    """Yield the diagnoses: of the stores and the clusters that are given, then of this machine.

    Without ``spark`` an error of what only Spark needs is a note.
    ``commit_log`` names the CommitLog folders of the one store when they are others than commitlog,
    ``options`` are of the live reader. Raises InvalidOptionError for what is wrong on the line, and
    StoreNotFoundError for a glob that matches nothing.
    """
    folders = tuple(map(str, commit_log))
    named = Named(tuple(map(str, paths)), folders, tuple(options)).places()
    named.check_local(_OF_THIS_MACHINE)
    roots = named.roots()
    for root in roots:
        yield from _store(Path(root.name), folders)
    for settings in named.clusters:
        yield from examine_cluster(settings)
    yield from installation.examine(spark=spark)
    yield _kernels()


def _kernels() -> Diagnosis:
    try:
        used = kernels_in_use()
    except InvalidOptionError as error:
        return Diagnosis(ERROR, "Kernels", str(error))
    if used.kind == COMPILED:
        return Diagnosis(GOOD, "Kernels", str(used))
    advice = "the same results, more slowly: install mqlog again where a C compiler is"
    return Diagnosis(WARNING, "Kernels", str(used), advice)


def _store(store: Path, commit_log: Sequence[str] = ()) -> Iterator[Diagnosis]:
    try:
        snapshot = take(store, commit_log=commit_log)
        condition, doubts = look(store), doubts_of(store, commit_log)
    except StoreError as error:
        yield Diagnosis(ERROR, "Store", str(error))
        return
    except OSError as error:
        yield Diagnosis(ERROR, "Store", reason(error))
        return
    messages = sum(queue.high - queue.low for queue in snapshot.queues)
    found = (
        f"{snapshot.broker_name}: {several(messages, 'message')} in "
        f"{several(len(snapshot.queues), 'queue')}, CommitLog {size(snapshot.high - snapshot.low)}"
    )
    if condition.abort == "broker":
        advice = "abort exists: a broker runs, or crashed. It can be read; a write is refused"
        yield Diagnosis(WARNING, "Store", found, advice)
    else:
        yield Diagnosis(GOOD, "Store", found)
    for doubt in doubts:
        advice = "mqlog audit of this store and another replica tells which of the two is stale"
        yield Diagnosis(WARNING, "Replica", doubt, advice)
    yield from _writing(store, condition)


def _writing(store: Path, condition: Condition) -> Iterator[Diagnosis]:
    """Yield diagnoses of the store's lock and of an unfinished commit."""
    if condition.holders:
        holders = ", ".join(condition.holders)
        if condition.is_being_written:
            yield Diagnosis(GOOD, "Lock", f"held by a write of mqlog: {holders}")
        else:
            advice = "a write waits for it as long as lockTimeout says; it can be read"
            yield Diagnosis(WARNING, "Lock", f"held by {holders}", advice)
    if condition.pending is None:
        if condition.abort == "mqlog" and not condition.is_being_written:
            advice = f"the next write cleans up, or: mqlog recover {store}"
            yield Diagnosis(WARNING, "Commit", "the last one was killed as it ended", advice)
        return
    found = f"{condition.pending} is {condition.pending_state}"
    if condition.is_being_written:
        yield Diagnosis(GOOD, "Commit", f"{found}, and being finished")
    else:
        advice = f"readers see it once it is finished, by the next write, or: mqlog recover {store}"
        yield Diagnosis(WARNING, "Commit", f"{found}, not finished", advice)

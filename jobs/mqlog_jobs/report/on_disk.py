"""The files of store directories, and what verify finds in them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.output.views import place_of, row_of
from mqlog_jobs.report.facts import Broken, FileKind, Files, StoreFile, Verified
from mqstore.check import check
from mqstore.check.finding import ERROR
from mqstore.errors import StoreError
from mqstore.tables import files as list_files
from mqstore.tables.choice import StoreRoot

VERIFIED_BYTES: Final = 1 << 30  # of a CommitLog that is checked unasked: some seconds
_LOG_KIND: Final = "commitlog"
_ABORT_KIND: Final = "abort"  # The state of its store says it: a broker runs, or crashed.
_LISTED_FILES: Final = 24  # newest files of the CommitLogs, and files with a problem
_LISTED_FINDINGS: Final = 100  # that are listed; all are counted


def files_of(stores: Sequence[StoreRoot]) -> Files:
    """Return the files of those stores. Raises OSError, and StoreError for what is no store."""
    kinds: dict[tuple[str, str], FileKind] = {}
    log: list[StoreFile] = []
    wrong: list[StoreFile] = []
    log_files = wrong_files = 0
    newest = max(_LISTED_FILES // max(len(stores), 1), 1)
    for store in stores:
        of_store: list[StoreFile] = []
        for kind, file in _listed(store):
            name = store.broker_name, kind
            before = kinds.get(name, FileKind(*name, 0, 0, 0))
            used = before.used + (file.used or 0)
            kinds[name] = FileKind(*name, before.files + 1, before.size + file.size, used)
            if kind == _LOG_KIND:
                log_files += 1
                of_store = [*of_store, file][-newest:]
            if file.problem and kind != _ABORT_KIND:
                wrong_files += 1
                wrong += [file] if len(wrong) < _LISTED_FILES else []
        log += of_store[::-1]
    return Files(tuple(kinds.values()), tuple(log), log_files, tuple(wrong), wrong_files)


def verified(
    stores: Sequence[StoreRoot],
    log_bytes: Sequence[int],
    *,
    wanted: bool | None,
    progress: Callable[[int, int], None],
) -> Verified:
    """Return what verify finds; ``wanted`` None checks those whose CommitLog is small."""
    findings: list[Broken] = []
    checked: list[str] = []
    skipped: dict[str, str] = {}
    errors = warnings = 0
    for store, size in zip(stores, log_bytes, strict=True):
        name = store.broker_name
        if not (size <= VERIFIED_BYTES if wanted is None else wanted):
            skipped[name] = "--no-verify" if wanted is False else "its CommitLog is large: --verify"
            continue
        try:
            found = check(store.root, store.place.commit_log, progress)
        except (StoreError, OSError) as error:
            skipped[name] = str(error)
            continue
        checked.append(name)
        for one in found:
            errors += one.severity == ERROR
            warnings += one.severity != ERROR
        for one in found[: _LISTED_FINDINGS - len(findings)]:
            place = place_of(row_of(one)) or one.file
            findings.append(Broken(name, one.severity, place, one.problem))
    return Verified(tuple(findings), errors, warnings, tuple(checked), skipped)


def _listed(store: StoreRoot) -> Iterator[tuple[str, StoreFile]]:
    """Yield the kind of each file, and the file."""
    for part in list_files.plan(store):
        for batch in part.batches(list_files.SCHEMA.names):
            for row in rows_of(batch):
                size, used, problem = row["sizeBytes"], row["wrotePosition"], row["problem"]
                assert isinstance(size, int)
                yield (
                    str(row["kind"]),
                    StoreFile(
                        store.broker_name,
                        str(row["path"]),
                        size,
                        used if isinstance(used, int) else None,
                        None if problem is None else str(problem),
                    ),
                )

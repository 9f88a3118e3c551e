"""Rows into a store or a cluster."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fsdecode
from typing import Any, Final, TypeAlias, Unpack

import pyarrow as pa

from mqlog.frames import reader_of_rows
from mqlog.keywords import in_keywords, texts
from mqlog.options import WriteKeywords, shows
from mqstore.deliver.complete import complete
from mqstore.deliver.job import SendReport
from mqstore.deliver.prepare import prepare as prepare_to_send
from mqstore.deliver.prepare import withdraw
from mqstore.deliver.settings import EXACTLY_ONCE, SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.request.write import write_settings
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import Manifest
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch], int, int], Any]
"""Stages or sends the rows of a partition, in an attempt; returns its report, for the commit."""
Tasks: TypeAlias = Callable[[Task], list[Any]]
_MISSING: Final = "a write needs the path of one store, or of one cluster"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: messages that it added, and rows that ``on_invalid`` left out.

    ``is_repeated`` tells that a write of that ``txn_app_id`` and ``txn_version`` had been done
    before, so that nothing was added now.
    """

    messages: int
    skipped: int
    is_repeated: bool


@shows(WriteKeywords)
def write(data: Any, path: str | PathLike[str], /, **options: Unpack[WriteKeywords]) -> WriteResult:
    """Append rows to the store at ``path``, all of them or none, or send them to a cluster.

    ``data`` is a table, a reader or a batch of pyarrow, a DataFrame of pandas or Polars, a relation
    of DuckDB, a Scan, or anything else with ``__arrow_c_stream__``; a dict of columns, a list of
    dicts, or an iterator of dicts, batches or frames. A row needs a column ``body``;
    ``tags``, ``keys``, ``properties`` and others are taken by their names. ``options`` are those of
    the Spark sink in snake_case: ``topic``, ``create_store=True``, ``partitioner="hash"``,
    ``txn_app_id`` and ``txn_version`` for a write that happens once.

    Raises InvalidOptionError, InvalidSchemaError, InvalidMessageError, StoreLockedError,
    UncleanStoreError, NoSpaceError and others before the store is changed; CommitInDoubtError after
    its decision. Of a cluster, what was sent before an error stays.
    """
    with in_keywords():
        settings = settings_of(path, options)
        rows = reader_of_rows(data)
        return write_by_tasks(settings, rows.schema, lambda task: [task(rows, 0, 0)])


def settings_of(
    path: str | PathLike[str], options: Mapping[str, Any]
) -> WriteSettings | SendSettings:
    """Return what keywords say of a write to a path; raises InvalidOptionError."""
    return write_settings((fsdecode(path),), texts(options), _MISSING)


def write_by_tasks(
    settings: WriteSettings | SendSettings, schema: pa.Schema, run: Tasks
) -> WriteResult:
    """Write what the tasks of ``run`` are given; ``schema`` is that of their rows.

    ``run`` gets a function of the rows, the partition and the attempt of a task, runs it for each
    task, in another process if it likes, and returns the reports in the order of the partitions.
    Raises as ``write``.
    """
    if isinstance(settings, WriteSettings):
        return _to_store(settings, schema, run)
    return _to_cluster(settings, schema, run)


def _to_store(settings: WriteSettings, schema: pa.Schema, run: Tasks) -> WriteResult:
    job = prepare(settings, schema)
    manifests: list[Manifest] = []
    try:
        manifests += run(lambda rows, p, attempt: stage(job, rows, partition=p, attempt=attempt))
    except BaseException:
        abort(job, manifests)
        raise
    done = commit(job, manifests)
    return WriteResult(done.messages, done.skipped, done.is_repeated)


def _to_cluster(settings: SendSettings, schema: pa.Schema, run: Tasks) -> WriteResult:
    job = prepare_to_send(settings, schema)
    deliver = hand_on if settings.delivery == EXACTLY_ONCE else send
    reports: list[SendReport] = []
    try:
        reports += run(lambda rows, p, attempt: deliver(job, rows, partition=p, attempt=attempt))
        done = complete(job, reports, "write")
    except BaseException:
        withdraw(job, reports)
        raise
    skipped = sum(report.skipped for report in reports)
    return WriteResult(done.counts.messages, skipped, done.is_repeated)

"""``mqlog record``: a sample of the offsets of groups again and again, into Parquet files."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from mqlog_jobs.machine.interrupts import rounds
from mqlog_jobs.output import prometheus, render
from mqlog_jobs.output.amounts import moment_of, several
from mqlog_jobs.output.form import Form, rows_of
from mqlog_jobs.output.gauge_file import check_gauges
from mqlog_jobs.output.whole_file import is_standard_output, replace_file
from mqlog_jobs.places import Named
from mqlog_jobs.work.forecasting import ForecastQuery
from mqlog_jobs.work.show_backlog import BacklogQuery, backlog_gauges
from mqstore.backlog import BacklogItem
from mqstore.errors import InvalidOptionError, StoreError, printable
from mqstore.options import grammar
from mqstore.tables.looks import LogLook, log_looks, log_states
from mqstore.tables.samples import FILE, SAMPLE_SCHEMA, Recording

_SAMPLE_NOTE: Final = "the sample that is being taken is finished; once more ends at once"
_SAME_TIME_MS: Final = 1_000
"""A clock that is behind by less was set by a hair, or a sample follows at once."""
_CLOCK_BEHIND: Final = (
    "has a sample of later than now: the clock says {}, and the last sample is of {}. None is "
    "added until then; if the clock was wrong then, remove the files whose names end so late "
    "(…-{}.parquet), or name another FILE"
)
_STANDS: Final = "must be 1: {} is a point of a repository, which does not change"
_OLDER_POINT: Final = (
    "has a sample of {}, and {} is a point of {}: samples are added in the order of time. Record "
    "older points first, or name another FILE"
)


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Where samples go and how often; ``count`` 0: without an end."""

    file: str
    every_ms: int
    count: int
    most_bytes: int
    gauges: str | None

    @classmethod
    def of(
        cls, file: str, every: str, count: int, max_size: str, gauges: str | None
    ) -> "RecordingPlan":
        """Return the plan of a command's arguments; raises InvalidOptionError."""
        every_ms = grammar.milliseconds("--every", every)
        size = grammar.size("--max-size", max_size)
        return cls(file, every_ms, count, size, gauges)


def record_samples(named: Named, form: Form, query: ForecastQuery, plan: RecordingPlan) -> None:
    """Take samples, and print a line for each; after each write backlog and forecast as gauges.

    A place that cannot be read is an error at the first sample, later a warning: the next sample
    may have it again. Raises as ``Recording`` and what reading offsets raises.
    """
    check_gauges(plan.gauges, form)
    points = [root.name for root in named.places().roots() if root.moment_ms is not None]
    if points and plan.count != 1:
        raise InvalidOptionError("--count", plan.count, _STANDS.format(points[0]))
    asked = BacklogQuery.of(query.groups, query.topic, None, system=query.system)
    with closing(Recording(plan.file, plan.most_bytes)) as recording:
        for number, waits in enumerate(rounds(plan.every_ms, plan.count, _SAMPLE_NOTE)):
            try:
                rows, as_of_ms = sample(named, asked, plan.file, recording.last_ms)
                recording.add(rows, as_of_ms)
                if plan.gauges is not None:
                    forecast = prometheus.times_text(rows_of(query.rows(named)))
                    replace_file(plan.gauges, backlog_gauges(named, asked) + forecast)
            except (StoreError, OSError) as error:
                if not number:
                    raise
                sys.stderr.write(f"mqlog: {printable(str(error))}\n")
                sys.stderr.flush()
            else:
                if not is_standard_output(plan.gauges):
                    _print(form, rows, as_of_ms)
            waits()


def sample(named: Named, asked: BacklogQuery, file: str, last_ms: int) -> tuple[pa.Table, int]:
    """Return the rows of a sample, and when it was taken: later than ``last_ms`` (epoch ms).

    Raises InvalidOptionError where the clock is behind ``last_ms``, or a point of a repository is
    not of later: a sample that is said to be of another time than it is would make rates that never
    were.
    """
    with named.opened(asked.topic, groups=asked.request.named) as stores:
        held = asked.snapshots(stores)
        items, _ = asked.look(stores, reads_halves=False, snapshots=held)
        logs = log_looks(log_states(list(zip(stores.sources, held, strict=True))))
        points = [root.name for root in stores.selection.roots if root.moment_ms is not None]
    taken_ms = max((snapshot.taken_ms for snapshot in held), default=last_ms)
    if points and taken_ms <= last_ms:
        expected = _OLDER_POINT.format(moment_of(last_ms), points[0], moment_of(taken_ms))
        raise InvalidOptionError(FILE, file, expected)
    if taken_ms < last_ms - _SAME_TIME_MS:
        expected = _CLOCK_BEHIND.format(moment_of(taken_ms), moment_of(last_ms), last_ms)
        raise InvalidOptionError(FILE, file, expected)
    as_of_ms = max(taken_ms, last_ms + 1)
    return _rows(items, logs, as_of_ms), as_of_ms


def _rows(items: Sequence[BacklogItem], logs: Mapping[str, LogLook], as_of_ms: int) -> pa.Table:
    at = datetime.fromtimestamp(as_of_ms / 1000, UTC)
    unknown = LogLook(None, None)
    rows = []
    for item in items:
        log = logs.get(item.broker_name, unknown)
        rows.append((
            at, item.broker_name, item.group, item.topic, item.queue_id, item.low, item.high,
            item.consumer_offset, item.lag, item.consumers, log.end, log.disk_used,
        ))  # fmt: skip
    columns = list(zip(*rows, strict=True)) or [()] * len(SAMPLE_SCHEMA)
    arrays = [pa.array(one, of.type) for one, of in zip(columns, SAMPLE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SAMPLE_SCHEMA)


def _print(form: Form, rows: pa.Table, as_of_ms: int) -> None:
    groups = len(rows["group"].unique())
    lag = sum(rows["lag"].to_pylist())
    if form.as_json:
        at = datetime.fromtimestamp(as_of_ms / 1000, UTC)
        render.json_lines([{"asOf": at, "groups": groups, "queues": rows.num_rows, "lag": lag}])
    else:
        told = f"{several(groups, 'group')}, {several(rows.num_rows, 'queue')}"
        line = f"{moment_of(as_of_ms)}  {told}, {several(lag, 'message')} waiting"
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()

"""The lag of groups over time, from the samples of ``mqlog record``, with the rates of now."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.output.render import Row
from mqlog_jobs.places import Named
from mqlog_jobs.report.facts import Foreseen, Found, LagHistory, Unread
from mqlog_jobs.report.rates import step_ms
from mqlog_jobs.work.forecasting import ForecastQuery
from mqstore.backlog.request import group_test
from mqstore.errors import InvalidOptionError, StoreError, UnknownGroupError
from mqstore.tables.samples import lags_at

_MOST_STEPS = 72


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Samples of groups, and the places that they were taken of."""

    samples: str
    groups: str | None = None
    system: bool = False

    def read(self, named: Named) -> LagHistory:
        """Return the history; raises InvalidOptionError for samples that cannot be read."""
        steps = _Steps()
        lags = lags_at(self.samples, steps.choose, self._is_wanted)
        order = sorted(lags, key=lambda group: (-max(lags[group].values()), group))
        return LagHistory(
            steps.start_ms,
            steps.step_ms,
            {group: [lags[group].get(at) for at in steps.times_ms] for group in order},
            steps.samples,
            (steps.first_ms, steps.last_ms),
            steps.ahead,
            self._foreseen(named),
        )

    def _is_wanted(self, group: str) -> bool:
        return group_test(self.groups, system=self.system)(group)

    def _foreseen(self, named: Named) -> Found[Mapping[str, Foreseen]]:
        query = ForecastQuery(groups=self.groups, samples=self.samples, system=self.system)
        try:
            rows = rows_of(query.rows(named))
        except (InvalidOptionError, UnknownGroupError):
            raise
        except (StoreError, OSError) as error:
            return Unread(str(error))
        of_groups: dict[str, list[Row]] = {}
        for row in rows:
            of_groups.setdefault(str(row["group"]), []).append(row)
        return {group: _of_group(members) for group, members in of_groups.items()}


class _Steps:
    """Equal steps of time over all samples; of each step its last sample.

    ``ahead`` samples are of later than now, by a clock that was ahead, and are left out.
    """

    start_ms, step_ms, samples, first_ms, last_ms = 0, 1, 0, 0, 0
    ahead = 0
    times_ms: Sequence[int] = ()

    def choose(self, every_ms: list[int]) -> list[int]:
        """Return the last time of each step that has one."""
        now_ms = time.time_ns() // 1_000_000
        times_ms = [at for at in every_ms if at <= now_ms]
        self.ahead = len(every_ms) - len(times_ms)
        if not times_ms:
            return []
        self.samples, self.first_ms, self.last_ms = len(times_ms), times_ms[0], times_ms[-1]
        self.step_ms = step_ms(self.first_ms, self.last_ms, _MOST_STEPS)
        self.start_ms = self.first_ms - self.first_ms % self.step_ms
        last = {at // self.step_ms: at for at in times_ms}
        steps = range(self.start_ms // self.step_ms, self.last_ms // self.step_ms + 1)
        self.times_ms = [last.get(step, -1) for step in steps]
        return list(last.values())


def _of_group(rows: Sequence[Row]) -> Foreseen:
    """Return what is foreseen of a group: its last queue to be empty, its first to lose one."""
    zeros = [row for row in rows if isinstance(row["etaZero"], datetime)]
    losses = [row for row in rows if isinstance(row["etaLoss"], datetime)]
    return Foreseen(
        _sum(rows, "storedRate"),
        _sum(rows, "consumedRate"),
        max(zeros, key=lambda row: str(row["etaZero"])) if len(zeros) == len(rows) else None,
        min(losses, key=lambda row: str(row["etaLoss"]), default=None),
    )


def _sum(rows: Sequence[Row], column: str) -> float | None:
    """Return the rate of all queues; None where that of one is not known."""
    known = [value for row in rows if isinstance(value := row[column], float)]
    return sum(known) if len(known) == len(rows) else None

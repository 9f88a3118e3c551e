"""The command ``forecast``: the table of that name, on a terminal and as gauges."""

import json
from dataclasses import dataclass

import pyarrow as pa

from mqlog_jobs.output import prometheus, render
from mqlog_jobs.output.forecast_view import forecasts
from mqlog_jobs.output.form import Form, rows_of
from mqlog_jobs.output.gauge_file import check_gauges
from mqlog_jobs.output.whole_file import is_standard_output, replace_file
from mqlog_jobs.places import Named
from mqlog_jobs.work.show_table import TableQuery, read_table


@dataclass(frozen=True, slots=True)
class ForecastQuery:
    """Which groups are foreseen, and what with; None: not given."""

    groups: str | None = None
    topic: str | None = None
    look_again: str | None = None
    samples: str | None = None
    reserved: str | None = None
    broker_conf: str | None = None
    system: bool = False
    late_after: str | None = None

    def rows(self, named: Named) -> pa.Table:
        """Return the rows of the table. Raises as ``show_table``."""
        options = {
            "subscribe": None if self.topic is None else json.dumps([self.topic]),
            "groups": self.groups,
            "lookAgain": self.look_again,
            "samples": self.samples,
            "fileReservedTime": self.reserved,
            "brokerConf": self.broker_conf,
            "lateAfter": self.late_after,
        }
        return read_table(named, TableQuery("forecast", options, system=self.system))


def show_forecast(named: Named, form: Form, query: ForecastQuery, gauges: str | None) -> None:
    """Print the forecast; with ``gauges`` write them to that file too. Raises as ``show_table``."""
    check_gauges(gauges, form)
    rows = query.rows(named)
    if gauges is not None:
        replace_file(gauges, prometheus.times_text(rows_of(rows)))
    if not is_standard_output(gauges) and not form.written(rows):
        forecasts(render.terminal(), rows_of(rows), rows.num_rows)

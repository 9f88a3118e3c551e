"""The dashboard for Grafana and the alerts ask for metrics and labels that mqlog writes.

The dashboard asks for all of them.
"""

import itertools
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqlog_jobs.output.prometheus import METRICS, STATUS_METRIC, TIME_METRICS, text, times_text

EXAMPLES = Path(__file__).parents[2] / "examples"
BOARD: dict[str, Any] = json.loads(
    (EXAMPLES / "grafana-dashboard.json").read_text(encoding="utf-8")
)
ALERTS: list[dict[str, Any]] = yaml.safe_load(
    (EXAMPLES / "prometheus-alerts.yml").read_text(encoding="utf-8")
)["groups"][0]["rules"]
PANELS: list[dict[str, Any]] = BOARD["panels"]
VARIABLES: list[dict[str, Any]] = BOARD["templating"]["list"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
LABELS = {metric.name: set(metric.labels) for metric in (*METRICS, *TIME_METRICS)}
LABELS[STATUS_METRIC] = {"broker", "topic", "group", "status"}
NODE_EXPORTER = "node_textfile_mtime_seconds"
ROW = {
    **{metric.column: 1 for metric in METRICS},
    "brokerName": "broker-a",
    "group": "CG_WAREHOUSE",
    "topic": "SHOP_ORDERS",
    "status": "OK",
    **{metric.column: datetime(2027, 1, 15, tzinfo=UTC) for metric in TIME_METRICS},
}


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """The metrics of a query, each with the labels that it is chosen by."""
    found = re.findall(r"\b((?:rocketmq|mqlog)_\w+)(?:\{([^}]*)\})?", query)
    return [(name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", chosen))) for name, chosen in found]


def test_all_metrics_that_are_written_are_shown_and_no_others() -> None:
    rows = [{**ROW, "topic": topic} for topic in ("SHOP_ORDERS", "%RETRY%CG", "%DLQ%CG")]
    written = set(re.findall(r"^(\w+)\{", text(rows) + times_text(rows), re.MULTILINE))

    assert {name for query in QUERIES for name, _ in selectors(query)} == written == set(LABELS)


@pytest.mark.parametrize("query", [*QUERIES, *(alert["expr"] for alert in ALERTS)])
def test_a_query_chooses_and_groups_by_labels_that_its_metric_has(query: str) -> None:
    grouped = set(re.findall(r"\w+", "".join(re.findall(r"by \(([^)]*)\)", query))))

    for name, chosen in selectors(query):
        assert chosen | grouped <= LABELS[name], name
    assert query.count("(") == query.count(")")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_asks_for_metrics_that_are_written_and_names_labels_that_they_have(
    alert: dict[str, Any],
) -> None:
    asked = [LABELS[name] for name, _ in selectors(alert["expr"])]
    if not asked:
        assert NODE_EXPORTER in alert["expr"]
        asked = [{"file"}]
    named = set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))

    assert named
    assert all(named <= labels for labels in asked)


def test_variables_are_filled_from_metrics_and_labels_that_are_written() -> None:
    asked = [one["definition"] for one in VARIABLES if one["type"] == "query"]
    values = [re.fullmatch(r"label_values\((.*), (\w+)\)", one) for one in asked]

    assert values
    for value in values:
        assert value is not None
        ((name, chosen),) = selectors(value[1])
        assert chosen | {value[2]} <= LABELS[name]


def test_every_variable_that_is_used_is_defined() -> None:
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, VARIABLES])))

    assert used == {one["name"] for one in VARIABLES} | {"__rate_interval", "__all"}


def test_panels_have_numbers_of_their_own_and_lie_beside_each_other() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        assert columns.stop <= 24
        return set(itertools.product(columns, lines))

    taken = [cell for panel in PANELS for cell in cells(panel)]

    assert len(taken) == len(set(taken))
    assert len(PANELS) == len({panel["id"] for panel in PANELS})
    assert all(panel["title"] and panel["description"] for panel in PANELS)

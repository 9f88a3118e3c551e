"""The same question asked at each door has the same answer: command, SQL, Python, Spark's plan."""

import json
from pathlib import Path
from typing import Any

import pytest

import mqlog
from jobs.command import Run
from mqstore.tables.catalog import CATALOG
from support import planned

OWNED = [name for name, table in CATALOG.items() if table.owner and not table.of_users]
SYSTEM = ("RMQ_SYS_", "CID_RMQ_SYS_", "SCHEDULE_TOPIC_XXXX", "%RETRY%", "TOOLS_CONSUMER")
_OF_NOW = ("asOf", "lagMs", "metricLatencyMs")


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """The rows without what changes from look to look, sorted."""
    return sorted(
        json.dumps({k: str(v) for k, v in row.items() if k not in _OF_NOW}, sort_keys=True)
        for row in rows
    )


def answers(run: Run, root: Path, table: str, *, system: bool) -> list[list[dict[str, Any]]]:
    """The rows of a table at each door; columns that have one form at all of them."""
    flags = ("--system",) if system else ()
    of_read = {"include_system_topics": "true"} if system else {}
    of_plan = {"includeSystemTopics": "true"} if system else {}
    columns = [
        field.name
        for field in CATALOG[table].schema
        if str(field.type) in {"string", "int32", "int64", "bool"} and field.name not in _OF_NOW
    ]
    names = ", ".join(f'"{name}"' for name in columns)
    found = [
        run("table", table, root, "--json", *flags).rows,
        mqlog.open(root).table(table, **of_read).to_table().to_pylist(),
        planned.rows(str(root), table=table, **of_plan),
    ]
    if not system:
        found.append(run("sql", root, f"SELECT {names} FROM {table}", "--json").rows)
    return [[{name: row[name] for name in columns} for row in rows] for rows in found]


@pytest.mark.parametrize("table", OWNED)
@pytest.mark.parametrize("system", [False, True], ids=["users", "all"])
def test_a_table_has_the_same_rows_at_every_door(
    run: Run, golden_550: Path, table: str, *, system: bool
) -> None:
    first, *others = answers(run, golden_550, table, system=system)
    for rows in others:
        assert in_order(rows) == in_order(first)
    if not system:
        assert not any(row["isSystem"] for row in first)
    # The column tells the same as the choice does.
    whole = mqlog.open(golden_550).table(table, include_system_topics=True).to_table().to_pylist()
    owner = CATALOG[table].owner
    users = {row[owner] for row in whole if not row["isSystem"]}
    assert {row[owner] for row in first if not row["isSystem"]} == users


def test_the_sum_of_the_lag_is_the_same_at_every_door(run: Run, golden_550: Path) -> None:
    place = mqlog.open(golden_550)
    shown = sum(int(str(row["lag"])) for row in run("backlog", golden_550, "--json").rows)
    (queried,) = run("sql", golden_550, "SELECT sum(lag) AS lag FROM backlog", "--json").rows
    python = sum(place.table("backlog").to_table()["lag"].to_pylist())
    spark = sum(row["lag"] for row in planned.rows(str(golden_550), table="backlog"))
    assert shown == queried["lag"] == python == spark > 0
    whole = place.table("backlog", include_system_topics=True).to_table().to_pylist()
    own = {row["group"] for row in whole if row["isSystem"]}
    assert own == {"CID_RMQ_SYS_TRANS"}
    assert run("backlog", golden_550, "-g", "CID_RMQ_SYS_TRANS", "--json").rows
    assert place.table("backlog", groups="CID_RMQ_SYS_TRANS").to_table().num_rows
    # A pattern names nobody.
    assert place.table("backlog", groups="/CID_RMQ_SYS_.*/").to_table().num_rows == 0


def test_topics_are_those_of_users_at_every_door(run: Run, golden: tuple[str, Path]) -> None:
    """Also without those that a broker makes under its own and its cluster's name."""
    _, root = golden
    place = mqlog.open(root)
    names = {str(row["topic"]) for row in run("topics", root, "--json").rows}
    assert set(place.topics()) == names
    assert not names & {"DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"}
    assert not [name for name in names if name.startswith(SYSTEM)]
    everything = {str(row["topic"]) for row in run("topics", root, "--system", "--json").rows}
    assert set(place.topics(system=True)) == everything > names

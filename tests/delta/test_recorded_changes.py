"""Recorded changes of real producers, merged into Delta, equal the rows of their database.

What a producer loses before a message is sent is counted exactly, as in tests/changes.
"""

import base64
import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from changes.recordings import Table, create_tables, names_of, recorded, truth, wanted
from changes.test_recordings import ALTERED, CHARSETS, NONE, ZERO_DATES, Difference
from delta.change_batches import recorded_batches
from mqlog_jobs.delta import run_state
from mqlog_jobs.delta.change_rules import ChangeRules
from mqlog_jobs.delta.change_run import ChangeRun
from mqlog_jobs.delta.lake_table import folder_name


def rows_of(root: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the lake that are not deleted."""
    path = root / folder_name(table)
    if not DeltaTable.is_deltatable(str(path)):
        return []
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [row for row in rows if not row["_mqlogDeleted"]]


def as_printed(value: Any, kind: str) -> Any:
    """A value of the lake as the database's client prints one of that type."""
    base = kind.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    if value is None or base == "decimal":
        return Decimal(value) if isinstance(value, str) else value
    if base in {"binary", "varbinary", "blob"}:
        data = base64.b64decode(value) if isinstance(value, str) else value
        return data.hex().upper()
    if base in {"float", "double"}:
        return float(str(np.float32(value))) if base == "float" else value
    digits = (
        int(kind[-2]) if kind.endswith(")") and base in {"datetime", "timestamp", "time"} else 0
    )
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return text[: 20 + digits] if digits else text[:19]
    if base == "time":
        head, _, fraction = str(value).partition(".")
        return f"{head}.{fraction.ljust(digits, '0')}" if digits else head
    return str(value)


def differences(root: Path, database: dict[str, Table]) -> dict[str, Difference]:
    found = {}
    for name, table in database.items():
        if not table.keys:
            continue
        want = {tuple(row[key] for key in table.keys): row for row in table.rows}
        rows = {
            tuple(as_printed(row[key], table.types[key]) for key in table.keys): row
            for row in rows_of(root, f"shop.{name}")
        }
        columns = Counter(
            column
            for key in want.keys() & rows.keys()
            for column, kind in table.types.items()
            if as_printed(rows[key].get(column), kind) != wanted(want[key][column], kind)
        )
        missing, surplus = len(want.keys() - rows.keys()), len(rows.keys() - want.keys())
        found[name] = Difference(missing, surplus, dict(columns))
    return found


def run_all(root: Path, messages: Any, name: str, schemas: Any, size: int) -> list[dict[str, Any]]:
    root.mkdir(exist_ok=True)
    run = ChangeRun(root, run_state.load(root), ChangeRules(schemas=schemas))
    run.begin()
    return [run.take(*one) for one in recorded_batches(messages, name, schemas, size)]


CASES = {
    "debezium": (
        ("mariadb", "dbz_plain_shop", True),
        {
            "CaseTable": NONE,
            "items": Difference(0, 40, {}),
            "kinds": Difference(0, 0, ZERO_DATES),
            "late": NONE,
            "orders": Difference(0, 0, ALTERED),
        },
        {"doubtful": 0},
    ),
    "canalProtobuf": (
        ("mariadb", "canal_protobuf", False),
        {
            "CaseTable": NONE,
            "items": NONE,
            "kinds": Difference(0, 0, CHARSETS | ZERO_DATES),
            "late": NONE,
            "orders": Difference(0, 0, ALTERED),
        },
        {"doubtful": 41, "truncate": 1},
    ),
    "canal": (
        ("mariadb-by-table", "canal_flat", False),
        {
            "CaseTable": NONE,
            "items": NONE,
            "kinds": Difference(0, 0, {"v_latin": 9, "v_gbk": 4, "da": 5, "dt0": 3, "ts0": 2}),
            "late": NONE,
            "orders": Difference(0, 0, {"remark": 78, "channel": 25}),
        },
        {"doubtful": 41, "truncate": 1},
    ),
}
"""By producer: the recording, what differs from the database, numbers of the summaries."""
UNAPPLIED = ["shop.orders: default of channel", "shop.orders: values of note, which became remark"]


@pytest.mark.parametrize("name", CASES)
def test_the_lake_has_the_rows_of_the_database_and_a_second_run_changes_none(
    name: str, tmp_path: Path
) -> None:
    (folder, prefix, needs_types), expected, numbers = CASES[name]
    database = truth(folder)
    schemas = create_tables(database) if needs_types else None
    messages = recorded(folder, *names_of(folder, prefix))
    summaries = run_all(tmp_path, messages, name, schemas, 100)
    assert differences(tmp_path, database) == expected
    counted = {number: sum(one[number] for one in summaries) for number in numbers}
    assert counted == numbers
    assert summaries[-1]["unapplied"] == ([] if name == "debezium" else UNAPPLIED)
    assert summaries[-1]["stopped"] == {
        "shop.nopk": "has no key: --keys shop.nopk=COLUMN names one"
    }
    again = run_all(tmp_path, messages, name, schemas, 170)
    assert {one["rowsInserted"] + one["rowsUpdated"] for one in again} == {0}
    assert differences(tmp_path, database) == expected
    doubtful = DeltaTable(str(tmp_path / "_bad")).to_pyarrow_table() if numbers["doubtful"] else []
    assert len(doubtful) == numbers["doubtful"]

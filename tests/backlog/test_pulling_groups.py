"""Rows of groups that pull are those that were counted before POP groups were known.

``pulling.jsonl.gz`` has the rows of all golden stores as mqlog c6ced0be returned them, the last
commit before: each line is a store, the options, and the rows without ``asOf`` and ``lagMs``.
"""

import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mqstore.backlog.schema import POP_COUNTS
from mqstore.pop.state import PULL
from support import goldens, planned

_KEPT = Path(__file__).parent / "pulling.jsonl.gz"
_ORDER = ("brokerName", "group", "topic", "queueId", "tag")
_OF_NOW = ("asOf", "lagMs")


def kept() -> list[Any]:
    """The lines, named by store and options."""
    with gzip.open(_KEPT, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [
        pytest.param(line, id=f"{line['version']} {line['archive']} {' '.join(line['options'])}")
        for line in found
    ]


@pytest.mark.parametrize("line", kept())
def test_rows_of_groups_that_pull_are_as_before(line: dict[str, Any], tmp_path: Path) -> None:
    root = goldens.unpack(line["version"], tmp_path, line["archive"])
    options = {"includeSystemTopics": "true", "lateAfter": "9999999h", **line["options"]}
    found = planned.rows(str(root), table="backlog", **options)
    for row in found:
        assert row.pop("mode") == PULL
        assert row.pop("isSystem") is row["group"].startswith("CID_RMQ_SYS_")
        assert {row.pop(name) for name in POP_COUNTS} == {None}
        first, as_of, lag_ms = row["firstUnconsumedStoreTimestamp"], *map(row.pop, _OF_NOW)
        age = None if first is None else max((as_of - first) // timedelta(milliseconds=1), 0)
        assert lag_ms == age
    assert sorted(map(_plain, found), key=_place) == line["rows"]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()}


def _place(row: dict[str, Any]) -> list[str]:
    return [str(row[name]) for name in _ORDER]

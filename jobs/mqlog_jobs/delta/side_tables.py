"""The tables beside those of the database: bad rows, and the summaries of batches."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

BAD_TABLE: Final = "_bad"
SUMMARY_TABLE: Final = "_changes"
_PLACE_OF_ROW: Final = ("queueId", "queueOffset", "rowInMessage")
_BAD_COLUMNS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("brokerName", pa.string()),
        pa.field("queueId", pa.int32()),
        pa.field("queueOffset", pa.int64()),
        pa.field("rowInMessage", pa.int32()),
        pa.field("table", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("isApplied", pa.bool_()),
        pa.field("body", pa.binary()),
    ]
)
_SUMMARY_COLUMNS: Final = pa.schema(
    [
        pa.field("batch", pa.int64()),
        pa.field("position", pa.string()),
        pa.field("summary", pa.string()),
    ]
)


def write_bad(
    root: Path, columns: Mapping[str, list[Any]], bad: Mapping[int, tuple[str, bool]]
) -> None:
    """Add rows that are bad or doubtful, those that are not there yet.

    ``bad`` has the reason by the number of a row, and whether the row was applied without a value.
    """
    if not bad:
        return
    rows = [
        {
            **{name: columns[name][place] for name in ("topic", "brokerName", *_PLACE_OF_ROW)},
            "table": ".".join(
                filter(None, (columns[name][place] for name in ("database", "table")))
            ),
            "reason": reason,
            "isApplied": applied,
            "body": columns["_corruptBody"][place],
        }
        for place, (reason, applied) in sorted(bad.items())
    ]
    same = [f't."{name}" = s."{name}"' for name in ("topic", *_PLACE_OF_ROW)]
    same.append("coalesce(t.\"brokerName\", '') = coalesce(s.\"brokerName\", '')")
    _insert_new(root / BAD_TABLE, pa.Table.from_pylist(rows, _BAD_COLUMNS), " AND ".join(same))


def write_summary(
    root: Path, batch: int, position: Mapping[str, Any], summary: Mapping[str, Any]
) -> None:
    """Add the summary of a batch, if it is not there yet."""
    row = {
        "batch": batch,
        "position": json.dumps(position, sort_keys=True),
        "summary": json.dumps(summary, ensure_ascii=False),
    }
    table = pa.Table.from_pylist([row], _SUMMARY_COLUMNS)
    _insert_new(root / SUMMARY_TABLE, table, "t.batch = s.batch")


def _insert_new(path: Path, rows: pa.Table, condition: str) -> None:
    lake = DeltaTable.create(str(path), schema=rows.schema, mode="ignore")
    merge = lake.merge(rows, condition, source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()

"""The table ``forecast`` on a terminal."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.console import Console

from mqlog_jobs.output.amounts import rate, span
from mqlog_jobs.output.render import FieldView, Row, heading, table
from mqlog_jobs.output.views import each_group, note_no_group, with_broker

FORECAST_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("lag", "LAG", "count"),
    FieldView("stored", "STORED/S", "number", rank=3),
    FieldView("consumed", "CONSUMED/S", "number", rank=2),
    FieldView("zero", "CAUGHT UP IN", "number"),
    FieldView("loss", "LOST IN", "number"),
    FieldView("lossBy", "BY", rank=1),
)
_UNKNOWN: Final = "?"
_NEVER_GONE: Final = "never"
_NOTHING_WAITS: Final = "–"


def forecasts(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the queues of each group; times with their spread."""
    for group, members in each_group(console, rows):
        heading(console, group, _note(members))
        table(console, with_broker(FORECAST_VIEW, rows), [_shaped(row) for row in members])
    note_no_group(console, rows)


def _note(rows: Sequence[Row]) -> str:
    looks = max(int(str(row["looks"])) for row in rows)
    return "" if looks > 1 else "one look: no rates, so no time of catching up"


def _shaped(row: Row) -> Row:
    now = row["asOf"]
    assert isinstance(now, datetime)
    return {
        **row,
        "stored": rate(_number(row["storedRate"])),
        "consumed": rate(_number(row["consumedRate"])),
        "zero": ahead(now, row, "etaZero", _never(row)),
        "loss": ahead(now, row, "etaLoss", _UNKNOWN if row["lag"] else _NOTHING_WAITS),
    }


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _never(row: Row) -> str:
    """Return what stands where a queue has no time of catching up: its rates may be known."""
    rates = row["storedRate"], row["consumedRate"]
    return _NEVER_GONE if all(isinstance(rate, float) for rate in rates) else _UNKNOWN


def ahead(now: datetime, row: Mapping[str, object], name: str, otherwise: str = _UNKNOWN) -> str:
    """Return how long it is until a time, with its spread: 12 s (10 s to 15 s)."""
    at = row[name]
    if not isinstance(at, datetime):
        return otherwise
    low, high = row[f"{name}Earliest"], row[f"{name}Latest"]
    told = _until(now, at)
    if low == at == high:
        return told
    upto = _until(now, high) if isinstance(high, datetime) else "ever"
    return f"{told} ({_until(now, low) if isinstance(low, datetime) else _UNKNOWN} to {upto})"


def _until(now: datetime, at: datetime) -> str:
    return span(max(0, round((at - now).total_seconds() * 1000)) // 1000 * 1000)

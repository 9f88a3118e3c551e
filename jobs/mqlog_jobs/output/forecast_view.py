"""The table ``forecast`` on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from mqlog_jobs.output.amounts import rate, span
from mqlog_jobs.output.render import FieldView, Row, heading, table
from mqlog_jobs.output.views import each_group, note_no_group, with_broker
from mqstore.verdicts.rates import CARRIED_TIMES, LEAST_SPAN_MS

FORECAST_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("lag", "LAG", "count"),
    FieldView("stored", "STORED/S", "number", rank=3),
    FieldView("consumed", "CONSUMED/S", "number", rank=2),
    FieldView("zero", "CAUGHT UP IN", "number"),
    FieldView("loss", "LOST IN", "number"),
    FieldView("lossBy", "BY", rank=1),
    FieldView("status", "STATUS", "status", rank=4),
)
_UNKNOWN: Final = "?"
_NEVER_GONE: Final = "never"
_NOTHING_WAITS: Final = "–"
_LONGER: Final = "--samples that span ten minutes or more"


def forecasts(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the queues of each group; times with their spread."""
    is_one_look = all(int(str(row["looks"])) == 1 for row in rows)
    for group, members in each_group(console, rows):
        heading(console, group, _note(members, is_one_look=is_one_look))
        table(console, with_broker(FORECAST_VIEW, rows), [_shaped(row) for row in members])
        for line in _unknown(members, is_one_look=is_one_look):
            console.print(Text(line, style="dim"), soft_wrap=True)
    note_no_group(console, rows)


def _note(rows: Sequence[Row], *, is_one_look: bool) -> str:
    if any(int(str(row["looks"])) > 1 for row in rows):
        return ""
    if is_one_look:
        return "one look: no rates, so no time of catching up"
    return "its offsets tell no rates, so no time of catching up"


def _unknown(rows: Sequence[Row], *, is_one_look: bool) -> Iterator[str]:
    """Yield why times are not known, and what would make them known."""
    waiting = [row for row in rows if row["lag"]]
    if is_one_look and any(_zero(row) == _UNKNOWN for row in waiting):
        yield "catching up: not known from one look; --look-again 15s takes another"
    short = [row for row in waiting if _is_too_far(row)]
    if short:
        farthest_ms = max(ms for row in short if (ms := _catching_up_ms(row)) is not None)
        over_ms = max(_ms(row) for row in short)
        yield (
            f"catching up: {span(over_ms)} of looks carry a time up to "
            f"{span(CARRIED_TIMES * over_ms)} ahead, not {span(farthest_ms)}; "
            f"{_LONGER} carry any"
        )
    if any(not isinstance(row["etaLoss"], datetime) for row in waiting):
        yield (
            "loss: not known for messages in the file that is written, or by a disk that fills, "
            f"without {_LONGER}; of a store also not without --broker-conf or --file-reserved-time"
        )


def _ms(row: Row) -> int:
    ms = row["ratesMs"]
    return ms if isinstance(ms, int) else 0


def _catching_up_ms(row: Row) -> int | None:
    """Return in how many ms nothing waits at the rates of a row; None: never, or not known."""
    stored, consumed, lag = row["storedRate"], row["consumedRate"], row["lag"]
    if not isinstance(stored, float) or not isinstance(consumed, float):
        return None
    ahead = consumed - stored
    return round(1000 * int(str(lag)) / ahead) if ahead > 0 else None


def _is_too_far(row: Row) -> bool:
    """Tell whether the looks lie too near together for how far ahead the time would be."""
    ms, over_ms = _catching_up_ms(row), _ms(row)
    is_carried = over_ms >= LEAST_SPAN_MS or ms is None or ms <= CARRIED_TIMES * over_ms
    return not isinstance(row["etaZero"], datetime) and not is_carried


def _shaped(row: Row) -> Row:
    now = row["asOf"]
    assert isinstance(now, datetime)
    return {
        **row,
        "stored": rate(_number(row["storedRate"])),
        "consumed": rate(_number(row["consumedRate"])),
        "zero": _zero(row),
        "loss": ahead(now, row, "etaLoss", _UNKNOWN if row["lag"] else _NOTHING_WAITS),
    }


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _zero(row: Row) -> str:
    """Return when a queue has caught up: never at known rates, or not known."""
    now, rates = row["asOf"], (row["storedRate"], row["consumedRate"])
    assert isinstance(now, datetime)
    is_known = all(isinstance(rate, float) for rate in rates) and not _is_too_far(row)
    return ahead(now, row, "etaZero", _NEVER_GONE if is_known else _UNKNOWN)


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

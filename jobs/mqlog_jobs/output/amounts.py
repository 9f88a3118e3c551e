"""Numbers, bytes, times and lengths of time, as people read them: the standard library alone."""

import math
from datetime import UTC, datetime
from typing import Final

ABOUT: Final = "≈ "
"""Stands in front of a number that is estimated."""
UNKNOWN: Final = "–"
"""Stands in place of a number or time that is not known."""
# Seconds of a unit, its name; seconds of the unit below, its name.
_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def count(value: int) -> str:
    """Return 12345 as 12,345."""
    return f"{value:,}"


def several(value: int, noun: str, plural: str = "") -> str:
    """Return 1 as 1 topic, 12345 as 12,345 topics; ``plural`` is for nouns that take no s."""
    return f"{value:,} {noun if value == 1 else plural or f'{noun}s'}"


def size(value: int) -> str:
    """Return bytes with a binary unit and three digits at most: 820 B, 1.4 KiB, 512 MiB."""
    if abs(value) < 1024:
        return f"{value} B"
    power = min(int(math.log(abs(value), 1024)), 6)
    scaled = value / 1024**power
    digits = 1 if abs(scaled) < 99.95 else 0
    return f"{scaled:.{digits}f} {'KMGTPE'[power - 1]}iB"


def about_size(value: int) -> str:
    """Return estimated bytes: ≈ 1.4 KiB; nothing is not about nothing."""
    return f"{ABOUT}{size(value)}" if value else size(value)


def span(milliseconds: int) -> str:
    """Return a length of time in its two largest units: 450 ms, 12 s, 3 m 20 s, 5 d 4 h."""
    if abs(milliseconds) < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1000
    for unit, name, below, smaller in _UNITS:
        if abs(seconds) >= unit:
            rest = seconds % unit // below
            return f"{seconds // unit} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"


def moment(value: datetime) -> str:
    """Return a time in UTC, to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_of(ms: int) -> str:
    """Return the time of milliseconds since 1970, in UTC, to the second."""
    return moment(datetime.fromtimestamp(ms / 1000, UTC))


def instant(value: datetime, timespec: str = "auto") -> str:
    """Return a time as ISO-8601 in UTC, for programs: 2026-11-21T09:00:00Z."""
    return value.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def rate(value: float | None) -> str:
    """Return a number of messages a second: 0, 0.4, 12.5, 1,234."""
    if value is None:
        return UNKNOWN
    if value == 0 or abs(value) >= 99.95:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 0.05 else f"{value:.2g}"


def short(value: float) -> str:
    """Return a number for an axis: 0, 0.25, 12, 15k, 2M."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= least:
            divisor = 1e3 if unit == "k" else least
            return f"{value / divisor:.4g}{unit}"
    return f"{value:,.3g}" if value < 999.5 else f"{value:,.0f}"

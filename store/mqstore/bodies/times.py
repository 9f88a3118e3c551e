"""Texts of dates and times, by Spark's default formats and by a pattern of Java.

A timestamp is a number of microseconds since 1970-01-01T00:00:00Z, a date one of days.

Reference: org.apache.spark.sql.catalyst.util.SparkDateTimeUtils#stringToTimestamp, #stringToDate;
java.time.format.DateTimeFormatterBuilder#appendPattern.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
FIRST_US: Final = -62_135_596_800_000_000
LAST_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999: what lies outside cannot be shown."""
_DATE_TEXT: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII
)
_TIME_TEXT: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})"
    r"(?:\.(\d{0,9}))?)?)?\s*(Z|[A-Za-z][\w+\-/]*(?::\d{1,2})?"
    r"|[+-]\d{1,2}(?::?\d{1,2}(?::?\d{1,2})?)?)?)?)?)?)?",
    re.ASCII,
)
_ZONE_OFFSET: Final = re.compile(r"([+-])(\d{1,2})(?::?(\d{1,2})(?::?(\d{1,2}))?)?", re.ASCII)
_LETTERS: Final = {
    "y": r"(?P<y>\d{4})", "u": r"(?P<y>\d{4})", "M": r"(?P<M>\d{1,2})", "d": r"(?P<d>\d{1,2})",
    "H": r"(?P<H>\d{1,2})", "m": r"(?P<m>\d{1,2})", "s": r"(?P<s>\d{1,2})",
    "X": r"(?P<z>Z|[+-]\d\d(?::?\d\d)?)", "x": r"(?P<z>[+-]\d\d(?::?\d\d)?)",
    "Z": r"(?P<z>[+-]\d{4})", "V": r"(?P<z>[A-Za-z][\w+\-/]*)",
}  # fmt: skip
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL | re.ASCII)


def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name or an offset; raises ValueError for another text."""
    by_hours = _ZONE_OFFSET.fullmatch(name)
    if name in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if by_hours is not None:
        hours, minutes, seconds = (int(by_hours[n] or 0) for n in (2, 3, 4))
        size = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-size if by_hours[1] == "-" else size)
    prefixed = re.fullmatch(r"(?:UTC|GMT|UT)([+-].*)", name)
    if prefixed is not None:
        return zone_of(prefixed[1])
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{name} is no time zone") from None


def day(text: str) -> int:
    """Return the day of ``2024-02-29``, ``2024-2-9``, ``2024``; raises ValueError."""
    match = _DATE_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return date(int(match[1]), int(match[2] or 1), int(match[3] or 1)).toordinal() - _EPOCH_DAY


def moment(text: str, zone: tzinfo | None) -> int:
    """Return the moment of an ISO text; one without a zone is of ``zone``.

    ``zone`` None: a text with a zone is refused, and the moment is that of UTC. Digits behind the
    sixth of a second are cut. Raises ValueError.
    """
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    year, month, of_month, hour, minute, second, fraction, named = match.groups()
    local = datetime(
        int(year), int(month or 1), int(of_month or 1), int(hour or 0), int(minute or 0),
        int(second or 0), int((fraction or "0")[:6].ljust(6, "0")),
    )  # fmt: skip
    if named is not None and zone is None:
        raise ValueError(text)
    return _micros(local, zone_of(named) if named else (zone or UTC))


def _micros(local: datetime, zone: tzinfo) -> int:
    micros = (local.replace(tzinfo=zone) - EPOCH) // _MICROSECOND
    if not FIRST_US <= micros <= LAST_US:
        raise ValueError(local)
    return micros


def compiled(pattern: str) -> Callable[[str], tuple[datetime, tzinfo | None]]:
    """Return the reader of texts of a pattern of Java: ``dd/MM/yyyy HH:mm:ss.SSS``.

    It raises ValueError for another text. Raises ValueError for a letter that has no meaning here.
    """
    form = re.compile("".join(_pieces(pattern)), re.ASCII)

    def read(text: str) -> tuple[datetime, tzinfo | None]:
        match = form.fullmatch(text)
        if match is None:
            raise ValueError(text)
        parts = {name: value for name, value in match.groupdict().items() if value is not None}
        local = datetime(
            int(parts.get("y", 1970)), int(parts.get("M", 1)), int(parts.get("d", 1)),
            int(parts.get("H", 0)), int(parts.get("m", 0)), int(parts.get("s", 0)),
            int(parts.get("S", "0")[:6].ljust(6, "0")),
        )  # fmt: skip
        return local, zone_of(parts["z"]) if "z" in parts else None

    return read


def _pieces(pattern: str) -> Iterator[str]:
    seen: set[str] = set()
    for piece in _PIECE.finditer(pattern):
        if piece[2] is None:
            yield re.escape("'" if piece[1] == "" else (piece[1] or piece[3]).replace("''", "'"))
            continue
        letter, count = piece[2], len(piece[0])
        if letter in seen or (letter not in _LETTERS and letter != "S"):
            raise ValueError(f"{piece[0]} cannot be read: there are yyyy MM dd HH mm ss SSS XX VV")
        seen.add(letter)
        if letter == "S":
            yield rf"(?P<S>\d{{{count}}})"
        else:
            fixed = count == 2 and letter in "MdHms"
            yield _LETTERS[letter].replace("{1,2}", "{2}") if fixed else _LETTERS[letter]


class Times:
    """How texts of times are read: by Spark's default forms, or by patterns."""

    def __init__(
        self, zone: str, unit: str, timestamps: str | None = None, dates: str | None = None
    ) -> None:
        self.zone = zone_of(zone)
        self.is_utc = self.zone is UTC
        self.zone_name = zone
        self.unit = unit
        self.per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
        self._timestamps = None if timestamps is None else compiled(timestamps)
        self._dates = None if dates is None else compiled(dates)

    @property
    def plain_timestamps(self) -> bool:
        """Whether timestamps are texts of ISO."""
        return self._timestamps is None

    @property
    def plain_dates(self) -> bool:
        """Whether dates are texts of ISO."""
        return self._dates is None

    def timestamp(self, text: str) -> int:
        """Return the moment of a text; raises ValueError."""
        if self._timestamps is None:
            return moment(text, self.zone)
        local, zone = self._timestamps(text)
        return _micros(local, zone or self.zone)

    def local(self, text: str) -> int:
        """Return the moment of a text without a zone, as if in UTC; raises ValueError."""
        if self._timestamps is None:
            return moment(text, None)
        local, zone = self._timestamps(text)
        if zone is not None:
            raise ValueError(text)
        return _micros(local, UTC)

    def number(self, count: int) -> int:
        """Return the moment of a number of units; raises ValueError beyond the years 1 to 9999."""
        micros = count * self.per_unit
        if not FIRST_US <= micros <= LAST_US:
            raise ValueError(count)
        return micros

    def date(self, text: str) -> int:
        """Return the day of a text; raises ValueError."""
        if self._dates is None:
            return day(text)
        return self._dates(text)[0].toordinal() - _EPOCH_DAY

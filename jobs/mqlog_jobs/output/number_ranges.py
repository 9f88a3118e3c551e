"""Sentences that differ by their numbers alone, as one sentence with ranges."""

import re
from collections.abc import Sequence
from typing import Final

_UNITS_S: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_VALUE: Final = re.compile(
    r"(?<![^\s(])(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ)"
    r"|(?P<span>\d+) (?P<unit>s|min|h|d)"
    r"|(?P<number>\d{1,3}(?:,\d{3})*|\d+))(?=[\s,;:)]|$)"
)
"""Times, spans and numbers as verdicts write them; digits of names are none of them."""


def shape_of(sentence: str) -> str:
    """Return the sentence without its numbers: two of one shape differ by numbers alone."""
    return _VALUE.sub(lambda value: f"\0{value.lastgroup}", sentence)


def with_ranges(sentences: Sequence[str]) -> str:
    """Return one sentence for some of one shape: ``3 to 1,200`` where their numbers differ.

    Spans of time and times are ranges too.
    """
    columns = iter(list(zip(*(list(_VALUE.finditer(one)) for one in sentences), strict=True)))
    return _VALUE.sub(lambda _: _range(next(columns)), sentences[0])


def _range(values: Sequence[re.Match[str]]) -> str:
    least, most = min(values, key=_order), max(values, key=_order)
    return least[0] if least[0] == most[0] else f"{least[0]} to {most[0]}"


def _order(value: re.Match[str]) -> tuple[int, str]:
    if value["time"] is not None:
        return 0, value["time"]
    if value["span"] is not None:
        return int(value["span"]) * _UNITS_S[value["unit"]], ""
    return int(value["number"].replace(",", "")), ""

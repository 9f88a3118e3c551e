"""Charts as inline SVG, without scripts: columns over time, bars, and sparklines.

Lengths across are percentages and lengths down are pixels, so that a chart is as wide as its
place and its texts keep their size. Colours are classes, which the stylesheet gives for light
and dark. Each chart has a text alternative.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs.output.amounts import moment_of, short
from mqlog_jobs.report.markup import Element, element
from mqlog_jobs.report.rates import STEPS_MS

SERIES: Final = 6
"""How many colours there are: classes s0 to s5, and ``rest`` for all others."""

_HEIGHT: Final = 220
_FOOT: Final = 36
_HEAD: Final = 8
_SPARK: Final = (120, 22)
_LABELS: Final = 7
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 300 * _DAY_MS
_BETWEEN_COLUMNS: Final = 0.14  # of a column's width
_NEAR_AN_END: Final = 0.06


@dataclass(frozen=True, slots=True)
class Timeline:
    """``steps`` equal steps of time from ``start_ms``, ms since the epoch."""

    start_ms: int
    step_ms: int
    steps: int


def columns(series: Mapping[str, Sequence[float]], time: Timeline, text: str) -> Element:
    """Return stacked columns, a value of each series a step; ``text`` is what the chart shows."""
    totals = [sum(values) for values in zip(*series.values(), strict=True)]
    top, ticks = scale(max(totals, default=0))
    plot = _HEIGHT - _FOOT - _HEAD
    width = 100 / max(time.steps, 1)
    lines = [
        element(
            "line", class_="grid", x1="0", x2="100%", y1=_y(tick, top, plot), y2=_y(tick, top, plot)
        )
        for tick in ticks
    ]
    bars = []
    for step, values in enumerate(zip(*series.values(), strict=True)):
        label = f"{moment_of(time.start_ms + step * time.step_ms)}: {short(totals[step])}"
        parts, under = [], 0.0
        for number, value in enumerate(values):
            if value:
                y, end = _y(under + value, top, plot), _y(under, top, plot)
                parts.append(
                    _bar(step * width, width * (1 - _BETWEEN_COLUMNS), y, end - y, colour(number))
                )
                under += value
        if parts:
            bars.append(element("g", element("title", label), *parts))
    axis = [*lines, *bars, *_dates(time)]
    return element(
        "div",
        element("svg", *_amounts(ticks, top, plot), class_="amounts", aria_hidden="true"),
        element("svg", *axis, class_="plot", role="img", aria_label=text),
        class_="chart",
    )


def bar(parts: Sequence[tuple[float, str]], text: str) -> Element:
    """Return a horizontal bar: shares of its width with their classes, one behind the other."""
    rects, at = [element("rect", class_="track", width="100%", height="100%")], 0.0
    for share, name in parts:
        width = min(max(share, 0.0), 1 - at) * 100
        rects.append(element("rect", class_=name, x=f"{at * 100:.2f}%", width=f"{width:.2f}%",
                             height="100%"))  # fmt: skip
        at += width / 100
    return element("svg", *rects, class_="bar", role="img", aria_label=text)


def sparkline(values: Sequence[float], text: str) -> Element:
    """Return small columns without axes."""
    width, height = _SPARK
    most, each = max(values, default=0) or 1, width / max(len(values), 1)
    bars = [
        element("rect", x=n * each, y=height - tall, width=max(each * 0.8, 0.8), height=tall)
        for n, value in enumerate(values)
        if (tall := height * value / most and max(height * value / most, 1))
    ]
    base = element("rect", class_="track", y=height - 0.5, width=width, height=0.5)
    box = f"0 0 {width} {height}"
    return element("svg", base, *bars, class_="spark", view_box=box, role="img", aria_label=text)


def colour(number: int) -> str:
    """Return the class of the n-th series."""
    return f"s{number}" if number < SERIES else "rest"


def scale(most: float) -> tuple[float, list[float]]:
    """Return the top of an axis for values up to ``most``, and its ticks from 0 on."""
    if most <= 0:
        return 1.0, [0.0]
    power = 10 ** math.floor(math.log10(most))
    step = next(step for n in (0.25, 0.5, 1, 2, 2.5) if most / (step := n * power) <= 4)
    count = math.ceil(most / step - 1e-9)
    return count * step, [n * step for n in range(count + 1)]


def _y(value: float, top: float, plot: float) -> float:
    return _HEAD + plot * (1 - value / top)


def _bar(x: float, width: float, y: float, height: float, name: str) -> Element:
    return element("rect", class_=name, x=f"{x:.3f}%", width=f"{width:.3f}%", y=y, height=height)


def _amounts(ticks: Sequence[float], top: float, plot: float) -> list[Element]:
    return [
        element("text", short(tick), x="100%", y=_y(tick, top, plot) + 4, text_anchor="end")
        for tick in ticks
    ]


def _dates(time: Timeline) -> list[Element]:
    """Return the labels below the columns: a clock time, and the date where a day begins."""
    end = time.start_ms + time.step_ms * time.steps
    span = max(end - time.start_ms, 1)
    wide = (step for step in STEPS_MS if step >= time.step_ms and span / step <= _LABELS)
    step = next(wide, span // _LABELS + 1)
    first = -(-time.start_ms // step) * step
    labels: list[Element] = []
    before = ""
    for number, at in enumerate(range(first, end, step)):
        share = (at - time.start_ms) / span
        when = datetime.fromtimestamp(at / 1000, UTC)
        day = when.strftime("%b %Y" if span > _YEAR_MS else "%d %b").removeprefix("0")
        clock = when.strftime("%H:%M" if step >= _MINUTE_MS else "%H:%M:%S")
        lines = (day,) if step >= _DAY_MS else (clock, day if day != before else "")
        before = day
        labels += _label(share, lines, minor=number % 2 == 1)
    return labels


def _label(share: float, lines: Sequence[str], *, minor: bool) -> list[Element]:
    """Return a tick and the lines below it; on a narrow page a minor one has no clock time."""
    x, y = f"{share * 100:.3f}%", _HEIGHT - _FOOT
    anchor = "start" if share < _NEAR_AN_END else "end" if share > 1 - _NEAR_AN_END else "middle"
    texts = [
        element("text", line, class_="minor" if minor and not n else None, x=x, y=y + 18 + 14 * n,
                text_anchor=anchor)
        for n, line in enumerate(lines)
        if line
    ]  # fmt: skip
    return [element("line", class_="tick", x1=x, x2=x, y1=y, y2=y + 4), *texts]

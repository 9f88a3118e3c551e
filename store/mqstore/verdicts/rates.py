"""Rates of counters that were looked at several times, and when a lag is 0 if they stay.

A counter is taken for a random walk with a drift: the variance of its growth is measured between
the looks, or is that of a Poisson process where there are two looks only. Spreads hold 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

COMMIT_MS: Final = 5_000
"""How old a committed offset may be: ClientConfig#persistConsumerOffsetInterval.

BrokerConfig#flushConsumerOffsetInterval is as long: offsets in a store may be twice as old."""
_T_95: Final = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t with 1, 2, … degrees of freedom, two-sided 95 %."""
_NORMAL_95: Final = 1.96
_SECOND_MS: Final = 1000
FOR_EVER_MS: Final = 10 * 365 * 86_400_000
"""What lies further ahead than ten years is not foreseen."""
LEAST_SPAN_MS: Final = 600_000
"""Looks that lie nearer together carry no forecast of a disk: it may be one burst that they saw."""
CARRIED_TIMES: Final = 20
"""So many times as far as they lie apart carry looks a forecast otherwise."""
_BISECTIONS: Final = 60


@dataclass(frozen=True, slots=True)
class Spread:
    """A value and the bounds that hold 95 % of what it may be; None: without a bound."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """How a counter grows: ``per_ms`` on average of ``over_ms``, with a variance per ms.

    ``t`` are the standard errors that hold 95 %. ``jitter`` is how much of the growth is not seen
    at a look, or was not at the first one: a committed offset is some seconds old.
    """

    per_ms: float
    over_ms: int
    variance: float
    t: float
    jitter: float = 0.0

    def carries(self, ahead_ms: float) -> bool:
        """Tell whether what was measured is enough to foresee something that far ahead."""
        return self.over_ms >= LEAST_SPAN_MS or ahead_ms <= CARRIED_TIMES * self.over_ms

    @property
    def per_second(self) -> Spread:
        """The rate a second; the bounds are those of the average, and not below 0."""
        error = self.t * math.sqrt(self.variance / self.over_ms) + self.jitter / self.over_ms
        bounds = max(self.per_ms - error, 0.0), max(self.per_ms + error, 0.0)
        low, high = (bound * _SECOND_MS for bound in bounds)
        return Spread(self.per_ms * _SECOND_MS, low, high)

    def reach_ms(self, amount: float) -> Spread | None:
        """Return in how many ms it has grown by an amount; None: never, or in ten years.

        The spread is of the drift, which was measured, and of what chance adds until then.
        """
        if amount <= 0:
            return Spread(0.0, 0.0, 0.0)
        if self.per_ms <= 0 or amount / self.per_ms > FOR_EVER_MS:
            return None
        return Spread(amount / self.per_ms, self._at(amount, 1), self._at(amount, -1))

    def _at(self, amount: float, sign: int) -> float | None:
        """Return when the bound of that side has reached the amount; None if it never does."""

        def reaches(ms: float) -> bool:
            error = self.t * math.sqrt(self.variance * (ms + ms * ms / self.over_ms))
            error += self.jitter * ms / self.over_ms
            return self.per_ms * ms + sign * error >= amount

        low, high = 0.0, amount / self.per_ms
        while not reaches(high):
            low, high = high, 2 * high
            if high > FOR_EVER_MS:
                return None
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return high


def _steps(times_ms: Sequence[int], counts: Sequence[int], least_ms: int) -> list[tuple[int, int]]:
    """Return growth and duration between looks; those that follow sooner than that are left out.

    A commit between two looks of one second would count as seconds of work done in one.
    """
    edges = [(times_ms[0], counts[0])]
    for point in zip(times_ms[1:], counts[1:], strict=True):
        if point[0] - edges[-1][0] >= least_ms:
            edges.append(point)
    if len(edges) > 1:  # The last look counts, with the time since the one before it that does.
        edges[-1] = times_ms[-1], counts[-1]
    return [(after - before, at - since) for (since, before), (at, after) in pairwise(edges)]


def drift(
    times_ms: Sequence[int],
    counts: Sequence[int],
    turned_over: float | None = None,
    jitter: float = 0.0,
) -> Drift | None:
    """Return how a counter grew between looks, in ascending order; None with fewer than two.

    ``turned_over`` are the single events that made its growth, where they partly cancel: of a lag
    what was stored and consumed. Used where there are two looks only. ``jitter`` as in Drift.
    """
    over_ms = times_ms[-1] - times_ms[0] if len(times_ms) > 1 else 0
    if over_ms <= 0:
        return None
    grown = counts[-1] - counts[0]
    per_ms = grown / over_ms
    steps = _steps(times_ms, counts, COMMIT_MS if jitter else 1)
    poisson = (abs(grown) if turned_over is None else turned_over) / over_ms
    if len(steps) < 2:
        return Drift(per_ms, over_ms, poisson, _NORMAL_95, jitter)
    squares = sum((step - per_ms * ms) ** 2 / ms for step, ms in steps)
    degrees = len(steps) - 1
    t = _T_95[degrees - 1] if degrees <= len(_T_95) else _NORMAL_95
    return Drift(per_ms, over_ms, squares / degrees, t, jitter)

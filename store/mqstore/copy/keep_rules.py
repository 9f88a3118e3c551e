"""Which points of a repository stay: rules such as ``24h:1h,30d:1d``.

Each rule has an age and a step: of the points that are no older than the age, the last of each
step of time stays. Steps begin at the epoch, so that the same points stay whenever the rules are
applied. What no rule keeps goes; the newest point always stays.

A clock may be wrong once, and then right again. So the age of a point is counted twice, and it is
no older than it is by either: by the clock, and by the order of the points. By order the age is
the sum of the gaps between the points up to the newest. A gap is what their clocks say, but
nothing where the clock went back, and one step where it went on by more than a day and a step.
Points before a clock went back and points behind share no step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files.points.manifest import PointHead
from mqstore.options import grammar

JUMP_MS: Final = 26 * 3_600_000
"""A clock that goes on by more than this is in doubt: a day, and what a daily run may vary."""
_JUMPS_OF_EVERY: Final = 100
"""By the rule ``AGE:0`` such a gap counts as a hundredth of the age."""
_KEEP_FORM: Final = "must be AGE:STEP, such as 24h:1h,30d:1d; the step 0 keeps every point"


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Of points no older than ``age_ms``, the last of each ``step_ms``; 0: every one."""

    age_ms: int
    step_ms: int


def parse_keep(option: str, text: str) -> tuple[KeepRule, ...]:
    """Return the rules of a text. Raises InvalidOptionError."""
    rules = []
    for rule in text.split(","):
        age, colon, step = rule.partition(":")
        if not colon:
            raise InvalidOptionError(option, text, _KEEP_FORM)
        made = KeepRule(grammar.duration(option, age), grammar.duration(option, step))
        if not made.age_ms or made.step_ms > made.age_ms:
            raise InvalidOptionError(
                option, text, f"{_KEEP_FORM}; the age is the longer of the two"
            )
        rules.append(made)
    return tuple(rules)


def kept(heads: Sequence[PointHead], rules: Iterable[KeepRule], now_ms: int) -> set[int]:
    """Return the numbers of the points that stay; the heads are in the order of the points."""
    stays = {heads[-1].number} if heads else set()
    for rule in rules:
        last: dict[tuple[int, int], int] = {}
        run, before_ms = 0, 0
        for head, age_ms in zip(heads, _ages_by_order(heads, rule), strict=True):
            run += head.began_ms < before_ms  # What came before a clock went back stays.
            before_ms = head.began_ms
            if min(age_ms, now_ms - head.began_ms) <= rule.age_ms:
                step = head.began_ms // rule.step_ms if rule.step_ms else head.number
                last[run, step] = head.number
        stays.update(last.values())
    return stays


def _ages_by_order(heads: Sequence[PointHead], rule: KeepRule) -> list[int]:
    """Return how much older than the newest point each is, by the gaps between points."""
    ages, age_ms = [], 0
    least_step_ms = rule.step_ms or rule.age_ms // _JUMPS_OF_EVERY
    for head, later in zip(reversed(heads), [None, *reversed(heads)], strict=False):
        gap_ms = max(later.began_ms - head.began_ms, 0) if later is not None else 0
        age_ms += least_step_ms if gap_ms > max(JUMP_MS, rule.step_ms) else gap_ms
        ages.append(age_ms)
    return ages[::-1]

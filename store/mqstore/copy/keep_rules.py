"""Which points of a repository stay: rules such as ``24h:1h,30d:1d``.

Each rule has an age and a step: of the points that are no older than the age, the last of each
step of time stays. Steps begin at the epoch, so that the same points stay whenever the rules are
applied. What no rule keeps goes; the newest point always stays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files.points.manifest import PointHead
from mqstore.options import grammar

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
    """Return the numbers of the points that stay; the heads ascend by time."""
    stays = {heads[-1].number} if heads else set()
    for rule in rules:
        last: dict[int, int] = {}
        for head in heads:
            if head.began_ms >= now_ms - rule.age_ms:
                last[head.began_ms // rule.step_ms if rule.step_ms else head.number] = head.number
        stays.update(last.values())
    return stays

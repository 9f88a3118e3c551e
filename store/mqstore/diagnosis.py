"""The result of one step of an examination, for people.

The standard library alone: an examination may find that numpy is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mqstore.errors import shown

GOOD: Final = "OK"
REMARK: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"

_LABEL_CELLS: Final = 40
_FOLDED_NAMES: Final = 2


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one examination: its severity, what was found, and advice.

    ``severity`` is GOOD; REMARK, for what is wrong with a thing that nobody asked for; WARNING; or
    ERROR.
    """

    severity: str
    subject: str
    found: str
    advice: str = ""


def labels(found: Sequence[Diagnosis]) -> list[str]:
    """Return the subjects, printable, and of one width if none is very long."""
    names = [shown(diagnosis.subject) for diagnosis in found]
    width = min(max(map(len, names), default=0), _LABEL_CELLS)
    return [f"{name:<{width}}" for name in names]


def folded(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return the diagnoses; those that say the same of several names are one.

    Where ``Settings a`` and ``Settings b`` say the same, its subject is ``Settings a, b``; of more
    than two names the first ones and the number of the others. It stands at the first one's place.
    """
    names: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for diagnosis in found:
        names.setdefault(_alike(diagnosis), {})[diagnosis.subject.partition(" ")[2]] = None
    lines: list[Diagnosis] = []
    for diagnosis in found:
        its = list(names.get(_alike(diagnosis), ()))
        if len(its) > 1:
            del names[_alike(diagnosis)]
            kind = diagnosis.subject.partition(" ")[0]
            more = f" and {len(its) - _FOLDED_NAMES:,} more" if len(its) > _FOLDED_NAMES else ""
            lines.append(
                replace(diagnosis, subject=f"{kind} {', '.join(its[:_FOLDED_NAMES])}{more}")
            )
        elif its:
            lines.append(diagnosis)
    return lines


def _alike(diagnosis: Diagnosis) -> tuple[str, str, str, str]:
    kind = diagnosis.subject.partition(" ")[0]
    return kind, diagnosis.severity, diagnosis.found, diagnosis.advice

"""The result of one step of an examination, for people.

The standard library alone: an examination may find that numpy is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.errors import shown

GOOD: Final = "OK"
REMARK: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"

_LABEL_CELLS: Final = 40


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

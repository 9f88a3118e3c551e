"""The result of one step of an examination, for people.

The standard library alone: an examination may find that numpy is missing.
"""

from dataclasses import dataclass
from typing import Final

GOOD: Final = "OK"
REMARK: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"


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

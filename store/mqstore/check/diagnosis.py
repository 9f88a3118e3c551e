"""The result of one step of an examination, for people."""

from dataclasses import dataclass
from typing import Final

GOOD: Final = "OK"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one examination: its severity, what was found, and advice.

    ``severity`` is GOOD, or ERROR or WARNING of mqstore.check.finding.
    """

    severity: str
    subject: str
    found: str
    advice: str = ""

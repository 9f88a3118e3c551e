"""Findings: what a check has to say, and the list it says it in."""

from dataclasses import dataclass
from typing import Final

from mqstore.format.names import as_text

ERROR: Final = "error"
WARNING: Final = "warning"
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule. ``error``: a broker would lose, skip or misread something.

    ``warning``: it would not, but should not have to. ``file`` is relative to the root.
    """

    severity: str
    file: str
    position: int | None
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule is broken."""

    file: str
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class Findings:
    """Collects findings: of each severity the first thousand, and the number of the others."""

    def __init__(self) -> None:
        self._found: dict[str, list[Finding]] = {ERROR: [], WARNING: []}
        self._more = {ERROR: 0, WARNING: 0}

    def error(self, place: Place, problem: str) -> None:
        """Add an error."""
        self._add(ERROR, place, problem)

    def warning(self, place: Place, problem: str) -> None:
        """Add a warning."""
        self._add(WARNING, place, problem)

    def all(self) -> list[Finding]:
        """Return errors, then warnings, each in the order they were found."""
        listed = [*self._found[ERROR], *self._found[WARNING]]
        for severity, count in self._more.items():
            if count:
                problem = f"and {count} more of this severity"
                listed.append(Finding(severity, "", None, None, None, None, problem))
        return listed

    def _add(self, severity: str, place: Place, problem: str) -> None:
        if len(self._found[severity]) >= _MOST:
            self._more[severity] += 1
            return
        self._found[severity].append(
            Finding(
                severity,
                _printable(place.file),
                place.position,
                place.topic,
                place.queue_id,
                place.queue_offset,
                _printable(problem),
            )
        )


def _printable(text: str) -> str:
    """Return text whose control characters are escaped: names in a hostile store may have some."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in as_text(text)
    )

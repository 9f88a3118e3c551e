"""Findings: the broken rules that a check reports."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mqstore.diagnosis import ERROR, WARNING
from mqstore.format.arrays import Int64s
from mqstore.format.names import as_text

__all__ = ["ERROR", "SHOWN", "WARNING", "Finding", "FindingPlace", "Findings"]

_MOST_FINDINGS: Final = 1000
SHOWN: Final = 10
"""Findings of one rule and queue; the others are counted."""


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
    consequences: int = 0
    """Broken rules, not listed, that are broken only because of this one."""


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """The place where a rule is broken."""

    file: str
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


@dataclass
class _BrokenRule:
    """How often one rule is broken in one queue: how many were added, and where the others are."""

    shown: int = 0
    more: int = 0
    first: int = 0
    last: int = 0
    index: int = -1

    def leave_out(self, queue_offsets: Int64s) -> None:
        first, last = int(queue_offsets.min()), int(queue_offsets.max())
        self.first, self.last = min(first, self.first), max(last, self.last)
        if not self.more:
            self.first, self.last = first, last
        self.more += len(queue_offsets)


@dataclass
class _CauseFound:
    """A finding that explains others: how many, and the worst severity of all."""

    finding: Finding
    count: int = 0
    severity: str = WARNING


class Findings:
    """Collects findings: of each severity the first thousand, and the number of the others."""

    def __init__(self) -> None:
        self._causes: list[_CauseFound] = []
        self._found: dict[str, list[Finding]] = {ERROR: [], WARNING: []}
        self._more = {ERROR: 0, WARNING: 0}
        self._cuts: dict[tuple[str, FindingPlace, str], _BrokenRule] = {}

    def error(self, place: FindingPlace, problem: str) -> None:
        """Add an error."""
        self._add(ERROR, place, problem)

    def warning(self, place: FindingPlace, problem: str) -> None:
        """Add a warning."""
        self._add(WARNING, place, problem)

    def cause(self, severity: str, place: FindingPlace, problem: str) -> int | None:
        """Add a finding that may explain others; return its number, None if there are too many."""
        if len(self._causes) >= _MOST_FINDINGS:
            self._more[severity] += 1
            return None
        self._causes.append(_CauseFound(_finding(severity, place, problem), severity=severity))
        return len(self._causes) - 1

    def consequence(self, cause: int, count: int, severity: str) -> None:
        """Count broken rules as consequences of the cause with that number."""
        found = self._causes[cause]
        found.count += count
        if severity == ERROR:
            found.severity = ERROR

    def several(
        self,
        severity: str,
        queue: FindingPlace,
        rule: str,
        queue_offsets: Int64s,
        finding: Callable[[int], tuple[FindingPlace, str]],
    ) -> None:
        """Add a finding for each of these queue offsets: ``finding`` makes it, given the index.

        Of one rule and queue the first ten are added, and one that counts all the others.
        """
        cut = self._cuts.setdefault((severity, queue, rule), _BrokenRule())
        room = SHOWN - cut.shown
        for index in range(min(room, len(queue_offsets))):
            self._add(severity, *finding(index))
            cut.shown += 1
        if len(queue_offsets) <= room:
            return
        is_first = not cut.more
        cut.leave_out(queue_offsets[room:])
        problem = f"and {cut.more} more from queue offset {cut.first} to {cut.last}: {rule}"
        place = replace(queue, queue_offset=cut.first)
        if is_first:
            cut.index = self._add(severity, place, problem)
        elif cut.index >= 0:
            self._found[severity][cut.index] = _finding(severity, place, problem)

    def all(self) -> list[Finding]:
        """Return errors, then warnings, each in the order they were found, causes first."""
        listed: list[Finding] = []
        more: list[Finding] = []
        for severity in (ERROR, WARNING):
            causes = [
                replace(cause.finding, severity=severity, consequences=cause.count)
                for cause in self._causes
                if cause.severity == severity
            ]
            found = [*causes, *self._found[severity]]
            listed += found[:_MOST_FINDINGS]
            count = self._more[severity] + max(len(found) - _MOST_FINDINGS, 0)
            if count:
                problem = f"and {count} more of this severity"
                more.append(Finding(severity, "", None, None, None, None, problem))
        return [*listed, *more]

    def _add(self, severity: str, place: FindingPlace, problem: str) -> int:
        """Add a finding; return which of its severity it is, -1 if there are too many."""
        if len(self._found[severity]) >= _MOST_FINDINGS:
            self._more[severity] += 1
            return -1
        self._found[severity].append(_finding(severity, place, problem))
        return len(self._found[severity]) - 1


def _finding(severity: str, place: FindingPlace, problem: str) -> Finding:
    return Finding(
        severity,
        _printable(place.file),
        place.position,
        place.topic,
        place.queue_id,
        place.queue_offset,
        _printable(problem),
    )


def _printable(text: str) -> str:
    """Return text with control characters escaped: names in a hostile store may have some."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in as_text(text)
    )

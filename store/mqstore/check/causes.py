"""Damage of a CommitLog, and what else in the store is broken only because of it.

The units and keys of a record that cannot be read have no record; where a log ends in damage,
everything behind it has none. Each is counted at its cause and gets no finding of its own.
"""

from dataclasses import dataclass

import numpy as np

from mqstore.check.finding import ERROR, FindingPlace, Findings
from mqstore.format.arrays import Int64s, Mask, Span


@dataclass(frozen=True, slots=True)
class _Cause:
    start: int
    end: int
    finding: int


class Causes:
    """Ranges of a CommitLog without a sound record. Add them in log order."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._causes: list[_Cause] = []

    def __len__(self) -> int:
        return len(self._causes)

    def add(self, place: FindingPlace, problem: str, span: Span, severity: str = ERROR) -> None:
        """Report damage, which leaves no record that starts in the physical offsets of ``span``."""
        finding = self._findings.cause(severity, place, problem)
        if finding is not None:
            self._causes.append(_Cause(*span, finding))

    def covers(self, physical_offsets: Int64s) -> Mask:
        """Tell which of these physical offsets lie in damage."""
        return self._indices(physical_offsets) >= 0

    def explain(self, physical_offsets: Int64s, severity: str = ERROR) -> int:
        """Count what is broken about these physical offsets as consequences of the damage there.

        Returns how many of them lie in damage. ``severity`` is that of the broken rule.
        """
        indices = self._indices(physical_offsets)
        found, counts = np.unique(indices[indices >= 0], return_counts=True)
        for index, count in zip(found.tolist(), counts.tolist(), strict=True):
            self._findings.consequence(self._causes[index].finding, count, severity)
        return int(counts.sum())

    def explain_end(self, last: int, severity: str = ERROR) -> bool:
        """Count one consequence of damage behind the record at ``last``; False if there is none."""
        if not self._causes or self._causes[-1].start <= last:
            return False
        self._findings.consequence(self._causes[-1].finding, 1, severity)
        return True

    def _indices(self, physical_offsets: Int64s) -> Int64s:
        """Return the cause of each physical offset, -1 if it has none."""
        if not self._causes:
            return np.full(len(physical_offsets), -1, np.int64)
        starts = np.array([cause.start for cause in self._causes], np.int64)
        ends = np.array([cause.end for cause in self._causes], np.int64)
        found = np.searchsorted(starts, physical_offsets, "right").astype(np.int64) - 1
        return np.where((found >= 0) & (physical_offsets < ends[found]), found, -1)

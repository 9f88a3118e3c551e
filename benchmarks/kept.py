"""Lines that benchmarks kept, and tables of them in Markdown."""

import statistics
from typing import Any

Line = dict[str, Any]
Lines = dict[str, list[Line]]


def median(line: Line, side: str) -> float:
    """Return the median of a side's seconds."""
    seconds = sorted(line["sides"][side]["seconds"])
    return float(seconds[len(seconds) // 2])


def busy_seconds(line: Line, side: str) -> float:
    """Return the CPU time of one round of a side, in seconds."""
    found = line["sides"][side]
    return float(found["cpuMicroseconds"] * found["rows"] / 1e6)


def ratio(line: Line, side: str, other: str) -> float:
    """Return how many rows a second ``side`` does for one of ``other``: median over rounds."""
    ours, theirs = line["sides"][side], line["sides"][other]
    pairs = zip(ours["seconds"], theirs["seconds"], strict=True)
    share = ours["rows"] / theirs["rows"]
    return statistics.median(share * b / a for a, b in pairs)


def cpu_ratio(line: Line, side: str, other: str) -> float:
    """Return the same of the work of all cores: others on the machine disturb it less."""
    ours, theirs = line["sides"][side], line["sides"][other]
    return float(theirs["cpuMicroseconds"] / max(ours["cpuMicroseconds"], 1e-3))


def load_of(line: Line) -> str:
    """Return the load before and after a measurement."""
    return f"{min(line['load']):.0f}–{max(line['load']):.0f}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; nothing without rows."""
    if not rows:
        return ""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)

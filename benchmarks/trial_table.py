"""The verdicts on the compiled kernels: what a step costs without each, beside all of them."""

from statistics import median
from typing import Final

from benchmarks.kept import Line, Lines, table

WORTH: Final = 1.15
"""A kernel stays if a step takes so many times the CPU time without it."""
_BODIES: Final = (100, 1024)


def trial_table(lines: Lines) -> str:
    """Return a row for each kernel; several lines of one step count together."""
    kept = lines.get("trial", [])
    kernels = {
        (line["step"], side)
        for line in kept
        for side in line["sides"]
        if side.startswith("without ")
    }
    rows = []
    for step, side in sorted(kernels):
        times = [_times([one for one in kept if one["step"] == step], side, n) for n in _BODIES]
        verdict = "kept" if max(times) >= WORTH else "removed"
        name = side.removeprefix("without ")
        rows.append((f"`{name}`", step, *(f"{time:.2f}" for time in times), verdict))
    return table(("kernel", "step", *(f"{n} B" for n in _BODIES), "verdict"), rows)


def _times(lines: list[Line], side: str, body_bytes: int) -> float:
    sized = [line["sides"] for line in lines if line["bodyBytes"] == body_bytes]
    with_it, without = (
        median(seconds for sides in sized for seconds in sides[name]["seconds"])
        for name in ("all", side)
    )
    return float(without / with_it)

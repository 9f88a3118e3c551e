"""Looks at many brokers and many stores, and audits: seconds, requests, memory."""

from collections.abc import Iterator
from operator import itemgetter

from benchmarks.kept import Line, Lines, busy_seconds, load_of, median, table

_GIB = 1 << 30


def fleet_table(lines: Lines) -> str:
    """Return a row for each look at a fleet, and for each look at a glob of stores."""
    rows = [
        (
            f"{line['brokers']} brokers, {line['groups']:,} groups, {line['case']}",
            f"{line['rows']:,}",
            f"{line['seconds']:.1f}",
            f"{line['cpuSeconds']:.1f}",
            f"{line['requests'] / line['brokers']:.0f}",
            f"{line['MiB']:.0f}",
            load_of(line),
        )
        for line in lines.get("fleet", [])
    ]
    for line in lines.get("stores", []):
        for side, found in line["sides"].items():
            seconds = (f"{median(line, side):.1f}", f"{busy_seconds(line, side):.1f}")
            rows.append(
                (f"{line['case']}, {side}", f"{found['rows']:,}", *seconds, "", "", load_of(line))
            )
    head = ("", "rows", "seconds", "CPU seconds", "requests a broker", "MiB", "load")
    return table(head, rows)


def audit_table(lines: Lines) -> str:
    """Return a row for each audit."""
    rows = []
    for line in _audits(lines, "digests"):
        for side, found in line["sides"].items():
            seconds = f"{median(line, side):.2f}"
            rows.append((f"digests, {side}", f"{found['rows']:,}", seconds, "", load_of(line)))
    for line in _audits(lines, "differences"):
        what = f"{line['found']:,} differences by {line['by']}"
        amounts = (f"{line['messages']:,}", f"{line['seconds']:.0f}", f"{line['MiB']:.0f}")
        rows.append((what, *amounts, load_of(line)))
    return table(("", "messages", "seconds", "MiB", "load"), rows)


def fleet_targets(lines: Lines) -> list[tuple[str, ...]]:
    """Return the targets of looks at fleets and stores, and of audits."""
    return [*_of_fleets(lines), *_of_stores(lines), *_of_audits(lines)]


def _of_fleets(lines: Lines) -> Iterator[tuple[str, ...]]:
    looks = lines.get("fleet", [])
    later = sorted(looks[1:], key=itemgetter("seconds"))
    for line in [*looks[:1], *later[len(later) // 2 :][:1]]:
        where = f"{line['brokers']} brokers, {line['case']}"
        limit = 30 if line["case"] == "first look" else 2
        asked = line["requests"] / line["brokers"]
        seconds = (f"{line['seconds']:.1f} s", f"{line['cpuSeconds']:.1f} s")
        yield where, f"≤ {limit} s", *seconds, load_of(line)
        yield f"{where}: requests", "≤ 12 a broker", f"{asked:.0f} a broker", "", load_of(line)
    if looks:
        most = max(line["MiB"] for line in looks)
        yield "looks at a fleet: memory", "≤ 500 MiB", f"{most:.0f} MiB", "", load_of(looks[-1])


def _of_stores(lines: Lines) -> Iterator[tuple[str, ...]]:
    for line in lines.get("stores", []):
        for side in line["sides"]:
            seconds = (f"{median(line, side):.1f} s", f"{busy_seconds(line, side):.1f} s")
            yield f"{line['case']}, {side}", "≤ 10 s", *seconds, load_of(line)


def _of_audits(lines: Lines) -> Iterator[tuple[str, ...]]:
    for line in _audits(lines, "digests"):
        for side in ("by offset", "by id"):
            rates = (
                f"{line['bytes'] / seconds / _GIB:.2f} GiB/s"
                for seconds in (median(line, side), busy_seconds(line, side))
            )
            yield f"audit, digests {side}", "≥ 1.5 GiB/s a core", *rates, load_of(line)
    for line in _audits(lines, "differences"):
        where = f"audit of {line['messages']:,} messages by {line['by']}: memory"
        yield where, "≤ 200 MiB", f"{line['MiB']:.0f} MiB", "", load_of(line)


def _audits(lines: Lines, case: str) -> list[Line]:
    return [line for line in lines.get("audit", []) if line["case"] == case]

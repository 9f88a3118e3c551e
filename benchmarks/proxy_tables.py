"""Reads through a proxy beside direct ones: rates, and who works for a message."""

from benchmarks.kept import Line, Lines, cpu_ratio, load_of, ratio, table

_COUNTS = (1, 4, 8)
_TARGET_COUNT = 4
_TARGET = "≥ 0.5 × the direct read"


def proxy_table(lines: Lines) -> str:
    """Return a row for each size of bodies, settings of the broker and number of pulls."""
    rows = []
    for line in lines.get("proxy", []):
        for count in _COUNTS:
            direct, through = f"direct{count}", f"proxy{count}"
            rates = [
                f"{line['sides'][one]['rowsPerSecond'] / 1e3:,.0f}" for one in (direct, through)
            ]
            works = [_works(line, one) for one in (direct, through)]
            share = f"{ratio(line, through, direct):.2f}"
            where = f"{line['case']}, {count} in flight"
            rows.append((where, *rates, share, *works, load_of(line)))
    who = "mqlog + broker + proxy, µs"
    head = ("", "direct", "through", "share", f"direct: {who}", f"through: {who}", "load")
    return table(head, rows)


def proxy_targets(lines: Lines) -> list[tuple[str, ...]]:
    """Return a row for each size of bodies and settings of the broker."""
    found = []
    for line in lines.get("proxy", []):
        sides = (f"proxy{_TARGET_COUNT}", f"direct{_TARGET_COUNT}")
        shares = [f"{share(line, *sides):.2f} ×" for share in (ratio, cpu_ratio)]
        where = f"read through a proxy, 4 connections, {line['case']}"
        found.append((where, _TARGET, *shares, load_of(line)))
    return found


def _works(line: Line, side: str) -> str:
    return " + ".join(
        f"{line['processes'][side][who]:.1f}" for who in ("driver", "broker", "proxy")
    )

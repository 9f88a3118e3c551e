"""What was measured of logs without queues, of object stores, and of who works in a write."""

from benchmarks.kept import Line, Lines, busy_seconds, cpu_ratio, load_of, median, ratio, table

GIB = 1 << 30
RATES = ("cold", "warm", "rebuild")
PLANS = ("cached", "queues")


def log_table(lines: Lines) -> str:
    """Return a row for each store: rates of walks, and how long its plans take."""
    rows = []
    for line in lines.get("log", []):
        rates = [f"{_rate(line, median(line, side)):.2f} ({_a_core(line, side)})" for side in RATES]
        plans = [f"{median(line, side):.3f} s" for side in PLANS]
        rows.append((line["case"], *rates, *plans, load_of(line)))
    return table(("", *RATES, *PLANS, "load"), rows)


def log_targets(lines: Lines) -> list[tuple[str, ...]]:
    """Return the targets of walks over a log, which are of one core."""
    rows = []
    for line in lines.get("log", []):
        for what, side, target in (
            ("queues of a log, warm", "warm", "≥ 1 GiB/s a core"),
            ("the log walk of a rebuild", "rebuild", "≥ 2 GiB/s a core"),
        ):
            rate = f"{_a_core(line, side)} GiB/s"
            rows.append((f"{what}, {line['case']}", target, rate, rate, load_of(line)))
    return rows


def objects_table(lines: Lines) -> str:
    """Return a row for each read of an object store, beside the same from a directory."""
    rows = []
    for line in lines.get("objects", []):
        share = line["fetched"] / line["log_bytes"]
        times = [f"{median(line, side):.3f} s" for side in ("directory", "objects")]
        gain = f"{ratio(line, 'objects', 'directory'):.2f}"
        gain += f" ({cpu_ratio(line, 'objects', 'directory'):.2f})"
        fetched = f"{line['fetched'] / 2**20:.1f} MiB ({share:.3f} of the log)"
        rows.append((line["case"], *times, gain, fetched, str(line["requests"]), load_of(line)))
    head = ("", "directory", "objects", "of directory", "fetched", "requests", "load")
    return table(head, rows)


def parts_table(lines: Lines) -> str:
    """Return a row for each side of a Spark write: CPU µs a row, by who worked."""
    names = ("jvm", "broker", "receive", "stage", "commit", "python")
    rows = []
    for line in lines.get("spark_write", []):
        for side, parts in line.get("parts", {}).items():
            cells = [f"{parts[name]:.2f}" if name in parts else "" for name in names]
            total = f"{sum(parts.values()):.2f}"
            rows.append((f"{line['case']}, {side}", *cells, total, load_of(line)))
    return table(("", *names, "all", "load"), rows)


def _rate(line: Line, seconds: float) -> float:
    return float(line["logBytes"] / GIB / seconds)


def _a_core(line: Line, side: str) -> str:
    return f"{_rate(line, max(busy_seconds(line, side), 1e-3)):.2f}"

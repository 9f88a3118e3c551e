"""The six numbers that a reader asks for first, from the lines that were kept."""

from benchmarks.kept import Line, Lines, median, ratio, table

KAFKA = "Spark's connector for Kafka and a Kafka broker"


def headline(lines: Lines) -> str:
    """Return them as a table in Markdown; a number that was not measured has no row."""
    rows = [*_clusters(lines), *_stores(lines), *_backlogs(lines), *_memory(lines)]
    return table(("what", "mqlog", "beside it"), rows)


def _clusters(lines: Lines) -> list[tuple[str, ...]]:
    rows = [
        ("Spark reads a cluster", _rates(line, "mqlog"), _beside(line, "mqlog"))
        for line in _with(lines, "live", "mqlog", "kafka")
    ]
    for line in _with(lines, "send", "mqlog", "once", "kafka"):
        what, sides = "Spark writes to a cluster, at least and exactly once", ("mqlog", "once")
        rows.append((what, _rates(line, *sides), _beside(line, *sides)))
    return rows


def _stores(lines: Lines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for line in _with(lines, "spark_read", "mqlog", "limit", "kafka"):
        if (line["bodyBytes"], line["queues"]) == (1024, 4):
            share = ratio(line, "mqlog", "limit")
            beside = f"{share:.2f} × a Python source that only repeats a batch"
            rows.append(("Spark reads the files of a broker", _rates(line, "mqlog"), beside))
    for line in _with(lines, "spark_write", "mqlog", "kafka"):
        beside = f"{_beside(line, 'mqlog')}, which does not sync"
        rows.append(("Spark writes a store, committed and synced", _rates(line, "mqlog"), beside))
    return rows


def _backlogs(lines: Lines) -> list[tuple[str, ...]]:
    return [
        (f"exact backlog of a store, {line['case']}", f"{median(line, 'exact'):.1f} s", "")
        for line in lines.get("plan", [])
        if line["bench"] == "groups"
    ]


def _memory(lines: Lines) -> list[tuple[str, ...]]:
    found = [line for line in lines.get("memory", []) if line["case"] == "read"]
    if not found:
        return []
    counts = " and of ".join(f"{line['messages']:,}" for line in found)
    most = max(line["MiB"] for line in found)
    return [(f"memory of a task that reads, of {counts} messages", f"{most:.0f} MiB", "")]


def _with(lines: Lines, name: str, *sides: str) -> list[Line]:
    return [line for line in lines.get(name, []) if set(sides) <= set(line.get("sides", ()))]


def _rates(line: Line, *sides: str) -> str:
    rates = " and ".join(f"{round(line['sides'][side]['rowsPerSecond'], -3):,}" for side in sides)
    return f"{rates} messages of {line['bodyBytes']} bytes a second"


def _beside(line: Line, *sides: str) -> str:
    shares = " and ".join(f"{ratio(line, side, 'kafka'):.1f}" for side in sides)
    return f"{shares} × {KAFKA}"

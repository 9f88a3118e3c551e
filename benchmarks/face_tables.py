"""Tables of what `import mqlog` costs, and of the engines over it."""

from benchmarks.kept import Line, Lines, cpu_ratio, load_of, ratio, table

_SIDES = {
    "to_reader": "core",
    "duckdb": "duckdb of parquet",
    "polars": "polars of parquet",
}


def face_table(lines: Lines) -> str:
    """Return a row for each reader and query, beside what it is compared with."""
    rows = []
    for line in lines.get("face", []):
        for side, other in _SIDES.items():
            if side in line["sides"] and "read" not in line:
                gain = f"{ratio(line, side, other):.2f} ({cpu_ratio(line, side, other):.2f})"
                rates = (_thousands(line, side), _thousands(line, other))
                rows.append((line["case"], side, other, *rates, gain, load_of(line)))
    head = ("case", "side", "beside", "k/s", "k/s beside", "ratio (by CPU time)", "load")
    return table(head, rows)


def column_table(lines: Lines) -> str:
    """Return a row for each column that is read alone: its CPU time a message."""
    rows = []
    for line in lines.get("face", []):
        if line["case"] == "columns":
            costs = {name: side["cpuMicroseconds"] for name, side in line["sides"].items()}
            rows += [(f"`{name}`", f"{cost:.2f} µs") for name, cost in costs.items()]
    return table(("column alone", "CPU time a message"), rows)


def filter_table(lines: Lines) -> str:
    """Return a row for each query of a few messages: what passes, what is read, milliseconds."""
    rows = []
    for line in lines.get("face", []):
        if "read" not in line:
            continue
        for engine in ("duckdb", "polars"):
            sides = [line["sides"][f"{engine}{other}"] for other in ("", " of all", " of parquet")]
            times = [f"{min(side['seconds']) * 1000:,.0f}" for side in sides]
            counts = [f"{n:,}" for n in (sides[0]["rows"], line["read"], line["messages"])]
            rows.append((line["case"], engine, *counts, *times, load_of(line)))
    head = (
        "case",
        "engine",
        "messages that pass",
        "read",
        "in the topic",
        "ms",
        "ms if all are read",
    )
    return table((*head, "ms of parquet", "load"), rows)


def _thousands(line: Line, side: str) -> str:
    return f"{line['sides'][side]['rowsPerSecond'] / 1000:,.0f}"


def face_targets(lines: Lines) -> list[tuple[str, ...]]:
    """Return a row for each reader: measure, target, reached, the same by CPU time, load."""
    return [
        (
            f"`import mqlog`, `{line['case']}`",
            "≥ 0.95 of the core",
            f"{ratio(line, 'to_reader', 'core'):.2f}",
            f"{cpu_ratio(line, 'to_reader', 'core'):.2f}",
            load_of(line),
        )
        for line in lines.get("face", [])
        if "to_reader" in line["sides"]
    ]

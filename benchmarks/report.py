"""Tables and a plot of what was measured, written into results/: python -m benchmarks.report.

The tables stand in results/README.md and results/TABLES.md between two marks; a test compares them
with the lines.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.face_tables import column_table, face_table, face_targets, filter_table
from benchmarks.fleet_tables import audit_table, fleet_table, fleet_targets
from benchmarks.headline import headline
from benchmarks.kept import Line, Lines, busy_seconds, cpu_ratio, load_of, median, ratio, table
from benchmarks.log_tables import log_table, log_targets, objects_table, parts_table
from benchmarks.proxy_tables import proxy_table, proxy_targets
from benchmarks.trial_table import trial_table

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"

FULL = "≥ 5 × the full read"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_QUEUES = re.compile(r", (\d+) queues?$")


def read(folder: Path = RESULTS) -> Lines:
    """Return the lines of each kept file, by the benchmark's name."""
    return {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.jsonl"))
    }


def summary(lines: Lines) -> str:
    """Return six numbers and the targets as Markdown, for README.md."""
    head = ("measure", "target", "reached", "by CPU time", "load")
    reached, missed = sorted_by_margin(targets(lines))
    return _sections(
        ("Six numbers", headline(lines)),
        ("Targets reached, by the widest margin first", table(head, reached)),
        ("Targets missed, by the widest margin first", table(head, missed)),
    )


def details(lines: Lines) -> str:
    """Return the tables of all measurements as Markdown, for TABLES.md."""
    return _sections(
        ("Core, one core: thousands of messages a second", _decode(lines)),
        ("Core write, one core: thousands of messages a second", _write(lines)),
        ("Spark read, two cores: thousands of messages a second", _spark_read(lines)),
        ("Spark write", _spark_write(lines)),
        ("Spark write: CPU µs a row, by who worked", parts_table(lines)),
        ("Backlog, plan, commit", _others(lines)),
        ("Logs without queues: GiB/s, and seconds of a plan", log_table(lines)),
        ("Object stores", objects_table(lines)),
        ("Python without Spark: thousands of messages a second", face_table(lines)),
        ("Python without Spark: a filter of a few messages", filter_table(lines)),
        ("Python without Spark: the price of a column", column_table(lines)),
        ("Memory beyond imports, MiB", _memory(lines)),
        ("Streams", _stream(lines)),
        ("Clusters: thousands of messages a second", _live(lines)),
        ("Clusters, sent: thousands of messages a second", _send(lines)),
        ("Clusters through a proxy: thousands of messages a second", proxy_table(lines)),
        ("Clusters: requests", _asked(lines)),
        ("Many brokers and many stores: looks at the backlog by offsets", fleet_table(lines)),
        ("Audits", audit_table(lines)),
        ("Settings: base = 1", _settings(lines)),
        ("Kernels on trial: CPU time of a step without one, all = 1", trial_table(lines)),
    )


PAGES = {"README.md": summary, "TABLES.md": details}


def _sections(*parts: tuple[str, str]) -> str:
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in parts if text)


def targets(lines: Lines) -> list[tuple[str, ...]]:
    """Return a row for each target: measure, target, reached, the same by CPU time, load."""
    rows: list[tuple[str, ...]] = []
    decode = _find(lines, "decode", bodyBytes=1024)
    for line in decode:
        where = _queues(line)
        rows += _share("core decode, `full`, " + where, "≥ 1.2 × Java's loop", line, "full", "java")
        rate = line["sides"]["no body"]["rowsPerSecond"] / 1e6
        busy = 1 / max(line["sides"]["no body"]["cpuMicroseconds"], 1e-3)
        what, target = f"core decode without body and properties, {where}", "≥ 2 M/s"
        rows.append((what, target, f"{rate:.2f} M/s", f"{busy:.2f} M/s", load_of(line)))
        for side, what in (("tag", "tag of 1 %"), ("no body", "no body")):
            rows += _share(f"core, {what}, {where}", FULL, line, side, "standard")
        rows += _share(f"core, no body beside `full`, {where}", FULL, line, "no body", "full")
    for line in _find(lines, "spark_read", bodyBytes=1024):
        where, case = _queues(line), line["case"]
        if case == "standard":
            rows += _share(
                f"Spark read, {where}", "≥ 0.8 of the no-op limit", line, "mqlog", "limit"
            )
        if case == "kafka":
            what = f"Spark read, Kafka's columns, {where}"
            rows += _share(what, "≥ 6 × Kafka's connector", line, "mqlog", "kafka")
        if case == "tag":
            rows += _share(f"Spark read, tag of 1 %, {where}", FULL, line, "mqlog", "all")
            rows += _share(f"Spark read, no body, {where}", FULL, line, "no body", "all")
    return (
        rows
        + _write_targets(lines)
        + _other_targets(lines)
        + _live_targets(lines)
        + _send_targets(lines)
        + proxy_targets(lines)
        + fleet_targets(lines)
        + log_targets(lines)
        + face_targets(lines)
    )


def sorted_by_margin(
    rows: list[tuple[str, ...]],
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the rows of targets that were reached, then the others, widest margins first.

    Rows of one measure that differ in the number of queues become one row, with the values side by
    side; it is missed if one of them is.
    """
    measures: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in rows:
        measures.setdefault((_QUEUES.sub("", row[0]), row[1]), []).append(row)
    ordered = []
    for (measure, target), members in measures.items():
        counts = [found[1] for row in members if (found := _QUEUES.search(row[0]))]
        where = f", {' and '.join(counts)} queues" if len(counts) > 1 else ""
        name = measure + where if where else members[0][0]
        columns = [" and ".join(dict.fromkeys(row[n] for row in members)) for n in (2, 3, 4)]
        ordered.append((min(map(margin, members)), (name, target, *columns)))
    ordered.sort(key=lambda one: -one[0])
    reached = [row for ratio_, row in ordered if ratio_ >= 1]
    return reached, [row for ratio_, row in ordered[::-1] if ratio_ < 1]


def margin(row: tuple[str, ...]) -> float:
    """Return how many times the target was reached; below 1 it was missed."""
    target, reached = (float(_NUMBER.search(text)[0]) for text in row[1:3])  # type: ignore[index]
    return reached / target if row[1].startswith("≥") else target / max(reached, 1e-9)


def _write_targets(lines: Lines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for line in _find(lines, "encode", bodyBytes=1024):
        rows += _share("core encode", "≥ 12 × putMessages", line, "encode", "java")
        disk = _share("the driver's commit", "≥ 0.8 of the disk's writing", line, "commit", "disk")
        rows += [(*row[:3], "", row[4]) for row in disk]  # The disk is not the CPU's work.
    for line in lines.get("spark_write", []):
        what = f"Spark write of {line['case']}, committed and synced"
        rows += _share(what, "≥ 3 × Kafka's connector", line, "mqlog", "kafka")
    return rows


def _other_targets(lines: Lines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for line in lines.get("backlog", []):
        side = line["sides"]["hash"]
        rate, busy = side["rowsPerSecond"] / 1e6, 1 / max(side["cpuMicroseconds"], 1e-3)
        found = (f"{rate:.0f} M/s", f"{busy:.0f} M/s")
        rows.append(("backlog by hash, one core", "≥ 20 M units/s", *found, load_of(line)))
    for line in lines.get("plan", []):
        if line["bench"] == "plan":
            more = median(line, "mqlog") - median(line, "limit")
            reached = f"{more:.2f} s, {line['tasks']} partitions"
            busy = f"{busy_seconds(line, 'mqlog') - busy_seconds(line, 'limit'):.2f} s"
            what, target = f"plan of {line['case']}", "< 2 s beyond Spark's"
            rows.append((what, target, reached, busy, load_of(line)))
        if line["bench"] == "groups":
            reached, busy = f"{median(line, 'exact'):.1f} s", f"{busy_seconds(line, 'exact'):.1f} s"
            rows.append((f"backlog of {line['case']}", "< 60 s", reached, busy, load_of(line)))
    for case, target in (("read", "< 300 MiB"), ("stage", "< 300 MiB"), ("commit", "< 200 MiB")):
        found_lines = [line for line in lines.get("memory", []) if line["case"] == case]
        if found_lines:
            reached = f"{max(line['MiB'] for line in found_lines):.0f} MiB"
            rows.append((f"memory: {case}", target, reached, "", load_of(found_lines[-1])))
    return rows


def _live_targets(lines: Lines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for line in lines.get("live", []):
        what = f"cluster: {line['case']}"
        if "sides" in line:
            rows += _share(what, "≥ 1 × Java's pull consumer", line, "mqlog", "java")
            rows += _share(what, "≥ 1 × Kafka's connector", line, "mqlog", "kafka")
        elif line["case"] == "look, 1 topic":
            rows.append((what, "≤ 5 ms", f"{line['ms']:.2f} ms", "", load_of(line)))
        elif line["case"].startswith("backlog"):
            rows.append((what, "≤ 1 s", f"{line['ms'] / 1e3:.2f} s", "", load_of(line)))
    return rows


def _send_targets(lines: Lines) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for line in lines.get("send", []):
        what = f"cluster, sent: {line['case']}"
        if "sides" in line:
            rows += _share(what, "≥ 1.5 × Java's send(List)", line, "mqlog", "java")
            rows += _share(what, "≥ 1 × Kafka's connector", line, "mqlog", "kafka")
            once = f"{what}, exactly once"
            rows += _share(once, "≥ 0.5 × Kafka's connector", line, "once", "kafka")
        elif line["case"].startswith("published"):
            reached, busy = f"{line['ms']:.1f} ms", f"{line['cpuMs']:.1f} ms"
            rows.append((what, "≤ 30 ms", reached, busy, load_of(line)))
    return rows


def _share(what: str, target: str, line: Line, side: str, other: str) -> list[tuple[str, ...]]:
    if not {side, other} <= set(line["sides"]):
        return []
    by_time, by_work = ratio(line, side, other), cpu_ratio(line, side, other)
    return [(what, target, f"{by_time:.2f} ×", f"{by_work:.2f} ×", load_of(line))]


def _queues(line: Line) -> str:
    return f"{line['queues']} queue{'s' * (line['queues'] > 1)}"


def _decode(lines: Lines) -> str:
    names = ["minimal", "standard", "mmap", "full", "kafka", "no body", "tag", "sql"]
    names += ["java", "python", "copy"]
    return _rates(lines.get("decode", []), names, lambda line: line["case"])


def _write(lines: Lines) -> str:
    names = ["encode", "stage", "commit", "commit mmap", "java", "disk", "floor"]
    return _rates(lines.get("encode", []), names, lambda line: line["case"])


def _spark_read(lines: Lines) -> str:
    def told(line: Line) -> str:
        return f"{line['bodyBytes']} B, {_queues(line)}, {line['case']}"

    names = ["mqlog", "limit", "kafka", "no body", "all", "queueOffset"]
    return _rates(lines.get("spark_read", []), names, told, of=("limit", "kafka"))


def _spark_write(lines: Lines) -> str:
    names = ["mqlog", "limit", "mqlog 500", "limit 500", "kafka", "disk"]
    return _rates(lines.get("spark_write", []), names, lambda line: line["case"], of=("kafka",))


def _others(lines: Lines) -> str:
    rows = []
    for line in [*lines.get("backlog", []), *lines.get("plan", [])]:
        for name, side in line["sides"].items():
            seconds = f"{median(line, name):.3f}"
            rate = f"{side['rowsPerSecond']:,}"
            rows.append((line["bench"], line["case"], name, seconds, rate, load_of(line)))
    return table(("what", "of", "side", "seconds", "rows/s", "load"), rows)


def _memory(lines: Lines) -> str:
    found = lines.get("memory", [])
    rows = [(line["case"], f"{line['messages']:,}", f"{line['MiB']:.0f}") for line in found]
    return table(("work", "messages", "MiB"), rows)


def _stream(lines: Lines) -> str:
    rows = []
    for line in lines.get("stream", []):
        unit = "us" if "us" in line else "ms"
        value = f"{line[unit]:g} {unit.replace('us', 'µs')}"
        rows.append((f"{line['case']}, {line['queues']} queues", value, load_of(line)))
    for line in lines.get("sink", []):
        if "ms" in line:
            value = ", ".join(f"{name} {ms:g} ms" for name, ms in line["ms"].items())
            rows.append((f"write, {line['case']}", value, load_of(line)))
        else:
            value = (
                f"{line['commitMs']:g} ms, 95 % in {line['commitP95Ms']:g} ms, "
                f"{line['commitCpuMs']:g} ms of CPU"
            )
            what = f"write, commit of {line['rows']:,} rows, {line['files']} files"
            rows.append((what, value, load_of(line)))
    return table(("what", "median", "load"), rows)


def _live(lines: Lines) -> str:
    found = [line for line in lines.get("live", []) if "sides" in line]
    names = ["mqlog", "raw", "java", "store", "kafka"]
    return _rates(found, names, lambda line: line["case"], of=("java", "kafka"))


def _send(lines: Lines) -> str:
    found = [line for line in lines.get("send", []) if "sides" in line]
    names = ["mqlog", "raw", "once", "java", "kafka"]
    return _rates(found, names, lambda line: line["case"], of=("java", "kafka"))


def _asked(lines: Lines) -> str:
    rows = []
    for line in [*lines.get("live", []), *lines.get("send", [])]:
        if "ms" in line:
            rows.append((line["case"], f"{line['ms']:g} ms", load_of(line)))
        elif "MiB" in line:
            what = f"memory of {line['messages']:,} messages"
            rows.append((what, f"{line['MiB']:g} MiB", load_of(line)))
    return table(("what", "median", "load"), rows)


def _settings(lines: Lines) -> str:
    rows = []
    for line in lines.get("settings", []):
        base = next(iter(line["sides"]))
        rows += [
            (
                line["case"],
                name,
                f"{ratio(line, name, base):.2f}",
                f"{cpu_ratio(line, name, base):.2f}",
                load_of(line),
            )
            for name in line["sides"]
        ]
    return table(("among", "setting", "rows a second", "by CPU time", "load"), rows)


def _rates(found: list[Line], names: list[str], told: Any, of: tuple[str, ...] = ()) -> str:
    present = [name for name in names if any(name in line["sides"] for line in found)]
    rows = []
    for line in found:
        sides = line["sides"]
        rates = [_rate(sides[name]) if name in sides else "" for name in present]
        shares = [
            f"{ratio(line, 'mqlog', peer):.2f} ({cpu_ratio(line, 'mqlog', peer):.2f})"
            if peer in sides
            else ""
            for peer in of
        ]
        rows.append((told(line), *rates, *shares, load_of(line)))
    return table(("", *present, *(f"of {peer}" for peer in of), "load"), rows)


def _rate(side: Line) -> str:
    """Return thousands of rows a second, and in brackets those of a second of CPU."""
    busy = 1000 / max(side["cpuMicroseconds"], 1e-3)
    return f"{side['rowsPerSecond'] / 1000:,.0f} ({busy:,.0f})"


def _find(lines: Lines, name: str, **wanted: Any) -> list[Line]:
    return [
        line
        for line in lines.get(name, [])
        if all(line.get(key) == value for key, value in wanted.items())
    ]


def write(folder: Path = RESULTS) -> None:
    """Put the tables into their pages, and draw growth.png."""
    lines = read(folder)
    for name, tables in PAGES.items():
        page = folder / name
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        text = f"{before}{BEGIN}\n\n{tables(lines)}\n\n{END}{after}"
        page.write_text(text, encoding="utf-8")
    if lines.get("growth"):
        draw(lines["growth"], folder / "growth.png")


def draw(lines: list[Line], path: Path) -> None:
    """Draw seconds against what grows, both in powers of ten, with a line of slope one."""
    import matplotlib as mpl  # noqa: PLC0415 - only who draws needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    panels = {"messages": ("messages", "writes"), "queues": ("queues",), "files": ("files",)}
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 4), layout="constrained")
    for axis, (title, cases) in zip(axes, panels.items(), strict=True):
        found = [line for line in lines if line["case"] in cases]
        for name in dict.fromkeys(name for line in found for name in line["sides"]):
            points = [(line["at"], median(line, name)) for line in found if name in line["sides"]]
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
        edges = [min(line["at"] for line in found), max(line["at"] for line in found)]
        top = max(median(line, name) for line in found for name in line["sides"])
        axis.plot(edges, [top * edges[0] / edges[1], top], "--", color="grey", label="linear")
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="seconds")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)

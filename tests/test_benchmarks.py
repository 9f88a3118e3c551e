"""Every benchmark runs, at a small size, so that none rots; what it prints is JSON lines."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import PATHS, SIZES
from benchmarks.headline import headline
from benchmarks.kept import ratio
from benchmarks.proxy_tables import proxy_table, proxy_targets
from benchmarks.rounds import Side, Timed, compare
from broker.toolchain import Toolchain
from support import soak

HERE = Path(report.__file__).parent
# A session takes longer than all else, Kafka longer than that, and a build of Java's loops takes
# half a minute: `make soak` runs them. Without Java, decode and encode also run in `make test`.
NEEDS_SPARK = {"live", "plan", "send", "settings", "sink", "spark_read", "spark_write", "stream"}
NEEDS_JAVA = {"decode", "encode", "live", "proxy", "send", "spark_read", "spark_write"}
SECONDS = 600
MOST_NUMBERS = 6


def marked(name: str) -> object:
    marks = [soak.not_in_check]
    if name in NEEDS_SPARK | NEEDS_JAVA:
        marks += [pytest.mark.soak, soak.only_whole]
    if name in NEEDS_SPARK:
        marks.append(pytest.mark.spark)
    return pytest.param(name, marks=marks)


def test_the_runner_and_the_report_need_nothing_but_the_checkout(tmp_path: Path) -> None:
    shutil.copytree(HERE.parent / "benchmarks" / "results", tmp_path / "results")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def told(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=HERE.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stderr

    assert "no benchmark is called nothing" in told("benchmarks", "nothing")
    assert told("benchmarks.report", str(tmp_path / "results")) == ""


@pytest.mark.parametrize("name", [marked(name) for name in SIZES])
def test_the_benchmark_runs_and_says_on_what(name: str) -> None:
    done = run(name, "100", os.environ | {"MQLOG_BENCH_ROUNDS": "1"})
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines or name in {"live", "proxy", "send"}  # They measure nothing without a broker.
    for line in lines:
        assert {"bench", "mqlog", "python", "numpy", "pyarrow", "machine", "load"} <= set(line)
    if name in NEEDS_JAVA and Toolchain.find() is None:
        assert "left out: needs Maven" in done.stderr
    else:
        assert "left out" not in done.stderr


@soak.not_in_check
@pytest.mark.parametrize("name", ["decode", "encode"])
def test_a_peer_that_is_not_to_be_had_is_left_out_with_a_reason(name: str, tmp_path: Path) -> None:
    done = run(name, "100", os.environ | {"MQLOG_BENCH_ROUNDS": "1", "PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "rocketmq is left out: needs Maven (mvn) and a JDK" in done.stderr
    assert all("java" not in json.loads(line)["sides"] for line in done.stdout.splitlines())


def run(name: str, size: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.bench_{name}", size],
        env=environment | {"PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def test_there_is_a_benchmark_for_each_name() -> None:
    assert set(SIZES) == {file.stem.removeprefix("bench_") for file in HERE.glob("bench_*.py")}


def test_a_ratio_is_taken_round_by_round() -> None:
    # In the second of three rounds everything takes ten times as long.
    pace = iter([9.0, 9.0, 1.0, 2.0, 10.0, 20.0, 1.0, 2.0])
    sides = [
        Side("a", lambda: Timed(10, next(pace)), 10),
        Side("b", lambda: Timed(10, next(pace)), 10),
    ]
    line = compare("test", "case", sides, rounds=3)
    assert line["sides"]["a"]["seconds"] == [1.0, 10.0, 1.0]
    assert ratio(line, "a", "b") == 2.0
    assert ratio(line, "b", "a") == 0.5


def test_rounds_that_warm_up_are_not_counted() -> None:
    pace = iter([9.0, 8.0, 7.0, 1.0, 2.0])
    side = Side("a", lambda: Timed(10, next(pace)), 10)
    line = compare("test", "case", [side], rounds=2, warm=3)
    assert line["sides"]["a"]["seconds"] == [1.0, 2.0]


def test_a_side_that_sees_other_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="few saw 9 rows of 10"):
        compare("test", "case", [Side("few", lambda: 9, 10)], rounds=1)


@pytest.mark.parametrize("page", report.PAGES)
def test_the_tables_are_those_of_the_lines(page: str) -> None:
    text = (report.RESULTS / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(report.BEGIN)
    written, _, _ = rest.partition(report.END)
    assert written.strip() == report.PAGES[page](report.read()).strip()


def test_the_first_table_has_six_numbers_or_fewer_and_none_that_was_not_measured() -> None:
    lines = report.read()
    rows = headline(lines).splitlines()[2:]

    assert len(rows) <= MOST_NUMBERS
    assert len(headline({**lines, "memory": []}).splitlines()[2:]) == len(rows) - 1
    assert headline({}) == ""


def test_targets_are_sorted_by_their_margin_and_one_miss_is_a_miss() -> None:
    rows = [
        ("read, 1 queue", "≥ 2 × Java", "3.00 ×", "", "2–2"),
        ("read, 4 queues", "≥ 2 × Java", "1.90 ×", "", "2–2"),
        ("plan", "< 2 s", "0.50 s, 5 partitions", "", "3–3"),
        ("memory", "< 300 MiB", "150 MiB", "", "3–3"),
        ("write", "≥ 3 × Kafka", "0.30 ×", "", "4–4"),
    ]
    reached, missed = report.sorted_by_margin(rows)

    assert [row[0] for row in reached] == ["plan", "memory"]
    assert [row[0] for row in missed] == ["write", "read, 1 and 4 queues"]
    assert missed[1][2] == "3.00 × and 1.90 ×"


def test_reads_through_a_proxy_stand_beside_direct_ones_with_who_worked() -> None:
    works = {"driver": 5.0, "broker": 4.0, "proxy": 0.0}
    sides = {
        f"{name}{count}": {
            "rows": 100,
            "rowsPerSecond": 50_000 * count,
            "cpuMicroseconds": busy,
            "seconds": [seconds],
        }
        for name, seconds, busy in (("direct", 1.0, 10.0), ("proxy", 2.5, 25.0))
        for count in (1, 4, 8)
    }
    line = {
        "case": "1024 B",
        "load": [3, 4],
        "sides": sides,
        "processes": dict.fromkeys(sides, works),
    }
    rows = proxy_table({"proxy": [line]}).splitlines()[2:]

    assert len(rows) == 3
    assert rows[1].split(" | ")[1:5] == ["200", "200", "0.40", "5.0 + 4.0 + 0.0"]
    assert proxy_targets({"proxy": [line]}) == [
        (
            "read through a proxy, 4 connections, 1024 B",
            "≥ 0.5 × the direct read",
            "0.40 ×",
            "0.40 ×",
            "3–4",
        )
    ]
    assert proxy_table({}) == ""

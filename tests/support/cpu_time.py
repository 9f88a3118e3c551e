"""A pytest plugin: ``--cpu-time`` prints the CPU seconds of each folder, file and worker.

A test's CPU time is that of its process and of every process below it (Spark's JVM, brokers,
commands), between the end of the test before and its own end, fixtures included. Wall time
depends on what else a machine does; CPU time hardly does. A process whose parent ended before it
is not counted, such as the JVM of a program that was killed.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_KEY = "cpu_seconds"
_LONGEST = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cpu time")
    group.addoption("--cpu-time", action="store_true", help="print CPU seconds by folder and file")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-time"):
        config.pluginmanager.register(CpuTime(), "mqlog-cpu-time")


class CpuTime:
    """Measures in the process that runs the tests, adds up in the one that prints."""

    def __init__(self) -> None:
        self._before = 0.0
        self._tests: dict[str, float] = defaultdict(float)
        self._workers: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._begun = time.monotonic()

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        self._before = cpu_seconds(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_seconds(os.getpid())
        report.user_properties = [*report.user_properties, (_KEY, max(now - self._before, 0.0))]
        self._before = now
        return report

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = dict(report.user_properties).get(_KEY)
        if isinstance(spent, float):
            self._tests[report.nodeid] += spent
            worker = self._workers[getattr(report, "worker_id", "this process")]
            worker[0] += spent
            worker[1] = time.monotonic() - self._begun

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        def table(title: str, seconds: dict[str, float]) -> None:
            terminalreporter.write_sep("=", title)
            for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
                if seconds[name] >= 0.05:
                    terminalreporter.write_line(f"{seconds[name]:9.1f} {name}")

        files, folders = defaultdict[str, float](float), defaultdict[str, float](float)
        for nodeid, spent in self._tests.items():
            path = PurePosixPath(nodeid.partition("::")[0])
            files[str(path)] += spent
            folders[str(path.parent)] += spent
        longest = sorted(self._tests, key=self._tests.__getitem__, reverse=True)[:_LONGEST]
        table("CPU seconds of the longest tests", {name: self._tests[name] for name in longest})
        table("CPU seconds by file", files)
        table("CPU seconds by folder", folders)
        terminalreporter.write_sep("=", "workers")
        for name, (spent, ended) in sorted(self._workers.items()):
            line = f"{name}: {spent:.1f} s of CPU, last test ended {ended:.1f} s after the begin"
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{sum(self._tests.values()):.1f} s of CPU in all")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of the children it waited for, and of all below it."""
    ticks, waiting = 0, [pid]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        with suppress(FileNotFoundError, ProcessLookupError):  # It ended.
            fields = (process / "stat").read_text().rpartition(") ")[2].split()
            ticks += sum(map(int, fields[11:15]))
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return ticks / _TICKS

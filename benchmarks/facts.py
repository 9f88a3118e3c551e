"""What a figure was measured with: a part of every benchmark's JSON line."""

import os
import platform
from pathlib import Path

import numpy as np
import pyarrow as pa

from mqstore import __version__
from support.processes import stats

_SERVERS = {
    b"kafka.Kafka": "broker",
    b"org.apache.rocketmq.broker.BrokerStartup": "broker",
    b"org.apache.rocketmq.proxy.ProxyStartup": "proxy",
}
"""What the servers among JVMs are, by the class that they run."""


def facts() -> dict[str, str | int]:
    """Versions and hardware."""
    return {
        "mqlog": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
    }


def load() -> float:
    """Return how many processes wanted to run during the last minute, ours too."""
    return round(os.getloadavg()[0], 1)


def cpu_seconds() -> float:
    """Return what this process and all below it, JVMs and their workers, have worked."""
    return sum(_used().values())


def cpu_by_kind() -> dict[str, float]:
    """Return the same by kind of process: ``driver`` (this one), ``jvm``, ``broker``, ``python``.

    And ``proxy``, where one runs. A process that ends meanwhile takes its seconds with it: compare
    where none does.
    """
    found = dict.fromkeys(("driver", "jvm", "broker", "python"), 0.0)
    for pid, seconds in _used().items():
        kind = _kind(pid)
        found[kind] = found.get(kind, 0.0) + seconds
    return found


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "python"
    for main, kind in _SERVERS.items():
        if main in command:
            return kind
    return "jvm" if command[0].endswith(b"java") else "python"


def _used() -> dict[int, float]:
    """Return the CPU seconds of this process and of each one below it, by process id."""
    every = stats()
    found = {os.getpid()}
    for _ in range(6):  # this process, the launcher, the JVM, the daemon, its workers
        found |= {pid for pid, fields in every.items() if int(fields[1]) in found}
    ticks = os.sysconf("SC_CLK_TCK")
    # utime, stime, and those of waited children
    return {pid: sum(map(int, every[pid][11:15])) / ticks for pid in found}


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()

"""What a figure was measured with: a part of every benchmark's JSON line."""

import platform
from pathlib import Path

import numpy as np
import pyarrow as pa

from mqstore import __version__


def facts() -> dict[str, str]:
    """Versions and hardware."""
    return {
        "mqlog": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "machine": platform.machine(),
        "cpu": _cpu(),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()

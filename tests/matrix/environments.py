"""An environment for each line of Spark: the newest of the line, from the package index, once."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from broker.toolchain import ToolchainError, made_once

HERE: Final = Path(__file__).parent
LINES: Final = ("4.0", "4.1", "4.2", "4.3")
PIP_SECONDS: Final = 1500


class IndexUnreachableError(Exception):
    """There is no package index; carries what pip said last."""


def python(line: str) -> Path:
    """Return the interpreter of the environment of a line, made now or in an earlier run.

    Raises IndexUnreachableError, or ToolchainError when pip fails otherwise.
    """
    wanted = HERE / f"requirements-{line}.txt"
    name = "spark-{}-python-{}.{}".format(line, *sys.version_info)
    fill = partial(_make, wanted)
    made = made_once(name, [wanted], fill, _has_python, "mqlog-spark")
    return made / "bin" / "python"


def _make(wanted: Path, folder: Path) -> None:
    """Fill an environment, in half the CPU time of pip's usual ways.

    Of all modules those that are imported are compiled, when they are; and the wheel that pip
    makes of Spark's source, to unpack it at once, is not compressed.
    """
    # Only bin/python is run: what pip writes beside it names the folder as it is called now.
    _run({}, sys.executable, "-m", "venv", "--without-pip", str(folder))
    pip = ("-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check")
    install = ("--retries", "1", "install", "--quiet", "--no-compile", "--requirement", str(wanted))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".cfg") as settings:
        settings.write("[bdist_wheel]\ncompression = stored\n")
        settings.flush()
        _run({"DIST_EXTRA_CONFIG": settings.name}, sys.executable, *pip, *install)


def _run(more: Mapping[str, str], *command: str) -> None:
    done = subprocess.run(
        command,
        env=os.environ | dict(more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PIP_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return
    if "connection broken" in done.stdout or "(from versions: none)" in done.stdout:
        raise IndexUnreachableError(done.stdout.strip().splitlines()[-1])
    raise ToolchainError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}")


def _has_python(made: Path) -> bool:
    return (made / "bin" / "python").exists()  # A link: its target may be gone.

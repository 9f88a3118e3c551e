"""Archives of the classes that a JVM loads (class data sharing): it starts with half the CPU time.

An archive is made once for a class path and a Java, from the classes that a small program loads.
A JVM that cannot use one starts without it, and says nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

from broker.toolchain import made_once
from mqlog_jobs import java

PROGRAM: Final = Path(__file__).with_name("spark_classes.py")
MAKE_SECONDS: Final = 600
ARCHIVE: Final = "classes.jsa"
QUIET: Final = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"


def let_spark_share() -> None:
    """Have each Spark that this process starts from now on, and its children, use an archive.

    It lies in the environment, beside the jars that it is made of. Without Java, and where an
    archive cannot be made, nothing changes.
    """
    try:
        java.prepare()
    except java.JavaNotFoundError:
        return
    room = str(Path(sys.prefix) / "share" / "mqlog-tests")
    name = f"spark-{pyspark.__version__}-classes"
    if not os.access(sys.prefix, os.W_OK):
        return
    archive = made_once(name, [PROGRAM, *_release()], _make, Path.is_dir, room) / ARCHIVE
    if archive.is_file():
        os.environ[_OPTIONS] = " ".join([os.environ[_OPTIONS], *using(archive)])


def using(archive: Path) -> list[str]:
    """Return the arguments of a JVM that uses an archive."""
    return [f"-XX:SharedArchiveFile={archive}", *QUIET]


def _release() -> list[Path]:
    """Return the file that says which Java it is, if there is one."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    release = found.resolve().parents[1] / "release"
    return [release] if release.is_file() else []


def _make(folder: Path) -> None:
    archive = folder / ARCHIVE
    options = " ".join([os.environ[_OPTIONS], f"-XX:ArchiveClassesAtExit={archive}", *QUIET])
    try:
        subprocess.run(
            [sys.executable, str(PROGRAM), str(folder / "data")],
            env=os.environ | {_OPTIONS: options, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=MAKE_SECONDS,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        archive.unlink(missing_ok=True)  # It may not be whole.
    shutil.rmtree(folder / "data", ignore_errors=True)

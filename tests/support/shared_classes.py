"""Archives of the classes that a JVM loads (class data sharing): it starts with half the CPU time.

An archive is made once for a class path and a Java, from the classes that programs loaded when
they did a little of what they do in tests. A JVM that cannot use one starts without it, and says
nothing.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyspark

from broker.jvm import JvmError
from broker.toolchain import made_once
from mqlog_jobs import java

PROGRAM: Final = Path(__file__).with_name("spark_classes.py")
MAKE_SECONDS: Final = 600
ARCHIVE: Final = "classes.jsa"
QUIET: Final = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_JARS: Final = "jars.txt"


@dataclass(frozen=True, slots=True)
class Programs:
    """Java programs of one class path, which share an archive."""

    name: str
    java: str
    """The path of the command."""
    classpath: str
    """Jars only."""
    tried_by: Path
    """The file of ``run``: when it changes, another archive is made."""
    run: Callable[[Sequence[str], Path], None]
    """Has the programs do what tests want of them, with these arguments more, in a folder."""


def let_spark_share() -> None:
    """Have each Spark that this process starts from now on, and its children, use an archive.

    It lies in the environment, beside the jars that it is made of. Without Java, and where an
    archive cannot be made, nothing changes.
    """
    try:
        java.prepare()
    except java.JavaNotFoundError:
        return
    name = f"spark-{pyspark.__version__}-classes"
    if not os.access(sys.prefix, os.W_OK):
        return
    home = os.environ.get("JAVA_HOME")
    command = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    inputs = [PROGRAM, *_release(command)]
    archive = made_once(name, inputs, _make, Path.is_dir, _room()) / ARCHIVE
    if archive.is_file():
        os.environ[_OPTIONS] = " ".join([os.environ[_OPTIONS], *using(archive)])


def shared_by(programs: Programs) -> list[str]:
    """Return the arguments with which the programs use an archive: none where there cannot be one.

    It is made again when a jar was.
    """
    if not os.access(sys.prefix, os.W_OK):
        return []
    jars = _jars(programs.classpath)
    archive = (
        made_once(
            f"{programs.name}-classes",
            [programs.tried_by, *_release(Path(programs.java))],
            partial(_make_of, programs),
            lambda made: (made / _JARS).read_text() == jars,
            _room(),
        )
        / ARCHIVE
    )
    return using(archive) if archive.is_file() else []


def using(archive: Path) -> list[str]:
    """Return the arguments of a JVM that uses an archive."""
    return [f"-XX:SharedArchiveFile={archive}", *QUIET]


def _room() -> str:
    """Return the folder of archives, as ``made_once`` wants it: in the environment."""
    return str(Path(sys.prefix) / "share" / "mqlog-tests")


def _release(command: Path) -> list[Path]:
    """Return the file that says which Java it is, if there is one."""
    release = command.resolve().parents[1] / "release"
    return [release] if release.is_file() else []


def _jars(classpath: str) -> str:
    """Return what a JVM compares before it uses an archive: names, sizes and times of the jars."""
    found = ((jar, Path(jar).stat()) for jar in classpath.split(os.pathsep))
    return "".join(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n" for jar, stat in found)


def _make_of(programs: Programs, folder: Path) -> None:
    archive, lists, work = folder / ARCHIVE, folder / "lists", folder / "work"
    lists.mkdir()
    work.mkdir()
    (folder / _JARS).write_text(_jars(programs.classpath))
    shared = [programs.java, f"-XX:SharedArchiveFile={archive}", "-cp", programs.classpath, *QUIET]
    try:
        programs.run([f"-XX:DumpLoadedClassList={lists}/%p", *QUIET], work)
        names = lists / "all"
        names.write_text(_merged([path.read_text() for path in sorted(lists.iterdir())]))
        _run([*shared, "-Xshare:dump", f"-XX:SharedClassListFile={names}"])
        _run([*shared, "-Xshare:on", "-version"])
    except (OSError, JvmError, subprocess.TimeoutExpired, subprocess.CalledProcessError):
        archive.unlink(missing_ok=True)  # It may not be whole.
    shutil.rmtree(lists)
    shutil.rmtree(work)


def _merged(lists: list[str]) -> str:
    """Return each line of the lists once, without numbers of classes, which each list has anew.

    A class with a source comes from no jar of the class path, and is left out.
    """
    lines = (
        line.partition(" id:")[0]
        for text in lists
        for line in text.splitlines()
        if " source:" not in line and not line.startswith("#")
    )
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=MAKE_SECONDS,
        check=True,
    )


def _make(folder: Path) -> None:
    archive = folder / ARCHIVE
    options = " ".join([os.environ[_OPTIONS], f"-XX:ArchiveClassesAtExit={archive}", *QUIET])
    try:
        _run(
            [sys.executable, str(PROGRAM), str(folder / "data")],
            os.environ | {_OPTIONS: options, "PYSPARK_PYTHON": sys.executable},
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        archive.unlink(missing_ok=True)  # It may not be whole.
    shutil.rmtree(folder / "data", ignore_errors=True)

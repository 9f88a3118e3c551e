"""Maven and a JDK, and what they make: RocketMQ's jars and our client program, compiled.

Jars stay in Maven's own repository. The class path and the classes stay in a folder of the
user's cache, named by the digest of what they were made from, so that the second run starts
neither Maven nor javac. Several processes may want the same folder at once: one makes it, under
another name, and renames it when it is whole; the others wait for its lock.
"""

import fcntl
import hashlib
import os
import pwd
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
VERSIONS: Final = ("4.9.7", "5.5.0")
SHARED: Final = HERE / "java" / "Json.java"
MAVEN_SECONDS: Final = 300
JAVAC_SECONDS: Final = 120
WAIT_SECONDS: Final = 20 * MAVEN_SECONDS
"""As long as other processes may need Maven before this one's turn."""
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half the CPU time of Maven and of javac, which run for seconds."""


class ToolchainError(Exception):
    """Maven or javac failed; carries what it printed."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The programs found on this machine, by path."""

    maven: str
    java: str
    javac: str
    room: Path = HERE
    """The folder with pom-VERSION.xml and java/: this one, or that of another program."""

    @classmethod
    def find(cls) -> "Toolchain | None":
        """Return the programs, or None when one is missing."""
        paths = [shutil.which(name) for name in ("mvn", "java", "javac")]
        maven, java, javac = paths
        if maven is None or java is None or javac is None:
            return None
        return cls(maven, java, javac)

    def classpath(self, version: str) -> str:
        """Return the class path of RocketMQ ``version`` with the program of the room behind.

        Raises ToolchainError when Maven cannot resolve the jars or javac refuses the source.
        """
        pom = self._pom(version)
        made = made_once("jars", [pom], partial(self._resolve, pom), _has_its_jars)
        listing = (made / "classpath.txt").read_text()
        sources = sorted({SHARED, *(self.room / "java").glob("*.java")})
        program = made_once("classes", [pom, *sources], partial(self._compile, sources, listing))
        return f"{listing}{os.pathsep}{program}"

    def _pom(self, version: str) -> Path:
        """Return the room's pom of a version, or that of brokers: its jars have all classes."""
        own = self.room / f"pom-{version}.xml"
        return own if own.exists() else HERE / own.name

    def resolved(self, pom: Path, work: Path) -> str:
        """Return the class path of a pom, whose jars Maven brings; ``work`` is a scratch folder.

        Raises ToolchainError when Maven cannot.
        """
        self._resolve(pom, work)
        return (work / "classpath.txt").read_text()

    def _resolve(self, pom: Path, work: Path) -> None:
        goal = ("dependency:build-classpath", f"-Dmdep.outputFile={work / 'classpath.txt'}")
        options = os.environ.get("MAVEN_OPTS") or " ".join(SHORT_LIVED)
        with locked(_maven_lock(), WAIT_SECONDS):  # Maven 3 fills its repository without a lock.
            command = [self.maven, "-q", "-B", "-f", str(pom), *goal]
            _run(command, MAVEN_SECONDS, {"MAVEN_OPTS": options})

    def _compile(self, sources: list[Path], listing: str, work: Path) -> None:
        options = [*(f"-J{flag}" for flag in SHORT_LIVED), "-nowarn"]
        options += ["-encoding", "UTF-8", "-d", str(work), "-cp", listing]
        _run([self.javac, *options, *map(str, sources)], JAVAC_SECONDS)


def made_once(
    name: str,
    inputs: Sequence[Path],
    make: Callable[[Path], None],
    is_good: Callable[[Path], bool] = Path.is_dir,
    room: str = "mqlog-broker",
) -> Path:
    """Return the folder that ``make`` filled from ``inputs``, now or in an earlier run.

    The folder has that name only when ``make`` has returned, and ``make`` runs in one process at
    a time. A folder that is no longer good is made again, under another name.
    """
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / room
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{name}-{digest}.lock", WAIT_SECONDS):
        found = [path for path in cache.glob(f"{name}-{digest}-*") if is_good(path)]
        if found:
            return found[0]
        unfinished = cache / f"unfinished-{name}-{digest}"
        shutil.rmtree(unfinished, ignore_errors=True)  # Of a process that was killed.
        unfinished.mkdir()
        make(unfinished)
        return unfinished.rename(cache / f"{name}-{digest}-{secrets.token_hex(4)}")


def _has_its_jars(made: Path) -> bool:
    """Whether Maven's repository still has all jars: it may have been emptied since."""
    listing = (made / "classpath.txt").read_text()
    return all(Path(jar).is_file() for jar in listing.split(os.pathsep))


def _maven_lock() -> Path:
    """A file beside Maven's repository, which lies in the account's home whatever HOME says."""
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        home = Path.home()
    return home / ".m2" / "mqlog-tests.lock"


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file; ToolchainError if another process keeps it that long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    end, pause = time.monotonic() + seconds, threading.Event()
    with path.open("a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ToolchainError(f"{path} is locked for {seconds:.0f} s") from None
                pause.wait(0.05)
        yield


def _run(command: list[str], seconds: int, more: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=os.environ | dict(more or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise ToolchainError(f"{command[0]} exited with {done.returncode}:\n{done.stdout}")

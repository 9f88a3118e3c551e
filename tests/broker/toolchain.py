"""Maven and a JDK, and what they make: RocketMQ's jars and our client program, compiled.

Jars stay in Maven's own cache. The class path and the classes stay in a folder named by the
digest of what they were made from, so that the second run starts neither Maven nor javac.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
VERSIONS: Final = ("4.9.7", "5.5.0")
SHARED: Final = HERE / "java" / "Json.java"
MAVEN_SECONDS: Final = 300
JAVAC_SECONDS: Final = 120


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
        """Return the class path of RocketMQ ``version`` with the program of the room in front.

        Raises ToolchainError when Maven cannot resolve the jars or javac refuses the source.
        """
        pom = self.room / f"pom-{version}.xml"
        jars = _made_once("jars", [pom], lambda work: self._resolve(pom, work))
        listing = (jars / "classpath.txt").read_text()
        if not all(Path(jar).is_file() for jar in listing.split(os.pathsep)):
            shutil.rmtree(jars)  # Maven's cache was emptied since.
            return self.classpath(version)
        sources = sorted({SHARED, *(self.room / "java").glob("*.java")})
        make = partial(self._compile, sources, listing)
        classes = _made_once("classes", [pom, *sources], make)
        return f"{classes}{os.pathsep}{listing}"

    def _resolve(self, pom: Path, work: Path) -> None:
        goal = ("dependency:build-classpath", f"-Dmdep.outputFile={work / 'classpath.txt'}")
        _run([self.maven, "-q", "-B", "-f", str(pom), *goal], MAVEN_SECONDS)

    def _compile(self, sources: list[Path], listing: str, work: Path) -> None:
        options = ["-nowarn", "-encoding", "UTF-8", "-d", str(work), "-cp", listing]
        _run([self.javac, *options, *map(str, sources)], JAVAC_SECONDS)


def _made_once(name: str, inputs: list[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder that ``make`` filled from ``inputs``, now or in an earlier run."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqlog-broker"
    made = cache / f"{name}-{digest}"
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            make(Path(work))
            shutil.copytree(work, made)
    return made


def _run(command: list[str], seconds: int) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise ToolchainError(f"{command[0]} exited with {done.returncode}:\n{done.stdout}")

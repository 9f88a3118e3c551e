"""Maven and a JDK, and what they make: RocketMQ's jars and our client program, compiled.

Jars stay in Maven's own cache. The class path and the classes stay in a folder named by the
digest of what they were made from, so that the second run starts neither Maven nor javac.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
VERSIONS: Final = ("4.9.7", "5.5.0")
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

    @classmethod
    def find(cls) -> "Toolchain | None":
        """Return the programs, or None when one is missing."""
        paths = [shutil.which(name) for name in ("mvn", "java", "javac")]
        maven, java, javac = paths
        if maven is None or java is None or javac is None:
            return None
        return cls(maven, java, javac)

    def classpath(self, version: str) -> str:
        """Return the class path of RocketMQ ``version`` with our client program in front.

        Raises ToolchainError when Maven cannot resolve the jars or javac refuses the source.
        """
        pom = HERE / f"pom-{version}.xml"
        sources = sorted((HERE / "java").glob("*.java"))
        digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in [pom, *sources]))
        made = _cache() / f"{version}-{digest.hexdigest()[:16]}"
        listing = made / "classpath.txt"
        if not listing.is_file() or not _all_exist(listing.read_text()):
            made.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=made.parent) as work:
                self._make(pom, sources, Path(work))
                shutil.rmtree(made, ignore_errors=True)
                shutil.copytree(work, made)
        return f"{made / 'classes'}{os.pathsep}{listing.read_text()}"

    def _make(self, pom: Path, sources: list[Path], work: Path) -> None:
        listing = work / "classpath.txt"
        goal = "dependency:build-classpath"
        maven = [self.maven, "-q", "-B", "-f", str(pom), goal, f"-Dmdep.outputFile={listing}"]
        _run(maven, MAVEN_SECONDS)
        classes = ["-nowarn", "-d", str(work / "classes"), "-cp", listing.read_text()]
        _run([self.javac, "-encoding", "UTF-8", *classes, *map(str, sources)], JAVAC_SECONDS)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqlog-broker"


def _all_exist(classpath: str) -> bool:
    return all(Path(jar).is_file() for jar in classpath.strip().split(os.pathsep))


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

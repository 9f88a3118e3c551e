"""A store whose broker keeps the CommitLog in several folders (storePathCommitLog)."""

from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.work.doctor import examine
from mqstore.diagnosis import ERROR, GOOD, Diagnosis
from support import goldens

Scattered = tuple[Path, tuple[str, ...]]


@pytest.fixture
def scattered(tmp_path: Path) -> Scattered:
    """The golden store, its CommitLog files in turn in two folders; root and options."""
    root = goldens.unpack("5.5.0", tmp_path)
    folders = (tmp_path / "disk-1", tmp_path / "disk-2")
    for folder in folders:
        folder.mkdir()
    for number, file in enumerate(sorted((root / "commitlog").iterdir())):
        file.rename(folders[number % 2] / file.name)
    (root / "commitlog").rmdir()
    return root, tuple(word for folder in folders for word in ("--commit-log", str(folder)))


def test_it_verifies_when_all_folders_are_named(run: Run, scattered: Scattered) -> None:
    root, options = scattered
    whole = run("verify", goldens.unpack("5.5.0", root.parent / "whole"), "--json")
    done = run("verify", root, *options, "--json")

    assert (done.code, done.err) == (0, "")
    assert len(done.rows) == len(whole.rows)
    assert "--commit-log" in run("verify", root).err


@pytest.mark.usefixtures("doctor_of_stores")
def test_doctor_finds_nothing_to_mend(scattered: Scattered) -> None:
    root, options = scattered

    def store(*folders: str) -> Diagnosis:
        return {told.subject: told for told in examine(root, commit_log=folders)}["Store"]

    assert store(*options[1::2]).severity == GOOD
    assert "1,365 messages" in store(*options[1::2]).found
    assert store().severity == ERROR


def test_recover_leaves_it_alone_and_says_who_recovers_it(
    run: Run,
    scattered: Scattered,
) -> None:
    root, options = scattered
    before = goldens.digest(root.parent)
    done = run("recover", root, *options)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"mqlog: [MQLOG_UNSUPPORTED_STORE.MULTI_PATH] {root}: ")
    assert "Its broker recovers it when it starts" in done.err
    assert goldens.digest(root.parent) == before


def test_recover_takes_the_folder_it_would_take_anyway(
    run: Run,
    tmp_path: Path,
) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    named = run("recover", root, "--commit-log", root / "commitlog", "--json")

    assert (named.code, named.err) == (0, "")

"""`mqlog recover`, what `doctor` says before it, and topics that a shell completes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.work.doctor import examine
from mqstore.check import check
from mqstore.diagnosis import GOOD, WARNING, Diagnosis
from support import goldens, killed_commit
from support.processes import held_by_another
from support.writing import SMALL, append, held, rows

MAINTENANCE = "from mqlog_jobs.command.maintenance import app; app(prog_name='mqlog')"

pytestmark = pytest.mark.usefixtures("doctor_of_stores")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "broker-a" / "store"
    append(root, rows(5), **SMALL)
    return root


def diagnoses(root: Path) -> dict[str, Diagnosis]:
    return {diagnosis.subject: diagnosis for diagnosis in examine(root)}


@pytest.mark.parametrize("state", ["decided", "published"])
def test_a_commit_that_was_killed_is_told_and_finished(
    run: Run,
    root: Path,
    state: str,
) -> None:
    killed_commit.leave(root, state)
    told = diagnoses(root)
    assert told["Commit"].severity == WARNING
    assert told["Commit"].found == f"killed version 7 is {state}, not finished"
    assert f"mqlog recover {root}" in told["Commit"].advice
    assert told["Store"].severity == GOOD
    assert "5 messages" in told["Store"].found

    done = run("recover", root)
    assert (done.code, done.err) == (0, "")
    assert f"commit killed version 7 was {state}, and is finished" in done.out
    assert len(held(root)) == 8
    assert check(root) == []
    assert "Commit" not in diagnoses(root)
    before = goldens.digest(root)
    assert "no commit was left to be finished" in run("recover", root).out
    assert goldens.digest(root) == before


def test_what_was_done_is_one_object_for_a_program(run: Run, root: Path) -> None:
    killed_commit.leave(root, "decided")
    (row,) = run("recover", root, "--json").rows
    assert (row["appId"], row["version"], row["state"]) == ("killed", 7, "decided")
    assert row["rebuilt"] is None
    (row,) = run("recover", root, "--json").rows
    assert (row["jobId"], row["state"], row["wasUnclean"]) == (None, None, False)


def test_queues_and_index_are_made_anew_from_the_log(run: Run, root: Path) -> None:
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    assert run("verify", root).code == 1
    done = run("recover", root, "--rebuild")
    assert (done.code, done.err) == (0, "")
    assert "5 records read: 5 units written" in done.out
    assert run("verify", root).code == 0


def test_a_store_of_a_broker_that_was_killed_needs_to_be_asked_for(
    run: Run,
    root: Path,
) -> None:
    (root / "abort").write_text("4711")
    assert diagnoses(root)["Store"].severity == WARNING
    done = run("recover", root)
    assert done.code == 2
    assert "[MQLOG_STORE_UNCLEAN]" in done.err
    assert "set --recover-unclean to enter its last messages" in done.err
    done = run("recover", root, "--recover-unclean")
    assert (done.code, done.err) == (0, "")
    assert "the broker's file abort stays" in done.out
    assert (root / "abort").read_text() == "4711"
    assert [finding for finding in check(root) if finding.severity == "error"] == []


def test_a_store_that_is_open_in_a_broker_is_left_alone_and_its_holder_told(
    run: Run,
    root: Path,
) -> None:
    with held_by_another(root / "lock") as user:
        assert str(user.pid) in diagnoses(root)["Lock"].found
        done = run("recover", root)
        assert done.code == 2
        assert done.err.startswith("mqlog: [MQLOG_STORE_LOCKED]")
        assert str(user.pid) in done.err
        assert "or set --lock-timeout (for example 30s)" in done.err
    assert "Lock" not in diagnoses(root)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--lock-timeout", "soon"), "option --lock-timeout='soon': must be a duration"),
        (("--assume", "done"), "option --assume='done': must be published or lost"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    run: Run,
    root: Path,
    arguments: tuple[str, str],
    told: str,
) -> None:
    done = run("recover", root, *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("cat", "STORE", "GO"), ["GOrder"]),
        (("queues", "STORE", "--topic", "GT"), ["GTopic", "GTx"]),
        (("cat", "/no/such/store", "G"), []),
    ],
)
def test_a_shell_completes_topics(
    golden_550: Path, words: tuple[str, ...], completed: list[str]
) -> None:
    line = ["mqlog", *(str(golden_550) if word == "STORE" else word for word in words)]
    done = subprocess.run(
        [sys.executable, "-c", MAINTENANCE],
        env={
            **os.environ,
            "_MQLOG_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        },
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == completed
    assert done.stderr == ""


def test_the_ledger_of_a_store_survives_a_recovery(run: Run, root: Path) -> None:
    killed_commit.leave(root, "decided")
    run("recover", root)
    (path,) = (root / ".mqlog" / "txn").glob("app-*.json")
    commits = json.loads(path.read_text())["body"]["commits"]
    assert [(c["appId"], c["version"], c["rows"]) for c in commits] == [("killed", 7, 3)]

"""The views of the command with --from-log: on stores without ConsumeQueues, as on whole ones."""

import shutil
from pathlib import Path

import pytest

from jobs.command import Run


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "view",
    [
        ("backlog", "-g", "CG_G", "--subscription", "GA || GB"),
        ("backlog", "-g", "CG_G", "--by-tag"),
        ("topics",),
        ("queues", "--topic", "GTopic"),
        ("cat", "GTopic", "-n", "0"),
        ("cat", "GTopic/0@-3", "--tag", "GA"),
        ("find", "--key", "key28"),
        ("tags", "--topic", "GTopic"),
    ],
    ids=" ".join,
)
def test_a_view_of_the_log_is_that_of_the_queues(
    run: Run, golden_550: Path, tmp_path: Path, view: tuple[str, ...]
) -> None:
    lost = tmp_path / "rocketmq-5.5.0" / "store"
    shutil.copytree(golden_550, lost, ignore=shutil.ignore_patterns("consumequeue", "index"))
    name, *more = view
    whole = run(name, golden_550, *more, "--json").rows
    found = run(name, lost, *more, "--from-log", "--json").rows
    changing = {"asOf", "lagMs"}

    def settled(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return [{k: v for k, v in row.items() if k not in changing} for row in rows]

    assert whole
    assert settled(found) == settled(whole)
    assert (tmp_path / "cache" / "mqlog").is_dir()


def test_an_address_takes_no_from_log(run: Run) -> None:
    done = run("queues", "rocketmq://127.0.0.1:1", "--from-log")
    assert done.code == 2
    assert "--from-log" in done.err
    assert "is for the directory of a store" in done.err


def test_a_store_that_lost_its_queues_names_the_flag(
    run: Run, golden_550: Path, tmp_path: Path
) -> None:
    lost = tmp_path / "store"
    shutil.copytree(golden_550, lost, ignore=shutil.ignore_patterns("consumequeue", "abort"))
    done = run("queues", lost)
    assert done.code == 2
    assert "--from-log" in done.err


def test_following_a_log_is_refused_by_the_flag(run: Run, golden_550: Path) -> None:
    done = run("cat", golden_550, "GTopic", "--follow", "--from-log")
    assert done.code == 2
    assert "--from-log" in done.err
    assert "a stream follows the ConsumeQueues" in done.err

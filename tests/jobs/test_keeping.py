"""The commands that keep messages: what they print, their exit codes, and errors in one line."""

from pathlib import Path

import pytest

from jobs.command import Run
from snapshot_copy.copied import SMALL, messages
from support.stores import lay_out


@pytest.fixture
def kept(run: Run, tmp_path: Path) -> Path:
    """A repository with two points of a store."""
    root = lay_out(tmp_path / "broker-a" / "store", messages(60), SMALL).root
    for _ in range(2):
        assert run("snapshot", root, tmp_path / "kept").code == 0
    return tmp_path / "kept"


def test_a_history_has_a_line_for_each_point(run: Run, kept: Path) -> None:
    rows = run("history", kept, "--json").rows
    assert [row["number"] for row in rows] == [1, 2]
    assert {row["brokerName"] for row in rows} == {"broker-a"}
    assert rows[1]["writtenBytes"] == rows[1]["linkedBytes"] == 0
    assert len(run("history", kept).out.splitlines()) == 4


def test_a_point_is_a_place_for_other_commands(run: Run, kept: Path, tmp_path: Path) -> None:
    store = tmp_path / "broker-a" / "store"
    for words in (("topics",), ("queues",), ("table", "index")):
        expected = run(*words, store, "--json").rows
        assert run(*words, f"{kept}@latest", "--json").rows == expected
    assert run("cat", f"{kept}@1", "A", "-n", "0", "--json").rows == (
        run("cat", store, "A", "-n", "0", "--json").rows
    )
    assert "whole, every rule holds" in run("verify", f"{kept}@-0s").out


def test_a_point_is_restored(run: Run, kept: Path, tmp_path: Path) -> None:
    done = run("restore", f"{kept}@latest", tmp_path / "restored", "--json")
    assert done.rows[0]["messageCount"] == 60
    assert run("verify", tmp_path / "restored").code == 0


def test_a_repository_is_checked_by_verify(run: Run, kept: Path) -> None:
    assert "whole, all bytes of 2 points are there" in run("verify", kept).out
    (kept / "objects" / "00000001" / "1").unlink()
    done = run("verify", kept, "--json")
    assert done.code == 1
    assert done.rows == [
        {
            "repository": str(kept),
            "file": "objects/00000001/1",
            "position": 0,
            "problem": "the object is missing",
            "points": [1, 2],
        }
    ]


def test_points_are_pruned(run: Run, kept: Path) -> None:
    words = ("prune", kept, "--keep", "1d:1d")
    assert [row["number"] for row in run(*words, "--dry-run", "--json").rows] == [1]
    assert "1 point removed, 1 point stay" in run(*words).out
    assert [row["number"] for row in run("history", kept, "--json").rows] == [2]


def test_the_guard_ends_after_so_many_points_and_tells_of_what_it_removed(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    store = tmp_path / "broker-a" / "store"
    words = ("snapshot", store, kept, "--every", "1ms", "--count", "2", "--json")
    done = run(*words, "--hold-max", "200GB")
    assert (done.code, done.err) == (0, "")
    assert [row["number"] for row in done.rows] == [3, 4]
    done = run(*words, "--hold-max", "1k")
    assert done.code == 1
    assert done.rows[0]["removed"] == [1, 2, 3, 4]
    assert "point 1 is removed: the repository held" in done.err


def test_an_audit_says_whether_two_places_are_the_same(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    store = tmp_path / "broker-a" / "store"
    same = run("audit", store, f"{kept}@latest")
    assert same.code == 0
    assert "the same 60 messages" in same.out
    assert run("audit", store, f"{kept}@latest", "--by", "id", "--json").rows == []
    other = lay_out(tmp_path / "other" / "store", messages(59), SMALL).root
    done = run("audit", store, other, "--json")
    assert done.code == 1
    (row,) = done.rows
    assert (row["difference"], row["firstTopic"], row["firstQueueId"]) == ("missing", "B", 2)
    assert "1 difference; 60 messages and 59 messages" in run("audit", store, other).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topics", "{kept}"), "is a repository: name a point, REPO@latest"),
        (("topics", "{kept}@soon"), "names no point: write REPO@latest"),
        (("topics", "{kept}@9"), "no point 9: it has points from 1 to 2, 2 in all"),
        (("topics", "{kept}@2026-01-01"), "has no time zone"),
        (("restore", "{kept}", "/nowhere/x"), "is a repository: name a point"),
        (("restore", "/nowhere", "/nowhere/x"), "names no point"),
        (("history", "/nowhere"), "no repository of points"),
        (("history", "{kept}@latest"), "names a point, not the repository: write "),
        (("snapshot", "{store}", "{kept}@2"), "names a point, not the repository: write "),
        (("prune", "{kept}", "--keep", "often"), "must be AGE:STEP"),
        (("snapshot", "{store}", "{kept}", "--hold-max", "1G"), "is for --every"),
        (("snapshot", "{store}", "{kept}", "--count", "2"), "is for --every"),
        (("audit", "{store}", "{store}", "--by", "luck"), "must be one of offset, id"),
        (("audit", "{store}", "delta:{store}"), "has no directory _delta_log"),
        (("audit", "{store}", "iceberg:a.b"), "is a name in a catalog, and a directory is wanted"),
        (("audit", "{store}", "iceberg:{store}"), "has no directory metadata"),
        (("audit", "{store}", "delta:"), "write delta:DIR"),
        (("audit", "{store}", "delta:s3://b/t"), "write delta:DIR, a directory of this"),
        (("audit", "{store}", "parquet:s3://b/t"), "write parquet:DIR, a directory of this"),
        (("audit", "{store}", "parquet:/nowhere"), "/nowhere': is no directory"),
        (("audit", "parquet:{store}", "{store}"), "has no file *.parquet"),
        (("audit", "{store}", "parquet:/x", "--unconsumed", "G"), "has no offsets of groups"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Run, kept: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    named = {"kept": str(kept), "store": str(tmp_path / "broker-a" / "store")}
    done = run(*(word.format(**named) for word in words))
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1

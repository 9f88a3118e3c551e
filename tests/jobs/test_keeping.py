"""The commands that keep messages: what they print, their exit codes, and errors in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.command import Run
from mqlog_jobs.work import keep_views
from mqstore.copy.errors import OtherStoreError
from mqstore.copy.hold_points import Guarded
from mqstore.errors import (
    NoSpaceError,
    StoreLockedError,
    StoreUnavailableError,
)
from snapshot_copy.copied import SMALL, messages, rows
from snapshot_copy.pointed import at, backing, restored, rows_of
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
    *table, last = run("history", kept).out.splitlines()
    assert len(table) == 4
    assert last == f"{kept}@all is all of them as one store: each message once"


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
            "length": 0,
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


def test_what_rotted_is_noted_and_taken_anew_by_the_next_point(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    store, place = tmp_path / "broker-a" / "store", backing(kept)
    whole = rows(store)
    pack = kept / "objects" / "00000001" / "pack"
    data = bytearray(pack.read_bytes())
    data[len(data) // 3] ^= 1
    pack.write_bytes(data)
    told = run("verify", kept)
    assert told.code == 1
    assert f"mqlog verify {kept} --mend notes what is damaged" in " ".join(told.out.split())
    assert "Points 1, 2 cannot be restored whole" in told.out
    assert run("snapshot", store, kept).code == 0  # It has the same bytes, still without a word.
    assert run("verify", kept, "--json").rows[0]["points"] == [1, 2, 3]
    told = run("verify", kept, "--mend")
    assert told.code == 1
    assert "1 part noted as damaged: the next mqlog snapshot takes anew" in told.out
    assert run("snapshot", store, kept).code == 0
    assert run("verify", kept, "--json").rows[0]["points"] == [1, 2, 3]
    assert rows(restored(kept, 4, tmp_path / "restored")) == whole
    assert run("prune", kept, "--point", "1", "--point", "2", "--point", "3").code == 0
    assert run("verify", kept, "--mend").code == 0
    assert not (kept / "damaged").exists()
    assert rows_of(at(place, 4)) == whole
    assert "is for repositories" in run("verify", store, "--mend").err


def test_a_round_of_the_guard_that_fails_is_a_line_and_another_try(
    run: Run, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "broker-a" / "store"
    real, errors = keep_views.guard_once, iter(
        [None, OSError(5, "Input/output error", "/x"), StoreUnavailableError("s3://b", "away"),
         NoSpaceError("full"), StoreLockedError("held"), None]
    )  # fmt: skip

    def fails(*given: Any, **named: Any) -> Guarded:
        if (error := next(errors)) is not None:
            raise error
        return real(*given, **named)

    monkeypatch.setattr(keep_views, "guard_once", fails)
    words = ("snapshot", store, kept, "--every", "1ms", "--count", "6", "--json")
    done = run(*words)
    assert done.code == 1
    assert [row["number"] for row in done.rows] == [3, 4]
    lines = done.err.splitlines()
    assert len(lines) == 4
    assert all("no point this time, the next round tries again: " in line for line in lines)
    errors = iter([None, OtherStoreError("/s", "/r", 1, "/t", "b", "x")])
    done = run(*words)
    assert done.code == 2
    assert "MQLOG_OTHER_STORE" in done.err
    errors = iter([StoreUnavailableError("s3://b", "away")])
    assert run(*words).code == 2


def test_another_store_is_refused_and_the_history_shows_the_source(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    later = [replace(m, store_timestamp_ms=m.store_timestamp_ms + 7) for m in messages(60)]
    other = lay_out(tmp_path / "broker-b" / "store", later, SMALL).root
    done = run("snapshot", other, kept)
    assert done.code == 2
    assert "--accept-other-store" in done.err
    assert run("snapshot", other, kept, "--accept-other-store").code == 0
    rows = run("history", kept, "--json").rows
    assert [row["source"] for row in rows] == [str(tmp_path / "broker-a" / "store")] * 2 + [
        str(other)
    ]


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
        (
            ("topics", "{kept}@1000000000000"),
            "no point 1000000000000: its first point",
        ),
        (("snapshot", "{store}", "/proc/x"), "no directory can be made in /proc"),
        (("restore", "{kept}@1", "{store}/x"), "lies in {store}, which is a store"),
        (("restore", "{kept}@1", "{store}/config/x"), "lies in {store}, which is a store"),
        (("copy", "{store}", "{kept}/x"), "lies in {kept}, which is a store or a repository"),
        (("prune", "{kept}"), "give either --keep or --point"),
        (("prune", "{kept}", "--point", "9"), "no point 9: it has points from 1 to 2"),
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
    assert told.format(**named) in done.err
    assert len(done.err.splitlines()) == 1

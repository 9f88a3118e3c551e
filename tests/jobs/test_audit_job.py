"""The job ``audit``: tasks find what the command finds, of brokers and of tables."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mqlog
from audit.test_audit import LAYOUT
from audit.test_audit_tables import SENT, changed
from jobs.command import Run
from jobs.test_audit_of_replays import Replayed, altered, commit, other_producer
from mqlog_jobs.spark import audit
from mqstore.tables import audits
from support.oracle import Message
from support.stores import lay_out

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("audited")
    system = Message(topic="SCHEDULE_TOPIC_XXXX")
    first = lay_out(folder / "a" / "store", SENT, LAYOUT).root
    return first, lay_out(folder / "b" / "store", [*changed(), system], LAYOUT).root


@pytest.mark.parametrize(
    ("by", "system"), [("offset", ()), ("id", ("--system",))], ids=["by offset", "by id, of all"]
)
def test_tasks_find_what_the_command_finds(
    run: Run,
    roots: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    system: tuple[str, ...],
) -> None:
    monkeypatch.setattr(audits, "MESSAGES_OF_A_TASK", 25)  # Many tasks, and queues that are cut.
    expected = run("audit", *roots, "--by", by, "--json", *system).rows
    words = ["--from", str(roots[0]), "--against", str(roots[1]), "--by", by, *system]
    assert audit.main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert sorted(map(str, rows)) == sorted(map(str, expected))
    assert f"{len(expected)} differences; 60 messages and" in err


def test_two_places_that_are_the_same_are_told_so(
    roots: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--from", str(roots[0]), "--against", str(roots[0])]
    assert audit.main(words) == 0
    assert ": the same 60 messages, " in capsys.readouterr().out
    words[-1] = str(roots[1])
    assert audit.main([*words, "--ignore", "KEYS", "--topic", "A"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("extra  not in the first  a A/1@10\n")
    assert ": 1 difference; 30 messages and 31 messages\n" in out


def test_a_table_of_parquet_is_compared_with_a_store(
    run: Run,
    roots: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = tmp_path / "lake"
    where.mkdir()
    rows = mqlog.open(roots[0]).scan(columns="full").to_table()
    place = f"parquet:{where}"
    words = ["--from", str(roots[0]), "--against", place, "--json"]
    pq.write_table(rows.slice(0, 2), where / "b.parquet")
    pq.write_table(rows.slice(1), where / "c.parquet")
    assert audit.main(words) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = run("audit", roots[0], place, "--json").rows
    assert [row["difference"] for row in expected] == ["doubled"]
    assert found == expected
    pq.write_table(rows.drop_columns("flag"), where / "d.parquet")
    assert audit.main(words) == 2
    assert "column flag" in capsys.readouterr().err


def test_tasks_find_by_an_offset_map_what_the_command_finds(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audits, "MESSAGES_OF_A_TASK", 7)
    replayed = Replayed(tmp_path)
    altered(replayed)
    other_producer(replayed)
    first, second, place = replayed.write()
    commit(first, "OLD", {0: 2, 1: 2, 2: 2})
    commit(second, "NEW", {0: 3, 1: 3})
    words = ["--offset-map", place, "--json"]
    places = ["--from", str(first), "--against", str(second)]
    for more in ([], ["--only-mapped"], ["--unconsumed", "CG"]):
        assert audit.main([*places, *words, *more]) == 1
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        expected = run("audit", first, second, *words, *more).rows
        assert sorted(map(str, rows)) == sorted(map(str, expected))
        assert len(rows) == 2 - (more == ["--only-mapped"])
    assert audit.main([*places, "--only-mapped"]) == 2
    assert "option --only-mapped='true': needs an offset map" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("parquet:{table}", "--unconsumed", "CG"), "option --unconsumed='CG': .*has no offsets"),
        (("parquet:{table}", "--offset-map", "csv:/x"), "is for two places of brokers, and"),
        (("parquet:{delta}",), "is a table of Delta: write delta:"),
        (("parquet:{nowhere}",), r"\[PATH_NOT_FOUND\]"),
        (("{store}", "--option", "tags=a"), "is for table="),
        (("{store}", "--topic", "NONE"), "NONE"),
        (("delta:{delta}",), "its package is missing|was tried on"),
    ],
)
def test_what_cannot_be_audited_is_an_error_in_one_line(
    roots: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    known = {"delta": tmp_path / "delta", "nowhere": tmp_path / "no", "store": roots[0]}
    known["table"] = tmp_path / "table"
    against = [word.format(**known) for word in words]
    assert audit.main(["--from", str(roots[0]), "--against", *against]) == 2
    err = capsys.readouterr().err
    assert re.search(said, err), err
    assert err.count("\n") == 1

"""What cannot be written is said before any work: no store is opened, no Spark started."""

import os
from collections.abc import Callable
from errno import ENOENT, ENOSPC, ENOTDIR
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.command import Run
from mqlog_jobs.output import whole_file
from mqlog_jobs.output.whole_file import check_directory, check_file, replace_file
from mqlog_jobs.places import Named
from mqlog_jobs.spark import backlog, check, replay
from mqlog_jobs.work import demo
from mqstore.audit.offset_maps import MapPlace

NOT_THERE = os.strerror(ENOENT)
NO_FOLDER = os.strerror(ENOTDIR)


class Opened(BaseException):
    """Work has begun."""


def begun(*_: object, **__: object) -> None:
    raise Opened


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened, and no session started."""
    monkeypatch.setattr(Named, "opened", begun)
    for job in (backlog, check, replay):
        monkeypatch.setattr(job, "job_session", begun)
    monkeypatch.setattr(demo, "job_session", begun)
    monkeypatch.setattr("mqlog_jobs.replays.replay_work.replayed", begun)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("report", "STORE", "-o", "FREE/no/x.html"), f"FREE/no/x.html: {NOT_THERE}"),
        (("report", "STORE", "-o", "FILE/x.html"), f"FILE/x.html: {NO_FOLDER}"),
        (("demo", "FILE/shop"), f"FILE: {NO_FOLDER}"),
        (("backlog", "STORE", "--prometheus", "FREE/no/x"), f"FREE/no/x: {NOT_THERE}"),
        (("forecast", "STORE", "--prometheus", "FREE/no/x"), f"FREE/no/x: {NOT_THERE}"),
        (("record", "STORE", "FREE/s", "--prometheus", "FREE/no/x"), f"FREE/no/x: {NOT_THERE}"),
        (("sql", "STORE", "FROM T", "--parquet", "FREE/no/x"), f"FREE/no/x: {NOT_THERE}"),
        (("demo", "FREE/shop", "--picture", "FREE/no/x.svg"), f"FREE/no/x.svg: {NOT_THERE}"),
        (
            ("replay", "STORE", "rocketmq://127.0.0.1:1", "--offset-map", "csv:FILE/map"),
            f"FILE: {NO_FOLDER}",
        ),
    ],
)
def test_a_command_looks_at_its_output_first(
    run: Run, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "free").mkdir()

    def named(text: str) -> str:
        text = text.replace("STORE", str(tmp_path / "store"))
        return text.replace("FREE", str(tmp_path / "free")).replace("FILE", str(tmp_path / "file"))

    assert run(*map(named, words)) == (2, "", f"mqlog: {named(told)}\n")
    assert list((tmp_path / "free").iterdir()) == []


@pytest.mark.spark
@pytest.mark.parametrize("job", [backlog.main, check.main])
def test_a_job_looks_at_the_folder_of_its_rows_first(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: Callable[[list[str]], int],
) -> None:
    """The store is not there either, which is not said."""
    (tmp_path / "file").touch()
    place = f"{tmp_path}/file/x"

    assert job(["--from", f"{tmp_path}/nowhere", "--to", f"csv:{place}"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"mqlog: [MQLOG_INVALID_OPTION] option --to='{place}': cannot be")
    assert told.count("\n") == 1
    assert job(["--from", f"{tmp_path}/nowhere", "--to", f"csv:{tmp_path}/out"]) == 2
    assert "MQLOG_STORE_NOT_FOUND" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    with pytest.raises(Exception, match="--offset-map"):
        replay.SparkOffsets(spark, MapPlace("csv", place))


def test_what_is_looked_at_stays_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    check_file(kept)
    check_file(tmp_path / "new")
    check_directory(tmp_path)
    check_directory(tmp_path / "a" / "b")

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "old"


def test_a_full_disk_is_that_of_the_file(
    run: Run, golden_550: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.html").touch()
    monkeypatch.setattr(whole_file.os, "fchmod", full)

    assert run("report", golden_550, "-o", "x.html", "--no-verify") == (
        *(2, ""),
        f"mqlog: {tmp_path}/x.html: {os.strerror(ENOSPC)}\n",
    )
    with pytest.raises(OSError, match=r"x\.html"):
        replace_file("x.html", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]
    assert (tmp_path / "x.html").stat().st_size == 0

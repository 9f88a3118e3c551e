"""export, tail and check, in a real session."""

import io
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqlog_jobs.output import line_format
from mqlog_jobs.spark import check, export, tail
from support import goldens
from support.growing import grow
from support.oracle import Message
from support.stores import Layout, MakeStore

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_MS = 86_400_000
NIGHT_MS = 1_795_132_799_000  # 2026-11-19T23:59:59Z


def messages(count: int) -> list[Message]:
    return [
        Message(
            topic="AB"[i % 2],
            queue_id=i % 3,
            body=b"%d" % i,
            store_timestamp_ms=NIGHT_MS + i * 500,
        )
        for i in range(count)
    ]


def exported(spark: SparkSession, target: Path) -> list[tuple[str, str, str]]:
    rows = spark.read.parquet(str(target)).collect()
    return sorted((row["topic"], str(row["date"]), bytes(row["body"]).decode()) for row in rows)


def expected(held: list[Message]) -> list[tuple[str, str, str]]:
    return sorted(
        (m.topic, "2026-11-19" if i < 2 else "2026-11-20", m.body.decode())
        for i, m in enumerate(held)
    )


def test_an_export_takes_each_message_once_run_after_run(
    spark: SparkSession, store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laid = store(messages(11))
    target = tmp_path / "lake"
    arguments = ["--from", str(laid.root), "--to", f"parquet:{target}"]

    assert export.main(arguments) == 0
    assert exported(spark, target) == expected(messages(11))
    assert (target / "topic=A" / "date=2026-11-19").is_dir()

    assert export.main(arguments) == 0
    grow(laid, messages(17))
    assert export.main(arguments) == 0
    assert exported(spark, target) == expected(messages(17))
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["11", "0", "6"]
    assert err == ""


def test_an_export_that_was_killed_is_done_again_and_not_twice(
    spark: SparkSession, store: MakeStore, tmp_path: Path
) -> None:
    """Killed between the files and the commit: the batch is done again."""
    laid = store(messages(11))
    target, kept = tmp_path / "lake", tmp_path / "progress"
    arguments = ["--from", str(laid.root), "--to", f"parquet:{target}", "--checkpoint", str(kept)]
    assert export.main(arguments) == 0
    for folder in (kept / "commits", target / "_spark_metadata"):
        last = max(path for path in folder.iterdir() if path.name.isdecimal())
        last.unlink()
        (folder / f".{last.name}.crc").unlink(missing_ok=True)

    assert export.main(arguments) == 0
    assert exported(spark, target) == expected(messages(11))


def test_messages_that_expired_before_a_run_came_are_an_error(
    store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laid = store(messages(11), Layout(commit_log_bytes=512, queue_units=4))
    arguments = ["--from", str(laid.root), "--to", f"parquet:{tmp_path}/lake"]
    assert export.main(arguments) == 0
    grow(laid, messages(60), Layout(commit_log_bytes=512, queue_units=4, expired_files=10))

    assert export.main(arguments) == 2
    assert "[MQLOG_DATA_LOSS]" in capsys.readouterr().err
    assert export.main([*arguments, "--option", "failOnDataLoss=false"]) == 2
    assert "an export reports lost messages as an error" in capsys.readouterr().err


def test_an_export_needs_its_partitions_columns_and_parquet(
    golden_550: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--from", str(golden_550), "--to", f"parquet:{tmp_path}/lake"]

    assert export.main([*arguments, "--option", "columns=topic,body"]) == 2
    assert "the partitions need storeTimestamp too" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        export.main(["--from", str(golden_550), "--to", f"csv:{tmp_path}/lake"])
    assert "write parquet:PATH" in capsys.readouterr().err


def test_a_tail_prints_lines_in_the_order_they_were_stored(
    golden_550: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = sorted(
        (m["store"], m["queueId"], m["queueOffset"])
        for m in goldens.expected("5.5.0")
        if m["topic"] == "GOrder"
    )
    options = ["--option", "subscribe=GOrder", "--option", "startingOffsets=earliest"]
    line = ["-f", "{queueId}:{queueOffset}", "--once"]

    assert tail.main(["--from", str(golden_550), *options, *line]) == 0
    assert capfd.readouterr().out.splitlines() == [f"{q}:{n}" for _, q, n in wanted]


@pytest.mark.parametrize(("terminal", "told"), [(True, "\\x1b[2J\\n\n"), (False, "\x1b[2J\n\n")])
def test_a_tail_gives_no_commands_to_a_terminal_and_is_exact_in_a_pipe(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, told: str
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", out)
    schema = "storeTimestamp timestamp, topic string, queueId int, queueOffset long, body binary"
    row = (datetime(2026, 11, 21, tzinfo=UTC), "T", 0, 0, b"\x1b[2J\n")
    tail._print(spark.createDataFrame([row], schema), line_format.parse("{body}"))

    assert out.getvalue() == told


def test_a_check_of_several_stores_says_which_is_broken(
    golden_550: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        shutil.copytree(golden_550, tmp_path / name / "store")
    option = ["--option", 'brokerName=["one","two"]']
    arguments = ["--from", f"{tmp_path}/*/store", *option]
    assert check.main(arguments) == 0

    with (tmp_path / "two" / "store" / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(1146 + 88)
        log.write(b"!")
    capsys.readouterr()
    assert check.main(arguments) == 1
    assert [
        line.split("|")[1].strip()
        for line in capsys.readouterr().out.splitlines()
        if "error" in line
    ] == ["two"]

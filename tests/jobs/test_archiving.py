"""The job archive where no package of a table format is: Parquet, and what it refuses by name.

Delta and Iceberg are in tests/matrix, on the Sparks that they fit.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crash import no_space
from jobs.command import Run
from mqlog_jobs.spark import archive
from mqlog_jobs.spark.lake import packages
from mqlog_jobs.spark.lake.packages import DELTA, ICEBERG, Package
from mqlog_jobs.spark.lake.tables import IcebergTable
from mqstore.errors import InvalidOptionError
from support import soak
from support.growing import grow
from support.oracle import Message
from support.stores import Layout, MakeStore

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def messages(count: int) -> list[Message]:
    return [Message(topic="AB"[i % 2], queue_id=i % 3, body=b"%d" % i) for i in range(count)]


def test_an_archive_of_parquet_takes_all_columns_and_each_message_once(
    spark: SparkSession,
    store: MakeStore,
    tmp_path: Path,
    run: Run,
    capsys: pytest.CaptureFixture[str],
) -> None:
    laid = store(messages(11))
    arguments = ["--from", str(laid.root), "--to", f"parquet:{tmp_path}/lake"]

    assert archive.main(arguments) == 0
    grow(laid, messages(17))
    assert archive.main(arguments) == 0

    rows = spark.read.parquet(f"{tmp_path}/lake")
    assert sorted(int(bytes(row["body"])) for row in rows.collect()) == list(range(17))
    assert {"offsetMsgId", "sysFlag", "brokerName"} <= set(rows.columns)
    out, err = capsys.readouterr()
    assert (
        out == f"11 messages archived in {tmp_path}/lake\n6 messages archived in {tmp_path}/lake\n"
    )
    assert err == ""
    assert archive.main([*arguments, "--checkpoint", f"{tmp_path}/new"]) == 2
    assert "they would be archived twice" in capsys.readouterr().err

    # What a killed run leaves is not in Spark's log, and counts for nobody.
    (left,) = sorted((tmp_path / "lake" / "topic=A").rglob("*.parquet"))[:1]
    shutil.copy(left, left.with_name("left-behind.parquet"))
    audited = run("audit", laid.root, f"parquet:{tmp_path}/lake", "--by", "offset", "--json")
    assert (audited.code, audited.rows) == (0, [])
    left.unlink()
    assert "_spark_metadata names it" in run("audit", laid.root, f"parquet:{tmp_path}/lake").err


def test_messages_that_expired_meanwhile_are_an_error_that_names_the_gap(
    store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(commit_log_bytes=512, queue_units=4)
    laid = store(messages(11), layout)
    arguments = ["--from", str(laid.root), "--to", f"parquet:{tmp_path}/lake"]
    assert archive.main(arguments) == 0
    grow(laid, messages(60), Layout(commit_log_bytes=512, queue_units=4, expired_files=10))

    assert archive.main(arguments) == 2
    told = capsys.readouterr().err
    assert "[MQLOG_DATA_LOSS]" in told
    assert "queue offsets [2, 10) were requested, the store holds [9, 10)" in told


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A disk of so many KiB; skipped without the right to mount one."""
    with ExitStack() as mounted:
        try:
            mounted.enter_context(no_space.small_disk(tmp_path / "disk", request.param << 10))
        except (OSError, subprocess.SubprocessError):
            pytest.skip("needs the right to mount a tmpfs")
        yield tmp_path / "disk"


def remove_empty_files(checkpoint: Path) -> list[str]:
    """Remove the files that the error of an archive names."""
    offsets = checkpoint / "offsets"
    paths = [*offsets.glob(".*.tmp"), *offsets.glob(".*.tmp.crc")]
    for path in paths:
        path.unlink()
    return [path.name for path in paths]


@pytest.mark.parametrize(
    ("small_disk", "full"),
    [
        (4, "checkpoint"),
        (8, "checkpoint"),
        (16, "table"),
        pytest.param(16, "checkpoint", marks=soak.only_whole),
        pytest.param(4, "table", marks=soak.only_whole),
    ],
    indirect=["small_disk"],
)
def test_an_archive_whose_disk_was_full_has_each_message_once_after_there_is_room(
    spark: SparkSession,
    store: MakeStore,
    tmp_path: Path,
    small_disk: Path,
    full: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    laid = store(messages(60))
    folders = {name: tmp_path / name for name in ("checkpoint", "table")}
    folders[full] = small_disk / full
    checkpoint, table = folders["checkpoint"], folders["table"]
    arguments = ["--from", str(laid.root), "--to", f"parquet:{table}"]
    arguments += ["--checkpoint", str(checkpoint)]

    assert archive.main(arguments) == 2
    assert "No space left on device" in (err := capsys.readouterr().err)
    assert "Traceback" not in err
    no_space.grow(small_disk)
    if archive.main(arguments) == 2:
        assert "offsets whose names begin with a point" in capsys.readouterr().err
        assert remove_empty_files(checkpoint)
        assert archive.main(arguments) == 0
    grow(laid, messages(80))
    assert archive.main(arguments) == 0

    rows = spark.read.parquet(str(table))
    assert sorted(int(bytes(row["body"])) for row in rows.collect()) == list(range(80))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batch"], "its format has no transactions: leave out --batch, or write delta:PATH"),
        (["--batch", "--checkpoint", "x"], "a batch has none"),
        (["--batch", "--trigger", "30s"], "is for a stream: leave out --batch"),
        (["--trigger", "soon"], "must be a duration such as 500ms, 10s, 15m, 2h"),
        (["--option", "columns=topic"], "need queueId and queueOffset and storeTimestamp too"),
        (["--option", "subscribe=NOBODY"], "MQLOG_UNKNOWN_TOPIC"),
    ],
)
def test_a_mistake_is_one_line(
    golden_550: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    places = ["--from", str(golden_550), "--to", f"parquet:{tmp_path}/lake"]
    assert archive.main([*places, *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


@pytest.mark.parametrize("package", [DELTA, ICEBERG], ids=lambda one: str(one.format))
def test_a_line_of_spark_without_a_build_is_refused_with_those_that_have_one(
    package: Package,
) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        packages.settings(package, "4.9.0")

    told = str(refused.value)
    assert f"this is Spark 4.9.0, and {package.title} was tried on" in told
    for line, jar in package.tried.items():
        assert f"Spark {line} with {jar}" in told


@pytest.mark.parametrize("package", [DELTA, ICEBERG], ids=lambda one: str(one.format))
def test_a_session_without_the_package_is_told_what_to_add(
    spark: SparkSession, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ".".join(spark.version.split(".")[:2])
    monkeypatch.setitem(package.tried, line, "org.example:lake:1")

    with pytest.raises(InvalidOptionError, match="package is missing: add --packages") as refused:
        packages.check(spark, package)
    assert "--packages org.example:lake:1 to spark-submit" in str(refused.value)


def test_a_table_at_a_path_of_an_object_store_is_refused_for_iceberg(spark: SparkSession) -> None:
    with pytest.raises(InvalidOptionError, match="name a table of a catalog"):
        IcebergTable(spark, "s3a://bucket/lake/messages").exists()


def test_a_table_of_a_catalog_needs_a_checkpoint(
    golden_550: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.main(["--from", str(golden_550), "--to", "iceberg:lake.shop.messages"]) == 2
    assert "has no path: name a directory for the progress" in capsys.readouterr().err

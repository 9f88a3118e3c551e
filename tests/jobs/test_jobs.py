"""The jobs in a real session, and once through spark-submit, as an operator starts them."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from mqlog_jobs.spark import backlog, publish

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SMALL = ("--option", "createStore=true", "--option", "mappedFileSizeCommitLog=1m")
SMALL += ("--option", "maxHashSlotNum=100", "--option", "maxIndexNum=400")

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
Checked = Callable[[Path], Path]


def test_the_backlog_goes_to_files_and_is_not_overwritten(
    spark: SparkSession, golden_550: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"csv:{tmp_path}/backlog"
    arguments = ["--from", str(golden_550), "--to", target, "--option", "groups=CG_G"]

    assert backlog.main(arguments) == 0
    rows = spark.read.option("header", value=True).csv(f"{tmp_path}/backlog").collect()
    assert sorted((row["queueId"], row["lag"]) for row in rows) == [
        ("0", "23"),
        ("1", "21"),
        ("2", "22"),
        ("3", "20"),
    ]

    assert capsys.readouterr().err == ""
    assert backlog.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("mqlog: [PATH_ALREADY_EXISTS]")
    assert told.count("\n") == 1
    assert backlog.main([*arguments, "--mode", "append"]) == 0
    assert spark.read.option("header", value=True).csv(f"{tmp_path}/backlog").count() == 8
    assert capsys.readouterr().err == ""


def test_the_backlog_is_shown_on_the_console(
    golden_550: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backlog.main(["--from", str(golden_550), "--option", "groups=LP_G"]) == 0
    shown = [
        line.split("|")[3:8] for line in capsys.readouterr().out.splitlines() if "LP_G" in line
    ]

    assert [[cell.strip() for cell in line] for line in shown] == [
        ["GBatch", "0", "88", "20", "68"],
        ["GBatch", "1", "117", "40", "77"],
        ["GBatch", "2", "80", "40", "40"],
        ["GBatch", "3", "115", "40", "75"],
    ]


def test_a_mistake_in_a_job_is_one_line_and_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backlog.main(["--from", str(tmp_path / "nowhere")]) == 2
    target = ["--to", str(tmp_path / "x")]
    assert publish.main(["--from", f"json:{_json(tmp_path)}", *target]) == 2
    assert publish.main(["--from", f"parquet:{tmp_path}/none", *target]) == 2
    assert publish.main(["--from", "table:nobody.has", *target]) == 2
    wrong = ["--select", "nobody AS body"]
    assert publish.main(["--from", f"json:{_json(tmp_path)}", *wrong, *target]) == 2

    out, err = capsys.readouterr()
    conditions = ["MQLOG_STORE_NOT_FOUND", "MQLOG_STORE_NOT_FOUND", "PATH_NOT_FOUND"]
    conditions += ["TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_COLUMN"]
    assert out == ""
    found = [re.match(r"mqlog: \[([A-Z_]+)", line) for line in err.splitlines()]
    assert [one and one[1] for one in found] == conditions


def test_text_becomes_messages_with_the_types_a_write_needs(
    spark: SparkSession, tmp_path: Path, checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    """In CSV everything is text, and JSON would make of keys a number and of queueId a bigint."""
    (tmp_path / "rows.csv").write_text(
        "topic,queueId,keys,tags,body,bornTimestamp\n"
        "T,1,4711,paid,first,2026-11-21T09:00:00Z\n"
        "T,1,4712,,second,2026-11-21T09:00:01Z\n"
    )
    store = tmp_path / "broker-a" / "store"
    common = ("--to", str(store), *SMALL)

    assert publish.main(["--from", f"csv:{tmp_path}/rows.csv", *common]) == 0
    assert publish.main(["--from", f"json:{_json(tmp_path)}", *common]) == 0

    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"2 messages, \d+ bytes, written to {store}", first)
    assert re.fullmatch(rf"1 message, \d+ bytes, written to {store}", second)
    checked(store)
    rows = spark.read.format("mqlog").load(str(store)).orderBy("queueOffset").collect()
    assert [(r["queueId"], r["keys"], r["tags"], bytes(r["body"])) for r in rows] == [
        (1, "4711", "paid", b"first"),
        (1, "4712", None, b"second"),
        (1, "4713", None, b"third"),
    ]
    assert rows[2]["properties"]["town"] == "Québec"
    assert rows[0]["bornTimestamp"].isoformat() == "2026-11-21T09:00:00"


def test_expressions_make_the_columns(
    spark: SparkSession, tmp_path: Path, checked: Checked
) -> None:
    spark.createDataFrame([(1, "tea"), (2, "milk")], "id int, what string").coalesce(
        1
    ).write.parquet(f"{tmp_path}/orders")
    store = tmp_path / "broker-a" / "store"
    select = ("'ORDERS' AS topic", "string(id) AS keys", "to_json(struct(*)) AS body")
    flags = [word for expression in select for word in ("--select", expression)]
    places = ["--from", f"parquet:{tmp_path}/orders", "--to", str(store)]

    assert publish.main([*places, *flags, *SMALL]) == 0

    checked(store)
    rows = spark.read.format("mqlog").option("subscribe", "ORDERS").load(str(store)).collect()
    assert {(row["keys"], row["body"].decode()) for row in rows} == {
        ("1", '{"id":1,"what":"tea"}'),
        ("2", '{"id":2,"what":"milk"}'),
    }


def test_rows_that_were_published_are_not_published_again(
    spark: SparkSession, tmp_path: Path, checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "broker-a" / "store"
    named = ["--option", "txnAppId=orders", "--option", "txnVersion=20261120"]
    arguments = ["--from", f"json:{_json(tmp_path)}", "--to", str(store), *SMALL, *named]

    assert [publish.main(arguments) for _ in range(3)] == [0, 0, 0]

    told = [line.split(" to ")[0] for line in capsys.readouterr().out.splitlines()]
    assert told[0].startswith("1 message, ")
    assert told[1:] == ["nothing new written"] * 2
    checked(store)
    assert spark.read.format("mqlog").load(str(store)).count() == 1


def test_spark_submit_runs_a_job_whose_package_travels_along(
    golden_550: Path, tmp_path: Path
) -> None:
    """The job also says that it read an older file of offsets than the one it wanted."""
    root = tmp_path / "store"
    shutil.copytree(golden_550, root)
    committed = root / "config" / "consumerOffset.json"
    committed.rename(committed.with_suffix(".json.bak"))
    committed.write_text("{")
    package = tmp_path / "mqlog.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for folder in ("store/mqstore", "connector/pyspark_mqlog", "jobs/mqlog_jobs"):
            for path in sorted((ROOT / folder).rglob("*.py")):
                archive.write(path, path.relative_to((ROOT / folder).parent))
    job = ROOT / "jobs" / "mqlog_jobs" / "spark" / "backlog.py"
    command = [SUBMIT, "--master", "local[1]", "--py-files", package, job]
    done = subprocess.run(
        [*command, "--from", root, "--to", f"json:{tmp_path}/out"],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    rows = [
        json.loads(line)
        for part in (tmp_path / "out").glob("part-*")
        for line in part.read_text(encoding="utf-8").splitlines()
    ]
    diffs = [row["diff"] for row in rows if (row["group"], row["topic"]) == ("CG_G", "GTopic")]
    assert sum(diffs) == 86
    assert "consumerOffset.json.bak was read instead, and may be older" in done.stderr


def _json(folder: Path) -> Path:
    path = folder / "rows.json"
    row = {
        "topic": "T",
        "queueId": 1,
        "keys": 4713,
        "body": "third",
        "properties": {"town": "Québec"},
    }
    path.write_text(json.dumps(row))
    return path

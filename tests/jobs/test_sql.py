"""`mqlog sql`: topics and tables of places by SQL, in every form, and nothing else."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqlog
from jobs.command import Run
from live.loopback import FakeCluster
from mqlog_jobs.work import sql_query
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request import plan
from support import soak
from support.processes import until

COUNTS = "SELECT tags, count(*) AS n FROM GTopic WHERE tags LIKE 'G%' GROUP BY 1 ORDER BY 1"


def test_a_topic_is_a_table_and_every_form_has_its_rows(
    run: Run, golden_550: Path, tmp_path: Path
) -> None:
    target = tmp_path / "rows.parquet"
    place = str(golden_550)

    drawn, as_json, as_csv = (
        run("sql", place, COUNTS, *form) for form in ([], ["--json"], ["--csv"])
    )
    filed = run("sql", place, COUNTS, "--parquet", str(target))

    assert as_json.rows == [{"tags": "GA", "n": 121}, {"tags": "GB", "n": 122}]
    assert as_csv.out == "tags,n\nGA,121\nGB,122\n"
    assert [line.split() for line in drawn.out.splitlines()[2:]] == [["GA", "121"], ["GB", "122"]]
    assert (filed.code, filed.out) == (0, "")
    assert pq.read_table(target).to_pylist() == as_json.rows


def test_every_topic_and_every_table_has_a_name(run: Run, golden_550: Path) -> None:
    place = mqlog.open(golden_550)

    shown = {row["name"] for row in run("sql", str(golden_550), "SHOW TABLES", "--json").rows}

    assert shown == {*place.topics(system=True), *place.tables()}


def test_a_table_is_queried_as_a_topic_is(run: Run, golden_550: Path) -> None:
    done = run("sql", str(golden_550), "SELECT sum(lag) AS lag FROM backlog", "--json")

    lags = mqlog.open(golden_550).table("backlog").to_table()["lag"].to_pylist()
    assert done.rows == [{"lag": sum(lags)}]


def test_two_places_are_joined_by_their_names(run: Run, golden_550: Path, golden_497: Path) -> None:
    query = (
        "SELECT (SELECT count(*) FROM new.GTopic) AS new, "
        "(SELECT count(*) FROM old.HTopic) AS old, "
        "(SELECT count(*) FROM new.GTopic JOIN old.HTopic USING (queueId, queueOffset)) AS both"
    )

    done = run("sql", f"new={golden_550}", f"old={golden_497}", query, "--json")

    rows = [
        {(row["queueId"], row["queueOffset"]) for row in scan.to_table().to_pylist()}
        for scan in (
            mqlog.open(root).scan(topic, columns=["queueId", "queueOffset"])
            for root, topic in ((golden_550, "GTopic"), (golden_497, "HTopic"))
        )
    ]
    assert done.rows == [{"new": len(rows[0]), "old": len(rows[1]), "both": len(rows[0] & rows[1])}]


def test_a_query_decodes_two_columns_and_no_body(
    run: Run, golden_550: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: set[str] = set()
    real = plan.scan

    def noted(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
        decoded.update(settings.columns)
        return real(slices, settings)

    monkeypatch.setattr(plan, "scan", noted)

    assert run("sql", str(golden_550), "SELECT queueId, max(tags) FROM GTopic GROUP BY 1").code == 0
    assert decoded == {"queueId", "tags"}


@pytest.mark.parametrize(("schema", "table"), [("", "GTopic"), ("old=", "old.GTopic")])
def test_a_filter_reads_the_range_alone(
    run: Run, golden_550: Path, monkeypatch: pytest.MonkeyPatch, schema: str, table: str
) -> None:
    read: list[tuple[int, int, int, str]] = []
    real = plan.scan

    def noted(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
        read.extend((one.queue_id, one.start, one.end, settings.tags) for one in slices)
        return real(slices, settings)

    monkeypatch.setattr(plan, "scan", noted)
    where = (
        "queueId = 2 AND queueOffset BETWEEN 7 AND 30 AND tags = 'GA' AND storeTimestamp < now()"
    )

    done = run(
        "sql", f"{schema}{golden_550}", f"SELECT queueOffset FROM {table} WHERE {where}", "--json"
    )

    assert done.rows
    assert read == [(2, 7, 31, "GA")]


def test_since_and_until_bound_what_is_read(run: Run, golden_550: Path) -> None:
    query = "SELECT count(*) AS n FROM GTopic"
    scan = mqlog.open(golden_550).scan("GTopic")
    times = sorted(scan.to_table()["storeTimestamp"].to_pylist())
    middle = times[len(times) // 2]

    before, since = (
        run("sql", str(golden_550), query, flag, middle.isoformat(), "--json").rows[0]["n"]
        for flag in ("--until", "--since")
    )

    assert before == sum(time < middle for time in times)
    assert since == sum(time >= middle for time in times)


def test_a_cluster_has_its_topics_and_tables(run: Run) -> None:
    with FakeCluster().running() as fake:
        done = run("sql", f"rocketmq://{fake.address}", "SHOW TABLES", "--json")

    names = {row["name"] for row in done.rows}
    assert "backlog" in names
    assert "files" not in names


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELCT", 'Parser Error: syntax error at or near "SELCT"'),
        ("FROM GTpic", 'Did you mean "GTopic"?'),
        ("SELECT tgs FROM GTopic", "tags"),
        ("SELECT 'x'::INT", "Conversion Error"),
        ("FROM '/not/there/x'", "does not exist"),
        ("FROM read_csv('/not/there/x')", "disabled by configuration"),
        ("FROM read_text('https://127.0.0.1:1/x')", "disabled"),
        ("COPY (SELECT 1) TO '/not/there/leak.csv'", "disabled by configuration"),
        ("ATTACH '/not/there/leak.db'", "disabled by configuration"),
        ("INSTALL httpfs", "disabled by configuration"),
        ("SET enable_external_access = true", "locked"),
        ("FROM scan", "does not exist"),
        ("FROM absent", "SHOW TABLES lists topics and tables"),
        ("SELECT TIMESTAMP 'infinity'", "outside of the years 1 to 9999: cast it to VARCHAR"),
        ("SELECT [DATE '20000-01-01']", "outside of the years 1 to 9999: cast it to VARCHAR"),
    ],
)
def test_sql_that_is_wrong_or_leaves_the_places_is_one_line(
    run: Run, golden_550: Path, query: str, words: str
) -> None:
    done = run("sql", str(golden_550), query)

    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("mqlog: [MQLOG_INVALID_QUERY] ")
    assert done.err.count("\n") == 1
    assert words in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{}", "SELECT 1", "--json", "--csv"], "choose either"),
        (["{}", "SELECT 1", "--json", "--parquet", "x"], "choose one of the formats"),
        (["{}", "SELECT 1", "--parquet", "/not/there/x"], "/not/there/x"),
        (["{}", "SELECT 1", "--memory", "much"], "must be a size"),
        (["{}", "SELECT 1", "--since", "1h"], "option --since"),
        (["main={}", "SELECT 1"], "MQLOG_INVALID_QUERY"),
        (["/not/there", "SELECT 1"], "MQLOG_STORE_NOT_FOUND"),
    ],
)
def test_a_wrong_line_is_refused_in_one(
    run: Run, golden_550: Path, words: list[str], says: str
) -> None:
    done = run("sql", *(word.format(golden_550) for word in words))

    assert (done.code, done.err.count("\n")) == (2, 1)
    assert says in done.err


def test_without_duckdb_the_line_says_what_to_install(
    run: Run, golden_550: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    assert "mqlog sql needs duckdb: pip install duckdb" in run("sql", str(golden_550), "FROM x").err


def test_values_of_every_type_are_json(run: Run, golden_550: Path) -> None:
    query = (
        "SELECT [1, 2] AS l, {'a': 'x'::BLOB} AS s, MAP {'k': 1} AS m, DATE '2020-01-01' AS d, "
        "1.50::DECIMAL(9,2) AS x, 3::HUGEINT AS h, INTERVAL 1 SECOND AS i, "
        "1 AS a, 2 AS a, NULL AS n"
    )

    done = run("sql", str(golden_550), query, "--json")

    row = {"l": [1, 2], "s": {"a": "x"}, "m": {"k": 1}, "d": "2020-01-01", "x": 1.5, "h": 3}
    assert done.rows[0] | row == done.rows[0]
    assert (done.rows[0]["a"], done.rows[0]["a_2"], done.rows[0]["n"]) == (1, 2, None)


def test_a_large_result_is_drawn_in_part_and_written_whole(run: Run, golden_550: Path) -> None:
    query = "SELECT range AS n FROM range(1500)"

    drawn, as_json = (
        run("sql", str(golden_550), query),
        run("sql", str(golden_550), query, "--json"),
    )

    assert len(drawn.out.splitlines()) == 2 + sql_query._DRAWN_ROWS
    assert "only the first 1,000 rows" in drawn.err
    assert len(as_json.rows) == 1_500


def test_names_that_differ_in_case_only_are_both_there(run: Run, tmp_path: Path) -> None:
    for topic in ("orders", "ORDERS", "backlog"):
        rows = pa.table({"body": [topic]})
        mqlog.write(rows, tmp_path / "s", topic=topic, create_store=True)
    query = "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM orders_2) AS n"

    done = run("sql", str(tmp_path / "s"), query, "--json")

    assert done.rows == [{"n": 2}]
    assert "this one is orders_2" in done.err
    assert "this one is backlog_2" in done.err


@soak.not_in_check
def test_a_query_of_all_bodies_holds_a_few_batches(tmp_path: Path) -> None:
    rows = pa.table({"body": [b"x" * 100_000] * 400})
    for _ in range(4):
        mqlog.write(rows, tmp_path / "s", topic="T", create_store=True, compression="none")
    program = (
        "import sys, pyarrow as pa; from mqlog_jobs.cli import main\n"
        "try: main()\n"
        "finally: print(pa.default_memory_pool().max_memory(), file=sys.stderr)"
    )
    query = "SELECT max(octet_length(body)) AS n FROM T"

    done = subprocess.run(
        [sys.executable, "-c", program, "sql", str(tmp_path / "s"), query, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )

    assert json.loads(done.stdout) == {"n": 100_000}
    assert int(done.stderr) < 80 << 20  # Of 160 MB.


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@soak.not_in_check
def test_an_interrupt_ends_a_query_and_leaves_no_file(golden_550: Path, tmp_path: Path) -> None:
    endless = "SELECT count(*) FROM range(10000000) a JOIN range(10000000) b ON a.range < b.range"
    running = subprocess.Popen(
        [sys.executable, "-m", "mqlog", "sql", str(golden_550), endless],
        env={"TMPDIR": str(tmp_path), "PATH": ""},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: cpu_seconds(running.pid) > 4)  # It started long before.

    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)

    assert (running.returncode, errors) == (130, b"")
    assert list(tmp_path.iterdir()) == []

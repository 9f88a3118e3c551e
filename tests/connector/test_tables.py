"""Tables as Spark plans and reads them, without a session: their options, columns and document."""

import json
import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from mqstore.errors import InvalidOptionError, UnknownGroupError, UnknownTopicError
from mqstore.request.plan import ReadPlan, plan_read, read_schema
from mqstore.tables.catalog import CATALOG
from pyspark_mqlog.options import parse_read
from pyspark_mqlog.schema import conform, to_arrow, to_struct
from support import expectations, goldens
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out

DOCUMENT = (Path(__file__).parents[2] / "connector" / "TABLES.md").read_text(encoding="utf-8")
NOW = {"asOf", "lagMs", "metricLatencyMs", "etaZero", "etaZeroEarliest", "etaZeroLatest"}


def read(path: Path, **options: str) -> pa.Table:
    asked = parse_read({"path": str(path), **options})
    schema = read_schema(asked)
    plan: ReadPlan = pickle.loads(pickle.dumps(plan_read(asked, schema.names)))
    shown = to_arrow(to_struct(schema))  # what Spark expects, flag by flag
    batches = [conform(batch, shown) for work in plan.work() for batch in work.batches()]
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= 60_000
    return pa.Table.from_batches(batches, schema=shown)


def rows(path: Path, **options: str) -> list[dict[str, object]]:
    return expectations.rows(read(path, **options))


def test_every_table_but_messages_has_a_schema_and_a_chapter() -> None:
    assert re.findall(r"^## (\w+)$", DOCUMENT, re.MULTILINE) == list(CATALOG)


@pytest.mark.parametrize("table", CATALOG)
def test_the_document_tells_the_columns_of_the_code(table: str) -> None:
    chapter = DOCUMENT.split(f"\n## {table}\n", 1)[1].split("\n## ", 1)[0]
    told = [
        tuple(cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip("|")))
        for line in chapter.splitlines()
        if line.startswith("| `")
    ]
    assert told == [
        (name, from_arrow_type(kind).simpleString() + "?" * nullable, meaning)
        for name, kind, nullable, meaning in CATALOG[table].columns
    ]
    names = [name for name, *_ in CATALOG[table].columns]
    assert CATALOG[table].schema.names == names


def halves(names: Sequence[str]) -> list[list[str]]:
    return [[*names[::2]][::-1], [*names[1::2]]]


@pytest.mark.parametrize("table", CATALOG)
@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_columns_that_are_asked_for_are_what_all_of_them_would_be(
    version: str, table: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    needed = {CATALOG[table].needs: str(root)} if CATALOG[table].needs else {}
    every = read(root, table=table, **needed)
    empty = {"audit", "commits", "subscriptions", "traces", "unacknowledged", "verdicts", "verify"}
    assert every.num_rows or table in empty
    for names in halves(every.schema.names):
        asked = read(root, table=table, columns=",".join(names), **needed)
        assert asked.schema.names == names
        stable = [name for name in names if name not in NOW]
        assert asked.select(stable).equals(every.select(stable))


def test_the_topic_options_choose_where_messages_are_to_go(golden_550: Path) -> None:
    assert {row["realTopic"] for row in rows(golden_550, table="scheduled")} == {
        "GDelay",
        "%RETRY%CG_G",
    }
    for choice in ({"subscribe": "GDelay"}, {"includeSystemTopics": "false"}):
        found = rows(golden_550, table="scheduled", **choice)
        assert {row["realTopic"] for row in found} == {"GDelay"}
    found = rows(golden_550, table="scheduled", assign='{"GDelay":[1,2]}')
    assert {row["realQueueId"] for row in found} == {1, 2}
    assert rows(golden_550, table="halfmessages", subscribe="GTopic") == []
    assert len(rows(golden_550, table="halfmessages", subscribePattern="G.x")) == 13
    assert len(rows(golden_550, table="retries", subscribe="GTopic")) == 16
    assert rows(golden_550, table="retries", subscribe="GDelay") == []


@pytest.mark.parametrize("table", ["backlog", "lagcompare", "offsets"])
def test_a_topic_that_is_gone_is_chosen_as_any_other(store: MakeStore, table: str) -> None:
    committed = {("T", "g"): {0: 2}, ("Gone", "g"): {0: 7}, ("%RETRY%g", "g"): {0: 1}}
    root = store([Message()], Layout(group_offsets=committed)).root
    every = ["%RETRY%g", "Gone", "T"]
    for options, found in (
        ({}, every),
        ({"includeSystemTopics": "true"}, every),
        ({"includeSystemTopics": "false"}, every),  # It is about the groups.
        ({"subscribePattern": ".*"}, every),
        ({"subscribePattern": "G.*"}, ["Gone"]),
        ({"subscribe": "Gone"}, ["Gone"]),
        ({"assign": '{"Gone":[0],"T":[1]}'}, ["Gone"]),
        ({"assign": '{"Gone":[1]}'}, []),
    ):
        taken = rows(root, table=table, **options)
        assert sorted({str(row["topic"]) for row in taken if row["queueId"] == 0}) == found
    with pytest.raises(UnknownTopicError, match="no topic Gne; did you mean Gone"):
        rows(root, table=table, subscribe="Gne")
    with pytest.raises(UnknownTopicError, match="no topic Gone"):
        rows(root, table="queues", subscribe="Gone")


def test_tags_take_the_ranges_of_messages(golden_550: Path) -> None:
    chosen = {"table": "tags", "subscribe": "GTopic"}

    def count(**options: str) -> int:
        return sum(read(golden_550, **chosen, **options)["messageCount"].to_pylist())

    assert count() == 481
    assert count(startingOffsets="-10") == 40
    assert count(startingGroup="CG_G") == 86
    assert count(startingTimestamp="2099-01-01T00:00:00Z") == 0
    assert {row["tag"] for row in rows(golden_550, **chosen, tags="GA || GB")} == {"GA", "GB"}


def test_times_choose_by_the_store_time_of_the_row(golden_550: Path) -> None:
    for table in ("scheduled", "retries", "index"):
        found = sorted(
            {row["storeTimestamp"] // 1000 for row in rows(golden_550, table=table)}  # type: ignore[operator]
        )
        middle = found[len(found) // 2]
        early = rows(golden_550, table=table, endingTimestamp=str(middle))
        late = rows(golden_550, table=table, startingTimestamp=str(middle))
        assert early
        assert {row["storeTimestamp"] // 1000 for row in early} == set(found[: len(found) // 2])  # type: ignore[operator]
        assert {row["storeTimestamp"] // 1000 for row in late} == set(found[len(found) // 2 :])  # type: ignore[operator]


def test_index_entries_are_chosen_by_key(golden_550: Path) -> None:
    (entry,) = rows(golden_550, table="index", keys="key28", subscribe="GTopic")
    (message,) = (m for m in goldens.expected("5.5.0") if _is(m, "GTopic", "key28"))
    assert entry["physicalOffset"] == message["physicalOffset"]
    # The retry of it has the same key, in its own topic and in the schedule topic.
    assert len(rows(golden_550, table="index", keys="key28")) == 3


def _is(message: dict[str, object], topic: str, key: str) -> bool:
    properties = message["properties"]
    assert isinstance(properties, dict)
    return message["topic"] == topic and properties.get("KEYS") == key


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "files", "subscribe": "T"}, "is for table=.*not files"),
        ({"table": "verify", "includeSystemTopics": "true"}, "is for table=.*not verify"),
        ({"table": "index", "assign": '{"T":[0]}'}, "is for table=.*not index"),
        ({"table": "halfmessages", "startingTimestamp": "1"}, "is for table=.*not halfmessages"),
        ({"table": "scheduled", "startingOffsets": "-1"}, "is for table=messages|tags"),
        ({"table": "lagcompare", "byTag": "true"}, "is for table=backlog, not lagcompare"),
        ({"table": "commits", "subscribe": "T"}, "is for table=.*not commits"),
    ],
)
def test_options_a_table_does_not_take_are_refused_by_name(
    options: dict[str, str], told: str, golden_550: Path
) -> None:
    with pytest.raises(InvalidOptionError, match=told):
        read(golden_550, **options)


def test_groups_choose_retries_and_an_unknown_one_is_an_error(golden_550: Path) -> None:
    assert len(rows(golden_550, table="retries", groups="CG_G")) == 16
    assert rows(golden_550, table="retries", groups="LP_G") == []
    assert len(rows(golden_550, table="retries", groups="/CG_.*/")) == 16
    with pytest.raises(UnknownGroupError, match="no group CG_; did you mean CG_G"):
        rows(golden_550, table="retries", groups="CG_")


def test_a_damaged_store_still_tells_its_files(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "broker-a" / "store", [Message()]).root
    (root / "consumequeue" / "Link").symlink_to(tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{")
    found = {row["path"]: row for row in rows(root, table="files")}
    wrong = {path for path, row in found.items() if row["problem"]}
    assert wrong == {"consumequeue/Link", "config/topics.json", "config/topics.json.bak"}
    assert {row["brokerName"] for row in found.values()} == {"broker-a"}


@pytest.mark.parametrize("table", CATALOG)
def test_two_stores_of_one_name_are_refused_by_every_table(tmp_path: Path, table: str) -> None:
    roots = [lay_out(tmp_path / part / "b" / "store", [Message()]).root for part in ("x", "y")]
    paths = {"paths": json.dumps([str(root) for root in roots]), "table": table}
    paths |= {CATALOG[table].needs: str(roots[0])} if CATALOG[table].needs else {}
    with pytest.raises(InvalidOptionError, match="brokerName='b': two stores have this name"):
        plan_read(parse_read(paths), CATALOG[table].schema.names)
    assert plan_read(parse_read(paths | {"brokerName": '["x","y"]'}), CATALOG[table].schema.names)


@pytest.mark.spark
def test_spark_reads_tables_and_a_schema_is_a_projection(
    spark: SparkSession, golden_550: Path
) -> None:
    frame = spark.read.format("mqlog").load(f"{golden_550}#lagcompare")
    assert frame.columns == CATALOG["lagcompare"].schema.names
    assert frame.count() == read(golden_550, table="lagcompare").num_rows
    asked = spark.read.format("mqlog").schema("state string, realTopic string")
    states = asked.load(f"{golden_550}#scheduled").collect()
    assert {row["state"] for row in states} == {"DELIVERED", "PENDING"}

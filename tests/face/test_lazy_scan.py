"""A Scan is a lazy value with pinned ends, and reads the columns that are asked for."""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqlog
from mqlog import errors
from mqstore.codec.schema import COLUMNS
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request import partitions, plan
from support import goldens
from support.oracle import Message
from support.stores import Layout, MakeStore

NAMES = [column.name for column in COLUMNS]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of each scan of the core, in turn."""
    seen: list[tuple[str, ...]] = []
    real = plan.scan

    def counted(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
        seen.append(settings.columns)
        return real(slices, settings)

    monkeypatch.setattr(plan, "scan", counted)
    return seen


def sql(scan: mqlog.Scan, query: str) -> list[Any]:
    """Return the rows of DuckDB, which finds the scan by its name here."""
    rows: list[Any] = duckdb.sql(query).fetchall()
    return rows


def columns_of(asked: Any, decoded: list[tuple[str, ...]]) -> set[str]:
    """Return the columns that were decoded for the rows that something asks for."""
    assert len(asked)
    return {name for names in decoded for name in names}


def test_a_query_decodes_the_columns_that_it_names(
    golden_550: Path, decoded: list[tuple[str, ...]]
) -> None:
    scan = mqlog.open(golden_550).scan("GTopic", columns="full")
    lazy = scan.to_polars_lazy()
    asked = {
        "DuckDB": lambda: sql(scan, "SELECT tags, count(*) FROM scan GROUP BY 1"),
        "DuckDB, filtered": lambda: sql(
            scan, "SELECT tags FROM scan WHERE queueId = 1 AND storeTimestamp > '2020-01-01'"
        ),
        "Polars": lambda: lazy.group_by("tags").agg(pl.len()).collect(),
        "Polars, filtered": lambda: lazy.filter(pl.col("queueId") == 1).select("tags").collect(),
        "pyarrow": lambda: scan.to_table(columns=["tags"], filter=pc.field("queueId") == 1),
        "select": lambda: scan.select("tags").to_table(),
    }
    wanted = {
        "DuckDB": {"tags"},
        "DuckDB, filtered": {"tags", "queueId", "storeTimestamp"},
        "Polars": {"tags"},
        "Polars, filtered": {"tags", "queueId"},
        "pyarrow": {"tags", "queueId"},
        "select": {"tags"},
    }

    found = {}
    for name, ask in asked.items():
        decoded.clear()
        found[name] = columns_of(ask(), decoded)

    assert found == wanted


def test_a_count_decodes_nothing(golden_550: Path, decoded: list[tuple[str, ...]]) -> None:
    scan = mqlog.open(golden_550).scan("GTopic")

    assert scan.count() == scan.count_rows() == 481
    assert decoded == []


def test_a_limit_ends_the_read(store: Any, decoded: list[tuple[str, ...]]) -> None:
    laid = store([Message(body=b"x") for _ in range(60)])
    scan = mqlog.open(laid.root).scan(batch_rows=10, columns="queueOffset")
    read: list[int] = []

    for batch in scan.to_reader():
        read.append(batch.num_rows)
        break

    assert read == [10]
    assert scan.head(7).num_rows == 7
    assert scan.to_polars_lazy().head(3).collect().height == 3
    assert duckdb.sql("SELECT queueOffset FROM scan LIMIT 4").fetchall() == [(n,) for n in range(4)]


def test_batches_are_read_when_an_engine_takes_them(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = plan.scan

    def noted(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
        for batch in real(slices, settings):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(plan, "scan", noted)
    laid = store([Message(body=b"x") for _ in range(400)])
    scan = mqlog.open(laid.root).scan(batch_rows=10)

    reader = scan.scanner(columns=["body"], filter=pc.field("queueId") >= 0).to_reader()
    taken = [reader.read_next_batch().num_rows for _ in range(3)]

    assert taken == read == [10, 10, 10]
    assert scan.head(15, columns=["body"]).num_rows == 15
    assert read[3:] == [10, 10]


def test_the_ends_are_pinned_at_the_first_use(tmp_path: Path) -> None:
    rows = pa.table({"body": ["a", "b"]})
    root = tmp_path / "store"
    mqlog.write(rows, root, topic="T", create_store=True)
    place = mqlog.open(root)
    scan = place.scan("T")
    narrow = scan.select("body")

    assert scan.count() == 2
    mqlog.write(rows, root, topic="T")

    assert narrow.to_table().num_rows == scan.to_table().num_rows == scan.count() == 2
    assert pickle.loads(pickle.dumps(narrow)).count() == 2
    assert place.scan("T").count() == 4


def test_a_scan_is_made_without_the_place_and_knows_its_schema() -> None:
    scan = mqlog.open("/not/there").scan("T", columns="minimal")

    assert scan.schema.names == ["topic", "queueId", "queueOffset", "body", "storeTimestamp"]
    assert repr(scan) == (
        "<mqlog.Scan of /not/there: topics T; "
        "columns topic, queueId, queueOffset, body, storeTimestamp>"
    )
    with pytest.raises(errors.StoreNotFoundError):
        scan.to_table()


def test_the_text_of_a_scan_says_its_range_and_what_is_pinned(golden_550: Path) -> None:
    scan = mqlog.open(golden_550).scan("GTopic", starting_timestamp=0, columns="tags")
    scan.count()

    assert repr(scan) == (
        f"<mqlog.Scan of {golden_550}: topics GTopic; starting_timestamp=0; columns tags; "
        "pinned at 481 messages>"
    )


def test_a_scan_does_not_change(golden_550: Path) -> None:
    scan = mqlog.open(golden_550).scan("GTopic")

    with pytest.raises(AttributeError, match="does not change"):
        scan.schema = pa.schema([])
    for call in (scan.take, scan.join, scan.get_fragments, scan.sort_by):
        with pytest.raises(TypeError, match="query engine"):
            call(None)
    with pytest.raises(TypeError, match="query engine"):
        scan.partition_expression  # noqa: B018


def test_an_error_within_a_read_keeps_its_class_and_says_keywords(store: MakeStore) -> None:
    laid = store([Message(body=b"x") for _ in range(4)])
    scan = mqlog.open(laid.root).scan(starting_offsets={laid.held[0].topic: {0: 99}})

    with pytest.raises(errors.DataLossError, match="Set fail_on_data_loss=False"):
        scan.to_table()


def test_a_broken_record_is_an_error_in_every_engine(golden_497: Path, tmp_path: Path) -> None:
    root = goldens.unpack("4.9.7", tmp_path)
    log = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[4] ^= 0xFF
    log.write_bytes(data)
    scan = mqlog.open(root).scan(include_system_topics=True)

    with pytest.raises(errors.CorruptStoreError):
        scan.to_table()
    with pytest.raises(duckdb.Error, match="MQLOG_CORRUPT_STORE"):
        duckdb.sql("SELECT count(body) FROM scan").fetchall()
    with pytest.raises(Exception, match="MQLOG_CORRUPT_STORE"):
        scan.to_polars_lazy().collect()


@pytest.mark.parametrize("name", ["backlog", "queues", "topics", "tags", "retries", "files"])
def test_a_table_is_the_same_scan(golden_550: Path, name: str) -> None:
    table = mqlog.open(golden_550).table(name)
    first = table.schema.names[0]

    assert duckdb.sql(f'SELECT "{first}" FROM "table"').fetchall() == [
        (row[first],) for row in table.to_table().to_pylist()
    ]
    assert table.count() == table.to_table().num_rows == table.to_polars_lazy().collect().height
    assert sum(split.to_table().num_rows for split in table.splits()) == table.count()


def test_a_place_names_its_topics_and_tables(golden_550: Path) -> None:
    place = mqlog.open(golden_550)

    assert {"GTopic", "GTx", "GOrder"} <= set(place.topics())
    assert "SCHEDULE_TOPIC_XXXX" not in place.topics()
    assert "SCHEDULE_TOPIC_XXXX" in place.topics(system=True)
    assert "files" in place.tables()
    assert "files" not in mqlog.open("rocketmq://127.0.0.1:9876").tables()


def test_a_read_of_very_many_partitions_says_which_option_makes_fewer(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partitions, "_MANY_PARTITIONS", 6)
    place = mqlog.open(store([Message(body=b"x") for _ in range(12)]).root)

    assert len(place.scan(max_records_per_partition=3).splits()) == 4
    assert caplog.messages == []
    assert len(place.scan(max_records_per_partition=2).splits()) == 6
    (warning,) = caplog.messages
    assert "6 partitions" in warning
    assert "set: maxRecordsPerPartition=2" in warning


WIDE = Layout(commit_log_bytes=16 << 20)


def test_a_read_of_more_than_100000_partitions_says_a_value_that_makes_fewer(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partitions, "_MANY_PARTITIONS", 4)
    monkeypatch.setattr(partitions, "_VERY_MANY_PARTITIONS", 11)
    place = mqlog.open(store([Message(body=bytes(1 << 20)) for _ in range(12)], WIDE).root)

    assert len(place.scan(max_bytes_per_partition="1m").splits()) == 12
    (warning,) = caplog.messages
    assert warning.endswith("maxBytesPerPartition=3m makes about 4")
    assert len(place.scan(max_bytes_per_partition="4m").splits()) <= 4


ranges = st.fixed_dictionaries(
    {},
    optional={
        "starting_offsets": st.integers(1, 200).map(lambda n: f"-{n}"),
        "ending_offsets": st.integers(0, 119).map(lambda n: {"GTopic": dict.fromkeys(range(4), n)}),
        "tags": st.sampled_from(["*", "GA", ["GA", "GB"], "none"]),
        "batch_rows": st.integers(1, 500),
        "verify_crc": st.booleans(),
        "max_records_per_partition": st.integers(1, 100),
    },
)


@given(
    columns=st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True), options=ranges
)
def test_columns_ranges_tags_and_formats_agree_with_a_filter_in_python(
    golden_550: Path, columns: list[str], options: dict[str, Any]
) -> None:
    if "starting_offsets" in options and "ending_offsets" in options:
        del options["ending_offsets"]  # -N counts from the end that is held.
    place = mqlog.open(golden_550)
    whole = place.scan("GTopic", columns="full").to_table().to_pylist()
    last = int(str(options.get("starting_offsets", -(10**6)))) * -1
    highs = {q: max(r["queueOffset"] for r in whole if r["queueId"] == q) + 1 for q in range(4)}
    ends = options.get("ending_offsets", {"GTopic": highs})["GTopic"]
    tags = {"GA": {"GA"}, "none": {"none"}}.get(str(options.get("tags")), {"GA", "GB"})
    keep_all = options.get("tags", "*") == "*"
    wanted = [
        tuple(row[name] for name in columns)
        for row in whole
        if max(0, highs[row["queueId"]] - last) <= row["queueOffset"] < ends[row["queueId"]]
        and (keep_all or row["tags"] in tags)
    ]
    scan = place.scan("GTopic", columns=columns, **options)

    def plain(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(tuple(row[name] for name in columns)) for row in rows)

    found = {
        "a table": plain(scan.to_table().to_pylist()),
        "splits": plain([r for s in scan.splits(3) for r in s.to_table().to_pylist()]),
        "select": plain(place.scan("GTopic", **options).select(columns).to_table().to_pylist()),
        "DuckDB": plain(duckdb.sql("FROM scan").to_arrow_table().cast(scan.schema).to_pylist()),
    }

    assert found == dict.fromkeys(found, sorted(map(repr, wanted)))
    assert scan.count() == len(wanted)
    assert scan.to_polars_lazy().select(pl.len()).collect().item() == len(wanted)

"""What `import mqlog` gives of any kind of place: the same rows to every engine."""

import pickle
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import duckdb
import polars as pl
import pytest

import mqlog
from mqlog.keywords import keyword
from places.kinds import AT_REST, TOPIC, Place, Running
from places.test_contract import Rows, expected, shown

COLUMNS = ["queueId", "queueOffset", "body", "tags", "storeTimestamp"]


def opened(place: Place) -> mqlog.Place:
    options: dict[str, Any] = {}
    for name, text in place.options.items():
        if name.startswith("fs."):
            options.setdefault("fs", {})[name.removeprefix("fs.")] = text
        elif name != "path":
            options[keyword(name)] = text
    return mqlog.open(place.options["path"], **options)


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"]))


def read_split(data: bytes) -> Rows:
    split: mqlog.Split = pickle.loads(data)
    rows: Rows = split.to_reader().read_all().to_pylist()
    return rows


def of_engines(scan: mqlog.Scan) -> Mapping[str, Rows]:
    columns = ", ".join(scan.schema.names)
    return {
        "pyarrow": scan.to_table().to_pylist(),
        "a reader": [row for batch in scan.to_reader() for row in batch.to_pylist()],
        "a stream": mqlog_stream(scan),
        "pandas": scan.to_pandas().to_dict("records"),
        "Polars": scan.to_polars().to_dicts(),
        "lazy Polars": scan.to_polars_lazy().collect().to_dicts(),
        "a dataset of Polars": pl.scan_pyarrow_dataset(scan).collect().to_dicts(),
        "DuckDB": duckdb.sql(f"SELECT {columns} FROM scan").to_arrow_table().to_pylist(),
        "a pickle": pickle.loads(pickle.dumps(scan)).to_table().to_pylist(),
        "splits": [row for split in scan.splits(3) for row in read_split(pickle.dumps(split))],
    }


def mqlog_stream(scan: mqlog.Scan) -> Rows:
    frame: Rows = pl.DataFrame(scan).to_dicts()
    return frame


def test_every_engine_gives_the_messages_that_are_held(place: Place) -> None:
    scan = opened(place).scan(TOPIC, columns=COLUMNS)

    found = of_engines(scan)

    wanted = expected(place.held)
    assert {name: shown(in_order(rows)) for name, rows in found.items()} == dict.fromkeys(
        found, wanted
    )
    assert scan.count() == len(wanted)


def test_every_engine_sums_and_counts_as_python_does(place: Place) -> None:
    scan = opened(place).scan(TOPIC)
    rows = scan.select(COLUMNS).to_table().to_pylist()
    wanted = [
        (tag, sum(row["tags"] == tag for row in rows), sum(r["queueOffset"] for r in of))
        for tag in ("A", "B")
        for of in [[row for row in rows if row["tags"] == tag and row["queueId"] == 1]]
    ]

    by_duckdb = duckdb.sql(
        "SELECT tags, count(*), sum(queueOffset) FILTER (queueId = 1)::BIGINT "
        "FROM scan GROUP BY tags ORDER BY tags"
    ).fetchall()
    by_polars = (
        scan.to_polars_lazy()
        .group_by("tags")
        .agg(pl.len(), pl.col("queueOffset").filter(pl.col("queueId") == 1).sum())
        .sort("tags")
        .collect()
        .rows()
    )
    by_pandas = scan.to_pandas().groupby("tags")
    ones = scan.to_pandas().query("queueId == 1").groupby("tags")["queueOffset"].sum()

    assert by_duckdb == wanted
    assert by_polars == wanted
    assert [(t, len(f), int(ones[t])) for t, f in by_pandas] == wanted


def test_a_filter_of_an_engine_gives_the_rows_that_pass_it(place: Place) -> None:
    scan = opened(place).scan(TOPIC, columns=COLUMNS)
    rows = scan.to_table().to_pylist()
    times = sorted(row["storeTimestamp"] for row in rows)
    offset = sorted(row["queueOffset"] for row in rows)[len(rows) // 2]
    low, high = times[len(times) // 4], times[-len(times) // 4]
    wanted = [
        row
        for row in rows
        if (row["queueId"], row["tags"]) == (1, "B")
        and row["queueOffset"] >= offset
        and low <= row["storeTimestamp"] < high
    ]

    by_duckdb = duckdb.from_arrow(scan).filter(
        f"queueId = 1 AND tags = 'B' AND queueOffset >= {offset} "
        f"AND storeTimestamp >= '{low}' AND storeTimestamp < '{high}'"
    )
    by_polars = scan.to_polars_lazy().filter(
        (pl.col("queueId") == 1)
        & (pl.col("tags") == "B")
        & (pl.col("queueOffset") >= offset)
        & pl.col("storeTimestamp").is_between(low, high, closed="left")
    )

    assert len(wanted) in range(1, len(rows))
    assert shown(in_order(by_duckdb.to_arrow_table().to_pylist())) == shown(in_order(wanted))
    assert shown(in_order(by_polars.collect().to_dicts())) == shown(in_order(wanted))


def test_a_count_with_a_filter_reads_the_messages(place: Place) -> None:
    scan = opened(place).scan(TOPIC, tags=["A", "C"])

    assert scan.count() == scan.to_table().num_rows
    assert scan.count() == sum(m.properties_map["TAGS"] == "A" for m in place.held)


def test_splits_are_read_in_other_processes(place: Place) -> None:
    if not isinstance(place, Running) and place.options.get("queues") == "log":
        pytest.skip("as any other directory")
    splits = opened(place).scan(TOPIC, columns=COLUMNS).splits(4)

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = [row for rows in pool.map(read_split, map(pickle.dumps, splits)) for row in rows]

    assert len(splits) >= 4
    assert shown(in_order(rows)) == expected(place.held)


def test_following_gives_each_message_once_and_goes_on_from_a_position(
    place: Place, request: pytest.FixtureRequest
) -> None:
    shop = opened(place)
    start = {"starting_offsets": "earliest", "columns": COLUMNS, "max_offsets_per_trigger": 20}
    if request.node.callspec.params["place"] in AT_REST:
        with pytest.raises(mqlog.MqlogError):
            next(shop.follow(TOPIC, **start))
        return

    rows: Rows = []
    position = None
    for _ in range(len(place.held)):  # Each time with the position alone, as after a crash.
        found = next(shop.follow(TOPIC, position=position, timeout=0, **start), None)
        if found is None:
            break
        batch, position = found
        rows += batch.to_pylist()

    assert shown(in_order(rows)) == expected(place.held)


def test_bodies_are_typed_in_every_kind_of_place(place: Place) -> None:
    texts = {row["queueOffset"] + row["queueId"] * 1_000: row["body"].decode()
             for row in opened(place).scan(TOPIC).to_table().to_pylist()}  # fmt: skip
    assert len(texts) > 90
    for body, schema in (("text", None), ("json", "id INT")):
        scan = opened(place).scan(TOPIC, body=body, body_schema=schema)
        rows = scan.to_table().to_pylist()
        assert len(rows) == len(texts)
        for row in rows:
            text = texts[row["queueOffset"] + row["queueId"] * 1_000]
            if body == "text":
                assert (row["body"], row["_corruptBody"]) == (text, None)
            else:
                assert (row["body"], row["_corruptBody"]) == (None, text.encode())
                assert row["_bodyError"].startswith(("NOT_AN_OBJECT", "MALFORMED_JSON"))

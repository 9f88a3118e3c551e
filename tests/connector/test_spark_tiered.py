"""Tiered storage in Spark: what the client of its broker got, by queue, offset, time and key."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support import goldens

pytestmark = pytest.mark.spark

VERSION = "5.5.1-tiered"
TOPIC = "GtiTopic"
EXPECTED = [row for row in goldens.expected(VERSION) if row["topic"] == TOPIC]
Key = tuple[int, int, str]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The store, and the folder of its tier."""
    folder = tmp_path_factory.mktemp("tiered")
    root = goldens.unpack(VERSION, folder)
    return str(root), str(goldens.unpack(VERSION, folder, "tiered").parent / "tiered")


def key(row: Any) -> Key:
    return row["queueId"], row["queueOffset"], row["msgId"]


@pytest.fixture
def read(spark: SparkSession, places: tuple[str, str]) -> Any:
    def rows(**options: str) -> list[Key]:
        reader = spark.read.format("mqlog").options(storePathTiered=places[1], columns="full")
        options = options or {"subscribe": TOPIC}
        return sorted(map(key, reader.options(**options).load(places[0]).collect()))

    return rows


def test_spark_reads_by_queue_offset_time_and_key_what_the_client_got(read: Any) -> None:
    everything = sorted(map(key, EXPECTED))
    assert read(subscribe=TOPIC, minPartitions="5") == everything
    assert read(assign=json.dumps({TOPIC: [2]})) == [one for one in everything if one[0] == 2]
    ranges = {"startingOffsets": 70, "endingOffsets": 80}  # The local log begins at 75.
    offsets = {name: json.dumps({TOPIC: {"0": value}}) for name, value in ranges.items()}
    assert read(assign=json.dumps({TOPIC: [0]}), **offsets) == [
        one for one in everything if one[0] == 0 and 70 <= one[1] < 80
    ]
    moments = sorted({row["store"] for row in EXPECTED})
    since = moments[len(moments) // 5]
    assert read(subscribe=TOPIC, startingTimestamp=str(since)) == sorted(
        key(row) for row in EXPECTED if row["store"] >= since
    )
    for word in ("key27", "late3"):
        has = [row for row in EXPECTED if word in row["properties"].get("KEYS", "").split()]
        assert has
        assert read(subscribe=TOPIC, keys=word) == sorted(map(key, has))


def test_a_filter_of_spark_is_pushed_to_the_tier(
    spark: SparkSession, places: tuple[str, str]
) -> None:
    root, tier = places
    messages = spark.read.format("mqlog").options(storePathTiered=tier, subscribe=TOPIC).load(root)
    rows = messages.where("queueId = 1 and queueOffset < 20 and tags = 'GtiA'").collect()
    assert sorted(row["queueOffset"] for row in rows) == sorted(
        row["queueOffset"]
        for row in EXPECTED
        if row["queueId"] == 1
        and row["queueOffset"] < 20
        and row["properties"].get("TAGS") == "GtiA"
    )
    assert rows


def test_tables_of_spark_count_what_the_tier_has(
    spark: SparkSession, places: tuple[str, str]
) -> None:
    root, tier = places
    for options in ({}, {"storePathTiered": tier}):
        rows = spark.read.format("mqlog").options(**options).load(f"{root}#backlog").collect()
        by_queue = {(r["group"], r["topic"], r["queueId"]): r["lag"] for r in rows}
        printed = goldens.progress(VERSION)
        assert printed
        assert {name: line.diff for name, line in printed.items()}.items() <= by_queue.items()

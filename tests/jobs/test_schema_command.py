"""``mqlog schema`` and ``Place.schema``: of the whole topic, as text, JSON and DDL."""

import json
from pathlib import Path

import pytest

import mqlog
from jobs.command import Run
from mqstore.errors import InvalidOptionError
from support import oracle
from support.oracle import Message
from support.stores import MakeStore

LATE = 1_080
COUNT = 1_200


@pytest.fixture
def root(store: MakeStore) -> Path:
    made = [
        Message(
            topic="T",
            queue_id=number % 2,
            body=json.dumps({"id": number, **({"late": 1} if number > LATE else {})}).encode(),
            properties=oracle.join_properties({"TAGS": "A" if number % 4 else "B"}),
            store_timestamp_ms=1_700_000_000_000 + 1_000 * number,
        )
        for number in range(COUNT)
    ]
    return store([*made, Message(topic="TEXT", body=b"plain")]).root


def test_a_sample_is_of_the_whole_topic(root: Path) -> None:
    report = mqlog.open(root).schema("T", sample=120)
    assert 100 < report.sampled < 140
    assert report.ddl == "id BIGINT, late BIGINT"
    late = next(field for field in report.fields if field.name == "late")
    assert late.since is not None
    assert late.since >= 1_700_000_000_000 + 1_000 * LATE
    assert report.json_schema["properties"]["id"] == {"type": ["integer", "null"]}


def test_options_of_a_scan_choose_the_sample(root: Path) -> None:
    report = mqlog.open(root).schema("T", tags="B", sample=COUNT)
    assert report.sampled == COUNT // 4


def test_the_command_prints_ddl_fields_and_doubt(root: Path, run: Run) -> None:
    done = run("schema", root, "T")
    assert "id BIGINT, late BIGINT" in done.out
    assert "-- late: first seen at 2023-11-14T" in done.out
    assert run("schema", root, "T", "--ddl").out == "id BIGINT, late BIGINT\n"
    (row,) = run("schema", root, "T", "--json", "--sample", "100").rows
    assert row["ddl"] == "id BIGINT, late BIGINT"
    assert row["fit"] == row["sampled"]


def test_a_schema_that_never_fits_is_told_loudly(root: Path, run: Run) -> None:
    done = run("schema", root, "T", "-o", "bodySchema=a INT, b INT")
    assert "0 of 2 fields ever present" in done.out


def test_a_topic_without_objects_has_no_schema(root: Path, run: Run) -> None:
    assert "none of 1 bodies is an object of JSON" in run("schema", root, "TEXT").out
    done = run("schema", root, "TEXT", "--ddl")
    assert done.code == 2
    assert "none of 1 bodies is an object" in done.err


def test_wrong_arguments_are_refused(root: Path, run: Run) -> None:
    assert "MQLOG_UNKNOWN_TOPIC" in run("schema", root, "NOPE").err
    assert "choose either --ddl or --json" in run("schema", root, "T", "--ddl", "--json").err
    assert "must be one of json, avro, protobuf" in run("schema", root, "T", "-o", "body=text").err
    with pytest.raises(InvalidOptionError, match="must be a number of bodies"):
        mqlog.open(root).schema("T", sample=0)

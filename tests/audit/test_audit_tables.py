"""The tables ``audit`` and ``digests``: what the audit finds, as rows, whatever the tasks are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import mqlog
from audit.test_audit import BY_ID, BY_OFFSET, LAYOUT, audited, message, with_property
from mqstore.audit.found import Difference
from mqstore.audit.rows import AuditRule
from mqstore.copy.take_point import take_point
from mqstore.errors import InvalidOptionError, UnknownTopicError
from mqstore.request.read import read_options
from mqstore.tables import audits
from snapshot_copy.pointed import backing
from support import expectations, parts
from support.oracle import Message
from support.stores import lay_out

SENT = [message(n) for n in range(60)]


def changed() -> list[Message]:
    """Messages of which one is altered, one is gone, one is new and one is there twice."""
    own = list(SENT)
    own[7] = replace(own[7], body=b"other")
    own[30] = with_property(own[30], KEYS="other")
    return [*own[:-1], own[4], with_property(own[5], UNIQ_KEY="E" * 32)]


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    system = Message(topic="SCHEDULE_TOPIC_XXXX")
    first = lay_out(tmp_path / "a" / "store", SENT, LAYOUT).root
    return first, lay_out(tmp_path / "b" / "store", [*changed(), system], LAYOUT).root


def of_users(found: Sequence[Difference]) -> list[Difference]:
    """Leave out those in RocketMQ's own topic."""
    places = [one.first or one.second for one in found]
    return [f for f, at in zip(found, places, strict=True) if at is not None and at.topic in "AB"]


def expected(found: Sequence[Difference]) -> list[dict[str, Any]]:
    rows = []
    for one in found:
        row: dict[str, Any] = {"difference": one.kind, "messageId": one.message_id}
        for name, place in (("first", one.first), ("second", one.second)):
            row[f"{name}Broker"] = place and place.broker
            row[f"{name}Topic"] = place and place.topic
            row[f"{name}QueueId"] = place and place.queue_id
            row[f"{name}QueueOffset"] = place and place.queue_offset
            row[f"{name}StoreTimestamp"] = place and place.stored_ms * 1000
        row["fields"] = ", ".join(one.fields)
        rows.append({**row, "brokerName": row["firstBroker"] or row["secondBroker"]})
    return rows


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
@pytest.mark.parametrize("of_task", [1, 15, 1_000_000])
def test_the_rows_are_what_the_audit_finds_however_many_tasks_there_are(
    roots: tuple[Path, Path], rule: AuditRule, of_task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "MESSAGES_OF_A_TASK", of_task)
    found = of_users(audited(*roots, rule))
    work = parts.planned(roots[0], "audit", against=str(roots[1]), identity=rule.by)

    assert len(work) == (6 if (rule.by, of_task) == ("offset", 1) else len(work))
    assert parts.rows("audit", [one.part for one in work]) == expected(found)
    assert {one.kind for one in found} >= {"altered", "extra"}
    assert ("doubled" in {one.kind for one in found}) == (rule.by == "id")


def test_without_a_place_to_compare_with_there_is_no_audit(roots: tuple[Path, Path]) -> None:
    place = mqlog.open(roots[0])
    assert "audit" not in place.tables()
    with pytest.raises(InvalidOptionError, match="needs the place to compare with"):
        place.table("audit").to_table()
    with pytest.raises(InvalidOptionError, match="is for table=audit, not topics"):
        place.table("topics", against=roots[1])


def test_the_other_place_is_of_any_kind_and_the_same_topics_of_it_are_compared(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    take_point(roots[1], backing(tmp_path / "kept"))
    place = mqlog.open(roots[0])
    by_store = place.table("audit", against=roots[1]).to_table()
    by_point = place.table("audit", against=f"{tmp_path / 'kept'}@latest").to_table()
    assert by_point.drop_columns("brokerName") == by_store.drop_columns("brokerName")
    of_a = place.table("audit", against=roots[1], subscribe=["A"]).to_table().to_pylist()
    assert {row["firstTopic"] or row["secondTopic"] for row in of_a} == {"A"}
    with_system = place.table("audit", against=roots[1], include_system_topics=True).to_table()
    assert with_system.num_rows == by_store.num_rows + 1
    with pytest.raises(UnknownTopicError, match="no topic C"):
        place.table("audit", against=roots[1], subscribe=["C"]).to_table()
    body = place.table("audit", against=roots[1], ignored_properties="KEYS").to_table()
    assert body.num_rows == by_store.num_rows - 1


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_the_other_place_is_a_table_of_a_lake(
    roots: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    rows = mqlog.open(roots[1]).scan(columns="full", include_system_topics=True).to_table()
    table = tmp_path / "lake"
    table.mkdir()
    if kind == "delta":
        write_deltalake(table, rows, partition_by=["topic"])
    else:
        pq.write_table(rows, table / "one.parquet")
    for rule in (BY_OFFSET, BY_ID):
        options = {"against": f"{kind}:{table}", "identity": rule.by}
        found = audited(*roots, rule)

        def read(options: dict[str, str] = options, **chosen: str) -> list[dict[str, Any]]:
            work = parts.planned(roots[0], "audit", **options, **chosen)
            return parts.rows("audit", [one.part for one in work])

        assert sorted(map(str, read())) == sorted(map(str, expected(of_users(found))))
        whole = read(includeSystemTopics="true")
        assert sorted(map(str, whole)) == sorted(map(str, expected(found)))
        of_a = [row for row in expected(found) if "A" in (row["firstTopic"], row["secondTopic"])]
        assert 0 < len(of_a) < len(found)
        for chosen in ({"subscribe": "A"}, {"subscribePattern": "A|C"}):
            assert sorted(map(str, read(**chosen))) == sorted(map(str, of_a))


def test_what_a_table_of_a_lake_has_not_is_refused(roots: tuple[Path, Path]) -> None:
    place = mqlog.open(roots[0])
    for options, told in (
        ({"unconsumed": "CG"}, "has no offsets of groups"),
        ({"offset_map": "parquet:/x"}, "is for two places of brokers"),
        ({"assign": {"A": [0]}}, "has whole topics: choose them by subscribe"),
    ):
        with pytest.raises(InvalidOptionError, match=told):
            place.table("audit", against="delta:/lake", **options)
    with pytest.raises(InvalidOptionError, match="write iceberg:DIR"):
        place.table("audit", against="iceberg:")
    with pytest.raises(InvalidOptionError, match="'/no/lake': is no directory"):
        place.table("audit", against="iceberg:/no/lake").to_table()


def test_options_of_a_connection_are_those_of_the_place_that_has_one() -> None:
    texts = {"table": "audit", "against": "rocketmq://h:9876", "accesskey": "a", "secretkey": "b"}
    found = read_options(("/data/store",), texts)
    assert found.other is not None
    assert (len(found.places.clusters), len(found.other.clusters)) == (0, 1)
    texts = {"table": "audit", "against": "/data/store", "fs.region": "eu-west-1"}
    found = read_options(("s3://b/store",), texts)
    assert found.other is not None
    assert found.other.paths == ("/data/store",)
    with pytest.raises(InvalidOptionError, match=r"accessKey=.*is for clusters"):
        read_options(("/a",), {"table": "audit", "against": "/b", "accesskey": "a"})
    with pytest.raises(InvalidOptionError, match="must be the cluster alone"):
        read_options(("/a",), {"table": "audit", "against": "rocketmq://h:9876/T"})


def test_digests_differ_where_messages_do_and_nowhere_else(roots: tuple[Path, Path]) -> None:
    first, second = (parts.planned(root, "digests") for root in roots)
    rows = [parts.rows("digests", [one.part for one in work]) for work in (first, second)]
    assert sum(row["messages"] for row in rows[0]) == len(SENT)
    assert sum(row["bodyBytes"] for row in rows[0]) == sum(len(one.body) for one in SENT)
    width = 600_000_000
    assert all(row["intervalStart"] % width == 0 for row in rows[0])

    def named(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["topic"], row["queueId"], row["intervalStart"]

    here, there = ({named(row): row["digest"] for row in some} for some in rows)
    unequal = {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)}
    both = [(one.first, one.second) for one in of_users(audited(*roots, BY_OFFSET))]
    held = [place for places in both for place in places if place is not None]
    assert unequal == {
        (place.topic, place.queue_id, place.stored_ms * 1000 // width * width) for place in held
    }
    assert expectations.rows(mqlog.open(roots[0]).table("digests").to_table()) == rows[0]

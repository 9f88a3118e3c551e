"""A schema of a sample: types, shares, drift, shapes by tag, changes of a database."""

import json
from typing import Any

import pytest

from mqstore.bodies.infer import BodyReport, SampledBody
from mqstore.bodies.judged import report_of
from mqstore.bodies.schema_text import BodySchema
from mqstore.bodies.settings import BodyOptions

JSON = BodyOptions(body="json")


def report(values: list[Any], ddl: str | None = None, tags: str = "A") -> BodyReport:
    bodies = [
        SampledBody(
            value if isinstance(value, bytes) else json.dumps(value).encode(),
            tags[number % len(tags)],
            1_700_000_000_000 + 1_000 * number,
        )
        for number, value in enumerate(values)
    ]
    options = JSON if ddl is None else BodyOptions(body="json", body_schema=BodySchema(ddl, ddl))
    return report_of(options, bodies)


@pytest.mark.parametrize(
    ("values", "ddl", "told"),
    [
        ([{"a": 1}, {"a": 2.5}], "a DOUBLE", None),
        ([{"a": 1}, {"a": 2**63}], "a DECIMAL(38,0)", "above 2^63"),
        ([{"a": 10**40}], "a STRING", "mixed"),
        ([{"a": None}, {"a": None}], "a STRING", "only null in 2 bodies"),
        ([{"a": []}, {"a": None}], "a ARRAY<STRING>", "only empty lists"),
        ([{"a": {}}], "a STRING", "only empty objects"),
        ([{"a": 1}, {"a": "x"}], "a STRING", "mixed (1 bigint, 1 string)"),
        ([{"a": {"b": 1}}, {"a": [1]}], "a STRING", "mixed"),
        ([{"a": "2024-02-29"}], "a DATE", None),
        ([{"a": "0000-00-00"}], "a STRING", None),
        ([{"a": "2023-02-29"}, {"a": "2024-01-01"}], "a STRING", None),
        ([{"a": "2024-01-01"}, {"a": "2024-01-01T00:00:00Z"}], "a TIMESTAMP", None),
        ([{"a": "2024-01-01 00:00:00"}], "a TIMESTAMP", "without a zone"),
        ([{"a": True}, {"a": None}], "a BOOLEAN", None),
        ([{"a": [{"b": 1}, {"c": "x"}, None]}], "a ARRAY<STRUCT<b: BIGINT, c: STRING>>", None),
        ([{"a": 1, "A": 2}], "a BIGINT, A BIGINT", "differs by its case only"),
        ([{"a": 1_700_000_000_123 + n} for n in range(12)], "a BIGINT", "bodyTimestampUnit=ms"),
        ([b'{"a": 0.1234567890123456789}'], "a DOUBLE", "more digits than a DOUBLE keeps"),
        ([{"x y": 1}], "`x y` BIGINT", None),
        ([{"a": 1, "r": 1}, *[{"a": 1}] * 150], "a BIGINT, r BIGINT", "in 1 of 151 bodies"),
        (
            [{"m": {f"k{n}-{i}": n for i in range(3)}} for n in range(100)],
            "m MAP<STRING, BIGINT>",
            "300 names, each rare: MAP",
        ),
    ],
)
def test_types_hold_every_value_and_doubt_is_said(
    values: list[Any], ddl: str, told: str | None
) -> None:
    found = report(values)
    assert found.ddl == ddl
    assert (found.fit, found.bad) == (len(values), {})
    assert told is None or any(told in note for note in found.unsure), found.unsure


def test_bodies_that_are_no_objects_are_counted_and_hide_nothing() -> None:
    found = report([{"a": 1}, b"", b"null", b"{", b"\xff", [1], {"a": 2}])
    assert (found.ddl, found.sampled, found.empty, found.fit) == ("a BIGINT", 7, 1, 3)
    assert found.bad == {"NOT_AN_OBJECT": 2, "MALFORMED_JSON": 1, "INVALID_ENCODING": 1}


def test_what_drifts_is_said_with_its_time() -> None:
    values: list[Any] = [{"a": 1, "old": 1} for _ in range(50)]
    values += [{"a": "x", "new": 1} for _ in range(50)]
    found = {field.name: field for field in report(values).fields}
    assert found["new"].since == 1_700_000_050_000
    assert found["old"].until == 1_700_000_049_000
    assert any("string since 2023-11-14T22:14:10Z" in remark for remark in found["a"].remarks)
    assert found["old"].share == 0.5


def test_several_shapes_by_tag_are_told() -> None:
    found = report([{"id": 1, "x": 1, "y": 1}, {"id": 1, "p": 2, "q": 3}] * 10, tags="AB")
    assert {(s.tag, s.bodies, s.own_fields) for s in found.shapes} == {
        ("A", 10, ("x", "y")),
        ("B", 10, ("p", "q")),
    }
    assert report([{"id": 1, "x": 1}, {"id": 2, "x": 2}] * 10, tags="AB").shapes == ()


CANAL = {"data": [{"id": "1"}], "database": "shop", "table": "orders", "type": "INSERT",
         "isDdl": False, "mysqlType": {"id": "int"}}  # fmt: skip
DEBEZIUM = {"before": None, "after": {"id": 1}, "op": "c", "source": {"db": "shop", "table": "t"}}


@pytest.mark.parametrize(
    ("value", "name", "table"),
    [
        (CANAL, "Canal (flat JSON)", "shop.orders"),
        (DEBEZIUM, "Debezium (JSON)", "shop.t"),
        ({"schema": {}, "payload": DEBEZIUM}, "Debezium (JSON)", "shop.t"),
        ({"id": 1, "__op": "c", "__table": "t"}, "Debezium (flattened JSON)", "t"),
        ({"database": "d", "table": "t", "type": "insert", "ts": 1, "data": {"a": 1}},
         "Maxwell (JSON)", "d.t"),
        ({"prevStruct": {}, "recordType": "UPDATE", "allMetaData": {"table_name": "t"}},
         "OceanBase (JSON)", "t"),
        (b"\x10\x01\x18\x07\x2a\x55", "Canal (protobuf)", "?"),
    ],
)  # fmt: skip
def test_changes_of_a_database_are_recognised(value: Any, name: str, table: str) -> None:
    assert report([value]).changes == {name: {table: 1}}


def test_a_plain_order_is_no_change() -> None:
    assert report([{"table": 4, "type": "dinner", "op": "c"}]).changes == {}


def test_a_given_schema_is_checked() -> None:
    values: list[Any] = [{"a": 1, "b": "x"}, {"a": "no", "b": "y"}]
    found = report(values, "a BIGINT, c STRING")
    assert (found.fit, found.bad) == (1, {"CANNOT_PARSE_VALUE": 1})
    assert [(f.name, f.share) for f in found.fields] == [("a", 0.5), ("c", 0.0)]
    assert found.unsure == ("never present: c", "not in the schema: b")
    other = report(values, "p INT, q INT")
    assert other.unsure[0] == ("0 of 2 fields ever present: these bodies are of another schema")

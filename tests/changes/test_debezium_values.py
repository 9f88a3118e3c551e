"""Values of Debezium without schemas, read by the types of a database."""

import json
from typing import Any

import pytest

from mqstore.changes.change import Change, ChangeMessage
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.table_schemas import table_schemas


def inserted(kind: str, value: Any) -> Change:
    """The insert of a row of one column, ``v``, of a type."""
    body = {"op": "c", "source": {"db": "d", "table": "t"}, "after": {"v": value}}
    schemas = table_schemas("changesSchema", f"v {kind}")
    message = ChangeMessage(json.dumps(body).encode(), None, {})
    [change] = decoded(CHANGE_FORMATS["debezium"], message, DecodeContext(schemas))
    assert change.row is not None
    return change


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("decimal(18,4)", "HWEtAvw=", "12618439.1420"),
        ("decimal(18,4)", "-0.5000", "-0.5000"),
        ("decimal(18,4)", 0.5, "0.5"),
        ("decimal(18,2)", "AQ==", "0.01"),
        ("decimal(4,0)", "1234", "1234"),  # As base64 it has more digits than the column.
        ("decimal(10,0)", "-1234", "-1234"),
        ("decimal(10,0)", "12345", "12345"),
        ("decimal(10,0)", "/av0HAE=", "-9999999999"),
        ("numeric", {"scale": 6, "value": "B1vNFQ=="}, "123.456789"),
        ("datetime", 1704164645000, "2024-01-02T03:04:05"),
        ("datetime(3)", 1704164645678, "2024-01-02T03:04:05.678"),
        ("datetime(6)", -1, "1969-12-31T23:59:59.999999"),
        ("timestamp without time zone", 1704164645123456, "2024-01-02T03:04:05.123456"),
        ("timestamp(6) without time zone", 1704164645123456, "2024-01-02T03:04:05.123456"),
        ("timestamp(3) without time zone", 1704164645123, "2024-01-02T03:04:05.123"),
        ("timestamp(6)", "2024-01-01T19:04:05.000000Z", "2024-01-01T19:04:05Z"),
        ("time", -3020399000000, "-838:59:59"),
        ("time(3)", 3600500000, "01:00:00.5"),
        ("time(3) without time zone", 3600500, "01:00:00.5"),
        ("time without time zone", 86399999999, "23:59:59.999999"),
        ("date", -1, "1969-12-31"),
        ("bigint unsigned", -1, "18446744073709551615"),
        ("tinyint(1)", True, "1"),
        ("bit(1)", False, "0"),
        ("bit(10)", "AQI=", "513"),
        ("binary(3)", "AP8=", "AP8="),
        ("double", 4.9e-324, "5e-324"),
        ("json", {"a": [1, 1.10]}, '{"a": [1, 1.1]}'),
    ],
)
def test_a_value_has_the_text_of_its_type(kind: str, value: Any, text: str) -> None:
    change = inserted(kind, value)
    assert change.row == {"v": text}
    assert change.problems == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", 1704164645123),
        ("timestamp_ntz", 1704164645123),
        ("decimal(18,4)", "no base64!"),
        ("numeric", "B1vNFQ=="),
        ("bigint", "7"),
        ("date", 10**9),
        ("datetime(3)", 10**18),
        ("binary(3)", "?"),
        ("bigint unsigned", "//////////8="),
    ],
)
def test_a_value_that_its_type_does_not_explain_stays_and_is_a_problem(
    kind: str, value: Any
) -> None:
    change = inserted(kind, value)
    assert change.row == {"v": str(value)}
    assert [problem.column for problem in change.problems] == ["v"]


def test_types_of_a_message_and_of_the_database_go_together() -> None:
    precise = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
    fields = [
        {"field": "v", "type": "bytes", **precise},
        {"field": "w", "type": "int64"},
        {"field": "b", "type": "boolean"},
        {"field": "n", "type": "string"},
    ]
    body = {
        "schema": {"fields": [{"field": "after", "fields": fields}]},
        "payload": {
            "op": "c",
            "source": {"db": "d", "table": "t"},
            "after": {"v": "AP//////////", "w": -1, "b": True, "n": "1234"},
        },
    }
    schemas = table_schemas(
        "changesSchema", "v BIGINT UNSIGNED, w BIGINT UNSIGNED, b BIT(1), n DECIMAL(10,0)"
    )
    message = ChangeMessage(json.dumps(body).encode(), None, {})
    [change] = decoded(CHANGE_FORMATS["debezium"], message, DecodeContext(schemas))
    longest = "18446744073709551615"
    assert change.row == {"v": longest, "w": longest, "b": "1", "n": "1234"}
    assert change.problems == []


def test_digits_that_may_be_base64_are_unavailable_and_never_another_number() -> None:
    change = inserted("decimal(10,0)", "1234")
    assert (change.row, change.unavailable) == ({}, ("v",))
    assert "another one with precise" in change.problems[0].reason

"""What a person types, and what becomes of it."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(("text", "expected"), [("true", True), (" FALSE ", False)])
def test_a_boolean_is_true_or_false(text: str, expected: bool) -> None:
    assert grammar.boolean("verifyCrc", text) is expected


@pytest.mark.parametrize("text", ["yes", "1", "", "truee"])
def test_any_other_boolean_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"option verifyCrc=.*must be true or false"):
        grammar.boolean("verifyCrc", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("65536", 65536), ("64k", 65536), ("16M", 2**24), ("1g", 2**30), ("1 gb", 2**30)],
)
def test_a_size_is_bytes_or_powers_of_1024(text: str, expected: int) -> None:
    assert grammar.size("batchBytes", text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "1.5m", "m", "1x", "9" * 30, "9999999999t"])
def test_a_size_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="must be a size such as 65536, 64k, 16m or 1g"):
        grammar.size("batchBytes", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1500", 1500), ("500ms", 500), ("10s", 10_000), ("15m", 900_000), ("2h", 7_200_000)],
)
def test_a_duration_is_milliseconds(text: str, expected: int) -> None:
    assert grammar.duration("lockTimeout", text) == expected


@pytest.mark.parametrize("text", ["-1s", "1w", "1.5s", "", "9" * 19 + "d"])
def test_a_duration_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="option lockTimeout="):
        grammar.duration("lockTimeout", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-15T06:13:20+08:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.0001Z", 1_700_000_000_001),
        ("1969-12-31T23:59:59Z", 0),
        ("-10m", NOW_MS - 600_000),
        ("-500ms", NOW_MS - 500),
    ],
)
def test_a_timestamp_is_epoch_ms_iso_with_zone_or_before_now(text: str, expected: int) -> None:
    assert grammar.timestamp("startingTimestamp", text, now_ms=NOW_MS) == expected


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20", "2023-11-14", "2023-11-14 22:13"])
def test_a_time_without_zone_is_never_the_zone_of_the_machine(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="has no time zone: write") as caught:
        grammar.timestamp("startingTimestamp", text, now_ms=NOW_MS)
    advised = re.findall(r"write (\S+) or (\S+)$", str(caught.value))[0]
    first, second = (grammar.timestamp("startingTimestamp", t, now_ms=NOW_MS) for t in advised)
    assert first - second == 8 * 3_600_000


@pytest.mark.parametrize("text", ["yesterday", "-10", "-10w", "", "9" * 19 + "0", "10m"])
def test_a_timestamp_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="option startingTimestamp="):
        grammar.timestamp("startingTimestamp", text, now_ms=NOW_MS)


def test_a_time_before_now_without_its_sign_is_told_it() -> None:
    with pytest.raises(InvalidOptionError, match=r"before now is -1d$"):
        grammar.timestamp("startingTimestamp", "1d", now_ms=0)


@pytest.mark.parametrize("text", ["a, b,a", '["a","b"]'])
def test_names_come_as_a_comma_list_or_as_json(text: str) -> None:
    assert grammar.names("keys", text) == ("a", "b")


@pytest.mark.parametrize("text", ["", "a,,b", "[]", "[1]", '["a"', '[""]'])
def test_names_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="option keys="):
        grammar.names("keys", text)


def test_assigned_queues_are_those_of_kafka() -> None:
    assert grammar.queues("assign", '{"T":[1,0,1],"U":[3]}') == {"T": (1, 0), "U": (3,)}


@pytest.mark.parametrize("text", ["T", "[]", "{}", '{"T":0}', '{"T":[]}', '{"T":[-1]}', "[" * 9999])
def test_assigned_queues_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r'option assign=.*\{"TopicA":\[0,1\]\}'):
        grammar.queues("assign", text)


def test_positions_have_words_numbers_and_a_broker_level() -> None:
    text = '{"T":{"0":23,"1":-2,"2":"latest","broker-a":{"0":5,"1":"EARLIEST"}}}'
    assert grammar.positions("startingOffsets", text) == {
        ("T", None, 0): 23,
        ("T", None, 1): grammar.EARLIEST,
        ("T", None, 2): grammar.LATEST,
        ("T", "broker-a", 0): 5,
        ("T", "broker-a", 1): grammar.EARLIEST,
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"T":{"0":-3}}', "topic T, queue 0 is -3"),
        ('{"T":{"b":{"1":"soon"}}}', "topic T of broker b, queue 1 is 'soon'"),
        ('{"T":{"0":true}}', "topic T, queue 0 is True"),
        ('{"T":{"0":9223372036854775808}}', "queue 0 is 9223372036854775808"),
        ('{"T":{"zero":1}}', "'zero' is not a queue id"),
        ('{"T":{"0":1,"0":2}}', "a key is repeated"),
        ('{"T":23}', "must be JSON such as"),
        ("earlyest", "is not JSON"),
    ],
)
def test_positions_of_another_form_name_the_queue(text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        grammar.positions("startingOffsets", text)
    assert str(caught.value).startswith("[MQLOG_INVALID_OPTION] option startingOffsets=")
    assert told in str(caught.value)


def test_timestamps_of_queues_take_every_form_of_a_timestamp() -> None:
    text = '{"T":{"0":1000,"1":"-1s","2":"1970-01-01T00:00:02Z"}}'
    assert grammar.timestamps("startingOffsetsByTimestamp", text, now_ms=NOW_MS) == {
        ("T", None, 0): 1000,
        ("T", None, 1): NOW_MS - 1000,
        ("T", None, 2): 2000,
    }


def test_a_bad_timestamp_of_a_queue_names_the_queue() -> None:
    with pytest.raises(InvalidOptionError, match="startingOffsetsByTimestamp, topic T, queue 0"):
        grammar.timestamps("startingOffsetsByTimestamp", '{"T":{"0":"soon"}}', now_ms=NOW_MS)


def test_expressions_are_by_group_and_topic() -> None:
    text = '{"g":{"T":"A || B"}}'
    assert grammar.expressions("subscriptions", text) == {"g": {"T": "A || B"}}
    with pytest.raises(InvalidOptionError, match="group g must have"):
        grammar.expressions("subscriptions", '{"g":"A"}')


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("subscibe", "subscribe"), ("STARTINGOFFSETS", "startingOffsets"), ("zzz", None)],
)
def test_the_nearest_name_is_found_whatever_the_case(typed: str, expected: str | None) -> None:
    assert grammar.nearest(typed, ["subscribe", "startingOffsets", "tags"]) == expected


@given(st.text(max_size=40))
def test_whatever_is_typed_either_parses_or_is_refused_by_name(text: str) -> None:
    for parse in (
        grammar.boolean, grammar.count, grammar.size, grammar.duration, grammar.names,
        grammar.queues, grammar.positions, grammar.expressions,
        lambda option, value: grammar.timestamp(option, value, now_ms=NOW_MS),
    ):  # fmt: skip
        with suppress(InvalidOptionError):
            parse("option", text)

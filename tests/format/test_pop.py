"""Bodies of checkpoints and acknowledgements, as brokers write them and made to harm."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.format.pop import (
    MAX_POP_BODY_BYTES,
    Acks,
    Checkpoint,
    PopKey,
    parse_acks,
    parse_checkpoint,
    parse_values,
    retry_topics,
)

# As a broker of 5.5.0 wrote them.
CK = (
    b'{"bm":0,"bn":"broker-a","c":"G1","d":[0,1,3],"it":90000,"n":3,"pt":1795411679224,"q":2,'
    b'"reviveTime":1795411769224,"ro":0,"so":7,"sp":false,"t":"POPT"}'
)
ACK = b'{"ao":8,"bn":"broker-a","c":"G1","pt":1795411679224,"q":2,"so":7,"t":"POPT"}'
BATCH_ACK = ACK.replace(b'"ao":8', b'"ao":-1,"aol":[7,10]')
OLD_ACK = (
    b'{"ackOffset":8,"brokerName":"broker-a","consumerGroup":"G1","popTime":1795411679224,'
    b'"queueId":2,"startOffset":7,"topic":"POPT"}'
)
KEY = PopKey("POPT", "G1", 2, 7, 1795411679224, "broker-a")


def changed(body: bytes, **fields: Any) -> bytes:
    found = {**json.loads(body), **fields}
    return json.dumps({name: value for name, value in found.items() if value is not ...}).encode()


def test_a_checkpoint_has_the_offsets_of_its_differences() -> None:
    assert parse_checkpoint(CK) == Checkpoint(KEY, 90_000, (7, 8, 10))


def test_a_checkpoint_without_differences_has_consecutive_offsets() -> None:
    found = parse_checkpoint(changed(CK, d=...))
    assert found is not None
    assert found.queue_offsets == (7, 8, 9)


def test_acknowledgements_of_all_versions_have_the_key_of_their_checkpoint() -> None:
    assert parse_acks(ACK) == parse_acks(OLD_ACK) == Acks(KEY, (8,))
    assert parse_acks(BATCH_ACK) == Acks(KEY, (7, 10))


def test_a_broker_name_that_is_blank_or_missing_is_empty() -> None:
    for name in ("", "  ", None, ...):
        found = parse_acks(changed(ACK, bn=name))
        assert found is not None
        assert found.key == KEY._replace(broker="")


HARMFUL = [
    {"so": 2**63},
    {"so": -2},
    {"so": True},
    {"so": 1e300},
    {"pt": -1},
    {"pt": 2**80},
    {"q": 65_536},
    {"q": "2"},
    {"t": "../../etc"},
    {"t": ""},
    {"t": 3},
    {"c": ""},
    {"c": ""},
    {"t": "T" * 300},
    {"bn": {}, "t": None},
]


@pytest.mark.parametrize("fields", HARMFUL)
def test_fields_that_no_broker_writes_make_neither_checkpoint_nor_ack(
    fields: dict[str, Any],
) -> None:
    assert parse_checkpoint(changed(CK, **fields)) is None
    assert parse_acks(changed(ACK, **fields)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"d": list(range(10_000))},
        {"d": [2**63]},
        {"d": [-8]},
        {"d": ["0"]},
        {"d": {"0": 0}},
        {"n": 200, "d": ...},
        {"n": -1},
        {"it": 2**63},
        {"it": -5},
        {"it": 2**62, "pt": 2**62},
    ],
)
def test_wild_numbers_and_huge_lists_make_no_checkpoint(fields: dict[str, Any]) -> None:
    assert parse_checkpoint(changed(CK, **fields)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * MAX_POP_BODY_BYTES,
        b'{"a":' * 12_000,
        b" " * MAX_POP_BODY_BYTES + CK,
        b'{"so":' + b"9" * 60_000 + b"}",
    ],
)
def test_bodies_that_are_no_object_are_neither(body: bytes) -> None:
    assert parse_checkpoint(body) is None
    assert parse_acks(body) is None


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*json.loads(CK), "ao", "aol"]), inner, max_size=9)
    ),
)


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_body_raises(body: bytes) -> None:
    parse_checkpoint(body)
    parse_acks(body)


def test_a_group_and_a_topic_have_two_retry_topics() -> None:
    assert retry_topics("a_b", "c") == ("%RETRY%a_b_c", "%RETRY%a_b+c")


def test_bodies_that_are_parts_of_values_move_no_other_value() -> None:
    bodies = [b"[1", b"2]", b'{"a":7}', b"3,4"]
    assert parse_values(bodies) == [None, None, {"a": 7}, None]
    assert parse_values([b"1", b"[2]"]) == [1, [2]]
    assert parse_values([]) == []

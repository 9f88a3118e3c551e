"""JSON, and the text of fastjson that is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.live.remoting.fastjson import MAX_DEPTH, InvalidBodyError, loads

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
KEYS = st.one_of(st.text(max_size=5), st.integers(-9, 9))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


def written(value: Any) -> str:
    """As fastjson writes it: integer keys without quotes."""
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)}:{written(item)}" for key, item in value.items())
        return f"{{{','.join(inner)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return json.dumps(value)


@given(value=VALUES)
def test_what_fastjson_writes_is_read(value: Any) -> None:
    assert loads(written(value).encode("utf-8", errors="replace")) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"brokerAddrs":{0:"127.0.0.1:10911"}}', {"brokerAddrs": {0: "127.0.0.1:10911"}}),
        ('{{"q":0,"t":"T"}:{"max":4}}', {(("q", 0), ("t", "T")): {"max": 4}}),
        (" { 1 : [ 2.5 , -3e2, null,true , false ] } ", {1: [2.5, -300.0, None, True, False]}),
        ('{0:{1:{"a\\"b":2}}}', {0: {1: {'a"b': 2}}}),
        ("{}", {}),
        ("[]", []),
        ("7", 7),
    ],
)
def test_examples_of_the_dialect(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "{0:", "{0:1", "{0 1}", "{0:1,}", "{nope:1}", "{}x", "[1,", "[1 2]", "{[1]:2}",
        '{{"a":[1]}:2}', '{0:"', '{0:"\\', "-", "tru", '{"a":' * 50_000, "{" * 50_000,
        "[" * 50_000, '{0:"' + '\\"' * 200_000, "9" * 21, "{1:" + "9" * 5_000 + "}",
    ],
)  # fmt: skip
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidBodyError):
        loads(text.encode())


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{0:", "}"), ('{"a":', "}")])
def test_depth_has_a_limit(opening: str, closing: str) -> None:
    loads((opening * MAX_DEPTH + "1" + closing * MAX_DEPTH).encode())
    with pytest.raises(InvalidBodyError, match="nested deeper"):
        loads((opening * (MAX_DEPTH + 1) + "1" + closing * (MAX_DEPTH + 1)).encode())


def test_values_have_a_limit() -> None:
    with pytest.raises(InvalidBodyError, match="values"):
        loads(b"[" + b"0," * 2_000_001 + b"0]")


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    try:
        loads(data)
    except InvalidBodyError:
        return


def test_half_of_a_surrogate_pair_is_replaced_and_a_pair_is_not() -> None:
    text = rb'{"a\ud800":["x\uDFFFy","\ud83d\ude00",1],{"topic":"\ud800"}:null}'
    found = loads(text)
    assert found == {"a\ufffd": ["x\ufffdy", "😀", 1], (("topic", "\ufffd"),): None}
    assert str(found).encode()

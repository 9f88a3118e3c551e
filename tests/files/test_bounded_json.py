"""A JSON text is measured before it is parsed."""

import json
import tracemalloc

import pytest

from fuzz.in_time import in_time  # noqa: F401 - a fixture
from mqstore.files.base import bounded_json


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" + "0," * 1_000_001 + "0]", "more than 1000000 values"),
        ("[" + "[]" * 250_001 + "]", "more than 250000 brackets"),
        ('"' * 4_000_001, "more than 4000000 quotes"),
        ("{}" + "\0" * 1_000_000, "a zero byte"),
        ("{" * 250_001, "more than 250000 brackets"),
        ("[" * 33 + "]" * 33, "nested deeper than 32"),
        ("[" * 200_000, "nested deeper than 32"),
        ("[" + "9" * 21 + "]", "an integer of 21 digits"),
        ("-" + "9" * 5_000, "an integer of 5001 digits"),
    ],
)
def test_a_text_beyond_a_limit_is_refused_in_little_memory(text: str, reason: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(bounded_json.LimitError, match=reason):
            bounded_json.loads(text)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value", [{"a": [1, -(2**63), 2**63 - 1, "[[{{" * 40]}, [], "x", None, 1.5]
)
def test_a_text_within_them_is_what_json_says(value: object) -> None:
    assert bounded_json.loads(json.dumps(value)) == value


def test_brackets_in_a_string_are_no_depth_and_no_text_is_an_error_of_json() -> None:
    assert bounded_json.loads('{"a":"' + "[" * 100 + '"}') == {"a": "[" * 100}
    with pytest.raises(json.JSONDecodeError):
        bounded_json.loads("")


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("piece", ['\\"', "\\\n", "x", ",1", " ", '"\\\n'])
@pytest.mark.parametrize("begin", ["", '"', '{"a":"', "[{"])
def test_a_text_without_an_end_is_looked_through_once(begin: str, piece: str) -> None:
    with pytest.raises((json.JSONDecodeError, bounded_json.LimitError)):
        bounded_json.loads(begin + 500_000 * piece)


@pytest.mark.parametrize("before", ["[", '"[[[","]]]\\"[[",', '{"a\\\\":['])
def test_a_bracket_too_deep_is_told_by_its_place(before: str) -> None:
    deep = 32 - before.count("[", before.rfind('"') + 1) - before.count("{")
    with pytest.raises(bounded_json.LimitError) as raised:
        bounded_json.loads(before + "[" * 40)
    assert raised.value.position == len(before) + deep

"""SQL92 expressions: verdicts that RocketMQ made (see make_verdicts.py), limits, errors."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.read.sql.filter import parse_sql
from mqstore.read.sql.grammar import MAX_NESTING
from mqstore.read.sql.tokens import MAX_SQL_CHARS
from read.sql.expressions import NAMES, NUMBERS, SIGNS, WORDS
from read.sql.judged import REFUSED, column, ours, theirs

GOLDEN = json.loads(Path(__file__).with_name("verdicts.json").read_text())
COLUMN = column(GOLDEN["messages"])


def passing(expression: str, *messages: dict[str, str]) -> list[bool]:
    found = parse_sql(expression)
    assert found is not None
    passed: list[bool] = found.matches(column(messages)).tolist()
    return passed


def refusal(expression: str) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        parse_sql(expression, option="sql")
    assert caught.value.condition == "MQLOG_INVALID_OPTION"
    return caught.value.message()


def test_every_verdict_is_rocketmqs() -> None:
    wrong = {
        text: (got, verdict)
        for text, verdict in GOLDEN["verdicts"]
        if (got := ours(text, COLUMN)) != theirs(verdict)
    }
    assert wrong == {}


def test_the_verdicts_have_every_outcome() -> None:
    told = [verdict for _, verdict in GOLDEN["verdicts"]]
    assert told.count(REFUSED) > 50
    assert set("".join(verdict for verdict in told if verdict != REFUSED)) == set("TFNE")


def test_a_slice_of_a_column_has_its_own_rows() -> None:
    found = parse_sql("a >= 5")
    assert found is not None
    whole = found.matches(COLUMN).tolist()
    assert found.matches(COLUMN.slice(3, 20)).tolist() == whole[3:23]
    assert found.matches(COLUMN.slice(0, 0)).tolist() == []


def test_no_property_at_all_is_null_everywhere() -> None:
    assert passing("a IS NULL AND NOT (b IS NOT NULL)", {}, {}) == [True, True]


def test_a_filter_pickles_into_tasks() -> None:
    found = pickle.loads(pickle.dumps(parse_sql("a BETWEEN 1 AND 5")))
    assert found.matches(column([{"a": "3"}, {"a": "7"}])).tolist() == [True, False]


def test_no_expression_is_no_filter() -> None:
    assert parse_sql(None) is None


def test_long_chains_are_evaluated_without_recursion() -> None:
    many = " OR ".join(f"a = {number}" for number in range(5_000))
    assert passing(many, {"a": "4999"}, {"a": "5000"}) == [True, False]
    signs = "NOT " * 10_001 + "(a = 5)"
    assert passing(signs, {"a": "5"}, {"a": "6"}) == [False, True]


def test_nested_betweens_cost_no_more_than_they_are_long() -> None:
    nested = "a = 5"
    for _ in range(MAX_NESTING - 1):
        nested = f"-({nested}) BETWEEN 1 AND 2"
    assert passing(nested, {"a": "5"}) == [False]


@pytest.mark.parametrize(
    ("expression", "place", "accepted"),
    [
        ("", "at the end", "expected a property"),
        ("a > ", "at the end", "expected a property"),
        ("a = 5 AMD b = 3", "at character 7 ('AMD b = 3')", "expected AND, OR, ="),
        ("a LIKE 'x%'", "at character 3", "there is no LIKE: use CONTAINS"),
        ("a > 'x'", "at character 5", "compare properties and numbers, not text"),
        ("a != 5", "at character 3", "write <> for not equal"),
        ("a.b = 5", "at character 2", "letters, digits, _ and $ only"),
        ("a = 'x", "at character 5", "no closing quote"),
        ("a IN (5)", "at character 7", "expected 'text'"),
        ("a IS 5", "at character 6", "expected NULL or NOT NULL"),
        ("a NOT 5", "at character 7", "expected one of BETWEEN, IN"),
        ("a = NULL", "at character 5", "write IS NULL"),
        ("a BETWEEN 5 AND 3", "at character 11", "above the upper one"),
        ("a = 0.0", "at character 5", "4.9E-324"),
        ("a = 9223372036854775808", "at character 5", "9223372036854775807"),
        ("a AND 5", "at character 7", "expected a condition, not a number"),
        ("TRUE = 5", "at character 1", "do not compare with a number"),
        ("NOT a IN ('x')", "at character 1", "IN needs a property, not a condition"),
        ("(a = 5", "at the end", "expected ) or"),
        ("a = '\udcff'", "at character 6", "half of a surrogate pair"),
        ("a = " + "9" * 6_000, "at character 5", "at most 9223372036854775807"),
    ],
)
def test_an_error_names_the_place_and_what_is_accepted(
    expression: str, place: str, accepted: str
) -> None:
    message = refusal(expression)
    assert message.startswith("option sql=")
    assert place in message
    assert accepted in message


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from([*WORDS, *NUMBERS, *NAMES, *SIGNS]), max_size=30).map(" ".join),
    ),
    st.booleans(),
)
def test_any_text_is_an_expression_or_refused(text: str, as_broker: bool) -> None:
    told, found = "", None
    try:
        found = parse_sql(text, as_broker=as_broker)
    except InvalidOptionError as error:
        told = error.message()
    if found is None:
        assert "at character " in told or "at the end" in told
    else:
        assert len(found.matches(COLUMN)) == len(COLUMN)


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12)), max_size=5))
def test_any_properties_have_a_verdict(messages: list[dict[str, str]]) -> None:
    for sql in ("a > b OR c = 5", "Name_1 BETWEEN 1 AND 9.5", "a = 5000000000 AND b = TRUE"):
        found = parse_sql(sql)
        assert found is not None
        assert len(found.matches(column(messages))) == len(messages)


def test_length_and_depth_are_bounded() -> None:
    deepest = "(" * MAX_NESTING + "a = 5" + ")" * MAX_NESTING
    assert passing(deepest, {"a": "5"}) == [True]
    assert f"more than {MAX_NESTING} parentheses" in refusal(f"({deepest})")
    assert f"at most {MAX_SQL_CHARS:,} are accepted" in refusal("a" * (MAX_SQL_CHARS + 1))
    assert "at character 65" in refusal("(" * MAX_SQL_CHARS)


def test_what_follows_is_ignored_only_where_a_broker_would() -> None:
    assert "at character 7" in refusal("a > 5 garbage")
    found = parse_sql("a > 5 garbage", as_broker=True)
    assert found is not None
    assert found.matches(column([{"a": "6"}, {"a": "5"}])).tolist() == [True, False]


@pytest.mark.parametrize(
    "text", ["9" * 32_000, "0" * 32_000 + "5", "1e" + "9" * 5_000, "٣" * 30_000]
)
def test_text_of_any_length_is_compared(text: str) -> None:
    whole = text.strip("0") == "5"
    assert passing("a = 5", {"a": text}) == [whole]
    assert passing("a = 5.5", {"a": text}) == [False]
    assert passing("a > 1e300", {"a": text}) == [text[:2] in ("99", "1e")]


def test_a_map_with_chunks_of_other_rows_is_read_by_its_edges() -> None:
    both = pa.concat_arrays([column([{"a": "1"}]), column([{"a": "2"}, {"b": "1"}])])
    found = parse_sql("a = 2 OR b = 1")
    assert found is not None
    assert found.matches(both.slice(1)).tolist() == [True, True]

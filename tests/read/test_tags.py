"""Tag expressions against FilterAPI's rules, and the two steps against each other."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.format.consume_queue import EXT_ADDRESS_MAX
from mqstore.format.hashing import java_hash, tags_code
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.read.tags import TagFilter, check_tags, parse_tags

TAGS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["Aa", "BB", "AaAa"])
# String#trim takes off all that is not above the space.
NOT_BLANK = TAGS.filter(lambda tag: max(tag, default="") > " ")


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_and_the_star_are_no_filter(expression: str | None) -> None:
    assert parse_tags(expression) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("A", {"A"}),
        ("A || B", {"A", "B"}),
        ("A||B||A", {"A", "B"}),
        ("|| A ||  || B ||", {"A", "B"}),
        ("\tTag A \n|| 标签C", {"Tag A", "标签C"}),
        ("A | B", {"A | B"}),
        ("A || *", {"A", "*"}),
        (" * ", {"*"}),
        ("\u00a0A", {"\u00a0A"}),
        ("A|||B", {"A", "|B"}),
    ],
)
def test_a_list_is_split_and_trimmed_as_java_does(expression: str, tags: set[str]) -> None:
    found = parse_tags(expression)
    assert found == TagFilter(frozenset(tags), frozenset(java_hash(t) for t in tags))


@pytest.mark.parametrize("expression", ["||", "||||", " ", " || ", "\u0000||\u001f"])
def test_an_expression_without_a_tag_is_refused_by_its_option(expression: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"MQLOG_INVALID_OPTION\] option subscriptions="):
        parse_tags(expression, option="subscriptions")


@pytest.mark.parametrize("expression", ["A | B", "A |", "|A", "A|||B", "A || B | C"])
def test_a_single_bar_is_refused_with_what_to_write(expression: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"a single \| is no separator: write A \|\| B"):
        check_tags(expression)


@pytest.mark.parametrize(
    "expression", ["a > 5", "a = 'x'", "a>=5", "A AND B", "a is not null", "a between 1 and 2"]
)
def test_an_sql92_expression_is_refused_with_what_to_write(expression: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"looks like SQL92, .* write A \|\| B"):
        check_tags(expression, option="subscriptions")


@pytest.mark.parametrize("expression", ["*", "", "A", "A||B", "A || B||C", "Tag A", "band", "or"])
def test_tags_are_accepted(expression: str) -> None:
    check_tags(expression)


def test_a_collision_passes_the_hash_and_not_the_string() -> None:
    wanted = parse_tags("Aa")
    assert wanted is not None
    tags = ["Aa", "BB", "C", None]
    codes = np.array([tags_code(tag) for tag in tags], np.int64)
    assert wanted.matches_hash(codes).tolist() == [True, True, False, False]
    assert wanted.matches(pa.array(tags, pa.string())).tolist() == [True, False, False, False]


def test_a_code_that_is_no_hash_is_left_to_the_string() -> None:
    wanted = parse_tags("A")
    assert wanted is not None
    codes = np.array([-(2**63), EXT_ADDRESS_MAX, 2**31, 1_795_230_093_077, -(2**31)], np.int64)
    assert wanted.matches_hash(codes).tolist() == [True, True, True, True, False]


def test_the_schedule_topic_has_times_where_others_have_hashes() -> None:
    wanted = parse_tags("A")
    assert wanted is not None
    codes = np.array([0, 1_000, java_hash("B")], np.int64)
    assert wanted.may_match(SCHEDULE_TOPIC, codes).all()
    assert not wanted.may_match("TopicTest", codes).any()


def test_many_tags_are_found_as_few_are() -> None:
    wanted = parse_tags("||".join(f"tag{n}" for n in range(100)))
    assert wanted is not None
    codes = np.array([java_hash(f"tag{n}") for n in range(0, 200, 50)] + [2**40], np.int64)
    assert wanted.matches_hash(codes).tolist() == [True, True, False, False, True]


@given(st.lists(NOT_BLANK, min_size=1, max_size=20), st.lists(TAGS))
def test_what_the_string_passes_the_hash_has_passed(wanted: list[str], tags: list[str]) -> None:
    found = parse_tags(" || ".join(wanted))
    if found is None:  # A lone "*".
        return
    codes = np.array([tags_code(tag) for tag in tags], np.int64)
    exact = found.matches(pa.array(tags, pa.string()))
    assert exact.tolist() == [tag in found.tags for tag in tags]
    assert not (exact & ~found.matches_hash(codes)).any()


def test_a_filter_travels_to_a_task() -> None:
    wanted = parse_tags("A || B")
    assert pickle.loads(pickle.dumps(wanted)) == wanted

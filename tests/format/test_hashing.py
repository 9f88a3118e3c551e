"""The scalar hashes are Java's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.format import hashing
from support import oracle


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("标签C", 26572492),
        ("😀", 1772899),
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_java_hash_is_what_java_says(text: str, code: int) -> None:
    assert hashing.java_hash(text) == code


@given(text=st.text())
def test_all_hashes_of_any_text_agree_with_the_oracle(text: str) -> None:
    assert hashing.java_hash(text) == oracle.java_hash(text)
    assert hashing.key_hash(text) == oracle.key_hash(text)


def test_no_tags_hash_to_zero() -> None:
    assert hashing.tags_code(None) == hashing.tags_code("") == 0


def test_the_one_hash_without_a_positive_twin_becomes_zero() -> None:
    assert hashing.key_hash("polygenelubricants") == 0

"""Property blocks: vectorised splitting agrees with the broker's, block by block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.properties import PropertyBlocks
from mqstore.format import properties
from support import oracle, strategies


def split(blocks: list[bytes], gap: bytes = b"") -> PropertyBlocks:
    """The blocks as they lie in a buffer of records: in order, with other bytes between."""
    lengths = np.array([len(block) for block in blocks], np.int64)
    starts = len(gap) + np.concatenate(([0], np.cumsum(lengths + len(gap))[:-1])).astype(np.int64)
    data = gap + b"".join(block + gap for block in blocks)
    return PropertyBlocks(np.frombuffer(data, np.uint8), starts[: len(blocks)], lengths)


def as_dicts(blocks: PropertyBlocks) -> list[dict[str, str]]:
    rows = blocks.as_map().to_pylist(maps_as_pydicts="strict")  # raises for a name twice
    assert all(isinstance(row, dict) for row in rows)
    return rows


# What MessageDecoderTest feeds to string2messageProperties, and what it makes of it.
MALFORMED = [
    (b"", {}),
    (b"k1", {}),
    (b"k1\x01", {}),
    (b"\x01v1", {}),
    (b"\x02", {}),
    (b"k1\x01v1", {"k1": "v1"}),
    (b"k1\x01v1\x02", {"k1": "v1"}),
    (b"k1\x01v1\x02\x02\x02", {"k1": "v1"}),
    (b"\x02\x02k1\x01v1", {"k1": "v1"}),
    (b"k1\x01v1\x02k2\x01v2", {"k1": "v1", "k2": "v2"}),
    (b"k1\x01v1\x02k2", {"k1": "v1"}),
    (b"k1\x02k2\x01v2", {"k2": "v2"}),
    (b"k1\x01\x02k2\x01v2", {"k2": "v2"}),
    (b"k1\x01v1\x01more\x02k2\x01v2", {"k1": "v1\x01more", "k2": "v2"}),
    (b"\x01\x01\x01\x02k2\x01v2", {"k2": "v2"}),
    (b"a\x01b", {"a": "b"}),
    (b"k1\x01old\x02k1\x01new", {"k1": "new"}),
    ("键\x01值\x02😀\x01\u2028".encode(), {"键": "值", "😀": "\u2028"}),
    (b"bad\x01\xff\xfe\x02k\x01v", {"bad": "\ufffd\ufffd", "k": "v"}),
]


@pytest.mark.parametrize(("block", "expected"), MALFORMED)
def test_a_block_splits_as_the_broker_splits_it(block: bytes, expected: dict[str, str]) -> None:
    assert oracle.split_properties(block) == expected
    assert properties.split(block) == expected
    assert as_dicts(split([block])) == [expected]


def test_all_those_blocks_split_alike_side_by_side() -> None:
    blocks, expected = zip(*MALFORMED, strict=True)
    assert as_dicts(split(list(blocks), gap=b"\x02gap\x01")) == list(expected)


@given(blocks=st.lists(strategies.property_blocks(), max_size=12), gap=st.binary(max_size=3))
def test_any_blocks_split_as_the_oracle_says(blocks: list[bytes], gap: bytes) -> None:
    expected = [oracle.split_properties(block) for block in blocks]
    found = split(blocks, gap)
    assert as_dicts(found) == expected
    assert [properties.split(block) for block in blocks] == expected
    names = {name for row in expected for name in row} | {"TAGS", "KEYS", "no such name"}
    for name in names:
        assert found.column(name).to_pylist() == [row.get(name) for row in expected]
    assert [
        {pair["key"]: pair["value"] for pair in row} for row in found.as_headers().to_pylist()
    ] == [{name: value.encode() for name, value in row.items()} for row in expected]


@given(blocks=st.lists(st.binary(max_size=12), max_size=8))
def test_any_bytes_at_all_split_without_complaint(blocks: list[bytes]) -> None:
    found = split(blocks)
    expected = [oracle.split_properties(block) for block in blocks]
    assert as_dicts(found) == expected
    for name in {name for row in expected for name in row}:
        assert found.column(name).to_pylist() == [row.get(name) for row in expected]


# Rows of few producers: what names are joined to is the same where their edges are not, some
# come twice, and bytes that are not UTF-8 are one name whatever they are.
PRODUCERS = [
    (b"AB", b"C"),
    (b"A", b"BC"),
    (b"ABC",),
    (),
    (b"C", b"AB"),
    (b"AB", b"C", b"AB"),
    (b"\xff", b"C", b"\xfe"),
]


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(PRODUCERS), st.lists(st.binary(min_size=1), min_size=3)),
        max_size=20,
    ),
    last=st.booleans(),
)
def test_rows_of_few_producers_split_each_by_its_own_names(
    rows: list[tuple[tuple[bytes, ...], list[bytes]]], last: bool
) -> None:
    pieces = [[b"\x01".join(pair) for pair in zip(*row, strict=False)] for row in rows]
    blocks = [b"\x02".join(row) + (b"\x02" if last and row else b"") for row in pieces]
    expected = [oracle.split_properties(block) for block in blocks]
    found = split(blocks)
    assert as_dicts(found) == expected
    for name in ("A", "AB", "ABC", "BC", "C", "\ufffd", "B"):
        assert found.column(name).to_pylist() == [row.get(name) for row in expected]


def test_more_names_than_a_machine_word_has_bits() -> None:
    blocks = [oracle.join_properties({f"n{i}": "v"}) for i in range(100)]
    blocks.append(b"".join(blocks) + oracle.join_properties({"n7": "last"}))
    row = {f"n{i}": "v" for i in range(100)} | {"n7": "last"}
    assert as_dicts(split(blocks))[-1] == row


@given(properties_map=strategies.property_maps())
def test_join_writes_what_split_reads(properties_map: dict[str, str]) -> None:
    block = properties.join(properties_map)
    assert block == oracle.join_properties(properties_map)
    assert properties.split(block) == properties_map

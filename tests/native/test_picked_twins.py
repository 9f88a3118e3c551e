"""A few properties of many records, found by the compiled kernel as by splitting them all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.picked import PickedProperties
from mqstore.codec.properties import PropertyBlocks
from mqstore.native import frames
from support import kernels

pytestmark = kernels.needs_compiled()
NAMES = ("TAGS", "KEYS", "a", "A_NAME_OF_MORE_THAN_16_BYTES")

words = st.sampled_from([*NAMES, "", "TAG", "TAGSX", "b", "\x01", "é", "v" * 40])
raw = st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS\x01", b"KEYS", b"\xff", b"\xc3"])
entries = st.tuples(words, words).map(lambda pair: "\x01".join(pair).encode() + b"\x02")
blocks = st.one_of(
    st.lists(entries, max_size=6).map(b"".join),
    st.lists(entries, max_size=6).map(lambda parts: b"".join(parts)[:-1]),
    st.lists(raw, max_size=9).map(b"".join),
    st.just(b"".join(b"%d\x01v\x02" % n for n in range(130)) + b"TAGS\x01t\x02"),
)


def laid_out(content: list[bytes]) -> tuple[bytes, list[int], list[int]]:
    """Return the blocks as records have them: with other bytes before each and behind the last."""
    data, starts = b"", []
    for block in content:
        data += b"head\x01\x02"
        starts.append(len(data))
        data += block
    return data + b"\x02tail", starts, [len(block) for block in content]


def columns(content: list[bytes]) -> list[list[str | None]]:
    data, starts, lengths = laid_out(content)
    places = np.array(starts, np.int64), np.array(lengths, np.int64)
    found = PickedProperties(np.frombuffer(data, np.uint8), *places, NAMES)
    return [found.column(name).to_pylist() for name in NAMES]


@given(content=st.lists(blocks, max_size=8))
def test_any_blocks_have_the_same_values_of_the_wanted_names(content: list[bytes]) -> None:
    ours, theirs = kernels.with_both(lambda: columns(content))
    assert ours == theirs
    data, starts, lengths = laid_out(content)
    places = np.array(starts, np.int64), np.array(lengths, np.int64)
    whole = PropertyBlocks(np.frombuffer(data, np.uint8), *places)
    assert theirs == [whole.column(name).to_pylist() for name in NAMES]


def test_values_are_found_where_they_lie() -> None:
    data, starts, lengths = laid_out([b"TAGS\x01x\x02TAGS\x01yz\x02", b"KEYS\x01k", b""])
    places = np.array(starts, np.int64), np.array(lengths, np.int64)
    with kernels.using("c"):
        found = frames.property_values(np.frombuffer(data, np.uint8), *places, ("TAGS", "KEYS"))
    assert found is not None
    at, size = found
    assert size.tolist() == [[2, 0, 0], [0, 1, 0]]
    assert (at >= 0).tolist() == [[True, False, False], [False, True, False]]
    assert [data[at[0, 0] :][:2], data[at[1, 1] :][:1]] == [b"yz", b"k"]


def test_more_properties_than_the_kernel_holds_are_split_all() -> None:
    many = b"".join(b"%d\x01v\x02" % n for n in range(130))
    with kernels.using("c"):
        assert columns([many + b"TAGS\x01t\x02"])[0] == ["t"]
        data = np.frombuffer(many, np.uint8)
        place = np.zeros(1, np.int64), np.array([len(many)], np.int64)
        assert frames.property_values(data, *place, NAMES) is None


@pytest.mark.parametrize("start", [-1, 1, 150, 2**63 - 1, -(2**63)])
def test_a_block_outside_is_not_the_kernels(start: int) -> None:
    place = np.array([start], np.int64), np.array([150], np.int64)
    with kernels.using("c"):
        assert frames.property_values(np.zeros(150, np.uint8), *place, NAMES) is None

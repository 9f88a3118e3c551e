"""Digests by the compiled kernel, by numpy and by the published algorithm: the same."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.siphash import siphash
from support import kernels

MASK = 2**64 - 1
KEY = tuple(int.from_bytes(bytes(range(8 * n, 8 * n + 8)), "little") for n in (0, 1))
# vectors_sip128 of the reference implementation (SipHash-2-4): of no byte, and of 00.
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
}


def published(data: bytes, key: Sequence[int], compress: int = 1, finish: int = 3) -> bytes:
    """SipHash with 128 bits, word by word, as its paper says."""
    v = [key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D ^ 0xEE]
    v += [key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573]

    def turn(x: int, b: int) -> int:
        return (x << b | x >> (64 - b)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = v[0] + v[1] & MASK
            v[1] = turn(v[1], 13) ^ v[0]
            v[0] = turn(v[0], 32)
            v[2] = v[2] + v[3] & MASK
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & MASK
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & MASK
            v[1] = turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(compress)
        v[0] ^= word
    made = b""
    for place, mark in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= mark
        rounds(finish)
        made += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return made


def test_the_algorithm_of_this_test_gives_the_published_vectors() -> None:
    for count, expected in PUBLISHED.items():
        assert published(bytes(range(count)), KEY, 2, 4).hex() == expected


@pytest.mark.parametrize("kind", kernels.KINDS)
@given(
    pieces=st.lists(st.binary(max_size=300), max_size=12),
    keys=st.lists(st.tuples(st.integers(0, MASK), st.integers(0, MASK)), min_size=12, max_size=12),
)
def test_digests_are_those_of_the_algorithm(
    kind: str, pieces: list[bytes], keys: list[tuple[int, int]]
) -> None:
    if kind == "c" and kernels.why_not_compiled():
        pytest.skip(kernels.why_not_compiled())
    data = np.frombuffer(b"x" + b"".join(pieces), np.uint8)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    starts = 1 + np.cumsum(sizes) - sizes
    taken = np.array(keys[: len(pieces)], np.uint64).reshape(-1, 2)
    with kernels.using(kind):
        found = siphash(data, starts, sizes, taken)
    expected = [published(piece, key) for piece, key in zip(pieces, keys, strict=False)]
    assert [row.astype("<u8").tobytes() for row in found] == expected


@pytest.mark.parametrize("kind", kernels.KINDS)
@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, 11), (2**62, 2**62), (9, 2)])
def test_a_slice_outside_of_the_buffer_is_refused(kind: str, start: int, size: int) -> None:
    places = np.array([start], np.int64), np.array([size], np.int64)
    with kernels.using(kind), pytest.raises(IndexError):
        siphash(np.zeros(10, np.uint8), *places, np.zeros((1, 2), np.uint64))

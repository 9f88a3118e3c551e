"""SipHash-1-3 with 128 bits, over many slices of a buffer at once, each with a key of its own.

The first number that comes out is the low half of what the reference implementation writes, the
second the high half.

Reference: Aumasson and Bernstein, SipHash: a fast short-input PRF; its variant of 128 bits.
"""

from typing import Final

import numpy as np

from mqstore.format.arrays import Bytes, Int64s, UInt64Pairs, UInt64s
from mqstore.format.hashing import HASH_WORD
from mqstore.native import digests
from mqstore.native.registry import compiled_first

_SIP_WORD_BYTES: Final = HASH_WORD.itemsize
_INIT: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_ROUNDS_AT_THE_END: Final = 3
_State = list[UInt64s]


@compiled_first(digests.siphash)
def siphash(buffer: Bytes, starts: Int64s, sizes: Int64s, keys: UInt64Pairs) -> UInt64Pairs:
    """Return the digest of each slice: ``uint64[n, 2]``, as the keys.

    Slices lie in the buffer. Raises IndexError for one that does not.
    """
    order = np.argsort(-sizes, kind="stable")  # So those with more words are in front.
    starts, sizes, keys = starts[order], sizes[order], keys[order]
    if len(starts) and (starts.min() < 0 or int((starts + sizes).max()) > len(buffer)):
        raise IndexError("a slice that lies outside of the buffer")
    state = [keys[:, n % 2] ^ np.uint64(value) for n, value in enumerate(_INIT)]
    state[1] ^= np.uint64(0xEE)
    words = sizes // _SIP_WORD_BYTES
    for number in range(int(words[0]) if len(words) else 0):
        count = int(np.searchsorted(-words, -number, side="left"))
        _take([v[:count] for v in state], _words(buffer, starts[:count] + number * _SIP_WORD_BYTES))
    _take(state, _last(buffer, starts, sizes))
    state[2] ^= np.uint64(0xEE)
    made = np.empty((len(starts), 2), np.uint64)
    made[order, 0] = _out(state)
    state[1] ^= np.uint64(0xDD)
    made[order, 1] = _out(state)
    return made


def _words(buffer: Bytes, places: Int64s) -> UInt64s:
    found: UInt64s = buffer[places[:, None] + np.arange(_SIP_WORD_BYTES)].view(HASH_WORD)[:, 0]
    return found.astype(np.uint64)


def _last(buffer: Bytes, starts: Int64s, sizes: Int64s) -> UInt64s:
    """Return the bytes behind the last whole word, and the size in the highest byte."""
    found = (sizes.astype(np.uint64) & np.uint64(0xFF)) << np.uint64(56)
    rest = sizes % _SIP_WORD_BYTES
    for number in range(_SIP_WORD_BYTES - 1):
        rows = np.flatnonzero(rest > number)
        values = buffer[starts[rows] + sizes[rows] - rest[rows] + number].astype(np.uint64)
        found[rows] |= values << np.uint64(8 * number)
    return found


def _take(state: _State, words: UInt64s) -> None:
    state[3] ^= words
    _round(state)
    state[0] ^= words


def _out(state: _State) -> UInt64s:
    for _ in range(_ROUNDS_AT_THE_END):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(v: _State) -> None:
    """Change the four numbers of each row in place."""
    v[0] += v[1]
    v[1][:] = _turned(v[1], 13) ^ v[0]
    v[0][:] = _turned(v[0], 32)
    v[2] += v[3]
    v[3][:] = _turned(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3][:] = _turned(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1][:] = _turned(v[1], 17) ^ v[2]
    v[2][:] = _turned(v[2], 32)


def _turned(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))

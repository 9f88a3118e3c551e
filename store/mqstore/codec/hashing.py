"""Java's ``String.hashCode`` over a whole column, and the two hashes a store makes of it.

h(s) = Σ c[i]·31^(n−1−i) over the UTF-16 code units, in 32 bits: a sum, so all strings of a
column are hashed by one multiplication and one segmented addition over their characters.
h(a + b) = h(a)·31^len(b) + h(b): a key's hash never needs the string ``topic#key``.

Reference: java.lang.String#hashCode; IndexFile#indexKeyHashMethod; mqstore.format.hashing,
the same for one string.
"""

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.format.arrays import Int32s, Int64s, UInt32s
from mqstore.format.hashing import java_hash

_ASCII_MAX: Final = 0x7F
_SURROGATES_FROM: Final = 0xF0  # first byte of a character that takes two UTF-16 units
_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_KNOWN_POWERS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Hashes:
    """``values`` are hashCodes modulo 2³², ``lengths`` the strings' UTF-16 lengths."""

    values: UInt32s
    lengths: Int64s

    def after(self, prefixes: UInt32s) -> "Hashes":
        """Return the hashes of ``prefix + string``; the lengths stay the strings' own."""
        shifted = prefixes * _powers(int(self.lengths.max(initial=0)))[self.lengths]
        return Hashes(shifted + self.values, self.lengths)


def hash_strings(strings: pa.Array) -> Hashes:
    """Return the hashes of a string array; a null hashes as the empty string, to 0."""
    data, starts = _characters(strings)
    lengths = np.diff(starts)
    if not len(data):
        return Hashes(np.zeros(len(lengths), np.uint32), lengths)
    longest = int(lengths.max())
    powers = _powers(longest)
    if lengths.min() == longest:
        table = data.reshape(len(lengths), longest).astype(np.uint32)
        return Hashes(table @ powers[longest - 1 :: -1], lengths)
    exponents = np.repeat(starts[1:] - 1, lengths) - np.arange(starts[0], starts[-1])
    terms = data.astype(np.uint32) * powers[exponents]
    values = np.zeros(len(lengths), np.uint32)
    filled = np.flatnonzero(lengths)  # reduceat would give an empty string its neighbour's sum
    values[filled] = np.add.reduceat(terms, starts[filled] - starts[0])
    return Hashes(values, lengths)


def hash_text(text: str) -> np.uint32:
    """Return the hashCode of one string modulo 2³²."""
    return np.uint32(java_hash(text) & 0xFFFFFFFF)


def tags_codes(tags: pa.Array) -> Int64s:
    """Return the ConsumeQueue's hash of each TAGS, sign-extended; 0 for null and empty."""
    return hash_strings(tags).values.view(np.int32).astype(np.int64)


def key_hashes(hashes: UInt32s) -> Int32s:
    """Return the IndexFile's hash of keys with those hashCodes: abs, and 0 for −2³¹."""
    magnitude = np.abs(hashes.view(np.int32).astype(np.int64))
    return np.where(magnitude >> 31, 0, magnitude).astype(np.int32)


def _characters(strings: pa.Array) -> tuple[NDArray[Any], Int64s]:
    """Return all UTF-16 units of the column and where each string starts among them."""
    if strings.null_count:
        strings = strings.fill_null("")
    strings = strings.cast(pa.string())
    _, positions, data = strings.buffers()
    if not len(strings):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    edges = np.frombuffer(positions, np.int32, len(strings) + 1, strings.offset * 4)
    starts = edges.astype(np.int64)
    size = int(starts[-1] - starts[0])
    utf8 = np.frombuffer(data, np.uint8, size, int(starts[0])) if size else np.zeros(0, np.uint8)
    starts -= starts[0]
    if not size or utf8.max() <= _ASCII_MAX:
        return utf8, starts
    # One unit for each byte that starts a character, one more where the character needs a pair.
    units = ((utf8 & 0xC0) != 0x80).astype(np.int64) + (utf8 >= _SURROGATES_FROM)
    unit_starts = np.concatenate(([0], np.cumsum(units)))[starts]
    text = utf8.tobytes().decode("utf-8", errors="surrogatepass")
    utf16 = text.encode(_UTF16, errors="surrogatepass")
    return np.frombuffer(utf16, np.uint16), unit_starts


def _powers(highest: int) -> UInt32s:
    """Return 31^0 … 31^highest modulo 2³², and some more."""
    if highest < _KNOWN_POWERS:
        return _POWERS
    return np.cumprod(np.r_[1, np.full(highest, 31)], dtype=np.uint32)


_POWERS: Final = np.cumprod(np.r_[1, np.full(_KNOWN_POWERS, 31)], dtype=np.uint32)

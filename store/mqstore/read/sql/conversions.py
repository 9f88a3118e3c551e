"""Text of properties to numbers, by the rules of Java, for many messages at once.

Numbers come as int64 keys that compare as Java compares: a double's key orders -0.0 below 0.0
and NaN above all, as Double#compareTo does. Text that is no number is left out of the mask.

Reference: java.lang.Integer#valueOf, Long#valueOf, Double#valueOf, Boolean#valueOf, and
Character#digit, by which whole numbers may have decimal digits of any script.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import mqstore.codec.compute as pc
from mqstore.format.arrays import Int64s, Mask
from mqstore.read.sql.program import INT_MAX, LONG_MAX, Number, Width

NumberKeys: TypeAlias = tuple[Int64s, Mask]
"""NumberKeys of n texts, and which of them are numbers."""

_PLAIN_LONG: Final = r"\A[+-]?[0-9]{1,19}\z"
_ANY_LONG: Final = r"\A[+-]?\p{Nd}+\z"
_DECIMAL: Final = r"\A[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?\z"
_WORD: Final = r"\A[+-]?(?:NaN|Infinity)\z"
_HEX_DOUBLE: Final = (
    r"\A[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?\z"
)
TRIMMED: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String#trim takes off: those at or below the space."""
_SUFFIXES: Final = "fFdD"
_LAST_OF_BMP: Final = 0xFFFF
_LONG_DIGITS: Final = 19
_NO_EXPONENT_ABOVE: Final = 10**6  # Of hex digits, which text of a property has at most 32,767.
_HEX_PARTS: Final = re.compile(r"([+-]?0[xX][0-9a-fA-F.]+[pP])([+-]?[0-9]+)[fFdD]?")


def key_of(number: Number, width: Width) -> int:
    """Return the key of a number of an expression, converted to ``width``."""
    if width is not Width.DOUBLE:
        return int(number.value)
    return int(_double_keys(np.array([number.value], np.float64))[0])


def keys_of(texts: pa.StringArray, width: Width) -> NumberKeys:
    """Return the keys of texts read as numbers of ``width``; null is no number."""
    if width is Width.DOUBLE:
        return _doubles(texts)
    keys, valid = _longs(texts)
    if width is Width.INT:
        valid = valid & (keys <= INT_MAX) & (keys >= -INT_MAX - 1)
    return keys, valid


def truths_of(texts: pa.StringArray) -> Mask:
    """Tell which texts are ``true`` in any case; all others, null too, are false."""
    return _mask(pc.equal(pc.ascii_lower(texts), "true"))


def _mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask


def _longs(texts: pa.StringArray) -> NumberKeys:
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN_LONG), False)
    chosen = pc.if_else(plain, texts, "0")
    sizes = pc.utf8_ltrim(chosen, characters="+-").cast(pa.uint64()).to_numpy()
    negative = _mask(pc.starts_with(chosen, "-"))
    keys = np.where(negative, ~sizes + np.uint64(1), sizes).view(np.int64)
    valid = _mask(plain) & (sizes <= np.uint64(LONG_MAX) + negative.astype(np.uint64))
    # Leading zeros beyond 19 digits and digits of other scripts: rare, each text once.
    rare = _mask(pc.match_substring_regex(texts, _ANY_LONG)) & ~_mask(plain)
    return _with_rare(texts, rare, _long, keys, valid)


def _doubles(texts: pa.StringArray) -> NumberKeys:
    trimmed = pc.utf8_trim(texts, characters=TRIMMED)
    decimal = pc.match_substring_regex(trimmed, _DECIMAL)
    words = pc.match_substring_regex(trimmed, _WORD)
    either = pc.fill_null(pc.or_(decimal, words), False)
    chosen = pc.if_else(either, trimmed, "0")
    # The word Infinity ends in none of the suffixes, NaN neither.
    bare = pc.utf8_ltrim(pc.utf8_rtrim(chosen, characters=_SUFFIXES), characters="+")
    keys = _double_keys(bare.cast(pa.float64()).to_numpy())
    rare = _mask(pc.match_substring_regex(trimmed, _HEX_DOUBLE)) & ~_mask(either)
    return _with_rare(trimmed, rare, _hex_double_key, keys, _mask(either))


def _double_keys(values: NDArray[np.float64]) -> Int64s:
    """Return keys in the order of Double#compareTo: the bits, those of negative ones reversed."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    keys: Int64s = np.where(bits < 0, bits ^ LONG_MAX, bits)
    return keys


def _with_rare(
    texts: pa.StringArray, rare: Mask, read: Callable[[str], int | None], keys: Int64s, valid: Mask
) -> NumberKeys:
    rows = np.flatnonzero(rare)
    if not len(rows):
        return keys, valid
    encoded = texts.take(pa.array(rows)).dictionary_encode()
    found = [read(text) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.to_numpy()
    keys, valid = keys.copy(), valid.copy()
    keys[rows] = np.array([key or 0 for key in found], np.int64)[places]
    valid[rows] = np.array([key is not None for key in found], np.bool_)[places]
    return keys, valid


def _long(text: str) -> int | None:
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.removeprefix("+"))
    decimals = [unicodedata.decimal(c, None) if ord(c) <= _LAST_OF_BMP else None for c in digits]
    if None in decimals:
        return None
    bare = "".join(map(str, decimals)).lstrip("0") or "0"
    if len(bare) > _LONG_DIGITS:
        return None
    value = int(sign + bare)
    return value if -LONG_MAX - 1 <= value <= LONG_MAX else None


def _hex_double_key(text: str) -> int | None:
    match = _HEX_PARTS.fullmatch(text)
    if match is None:
        return None
    sign = "-" if match[2].startswith("-") else ""
    exponent = match[2].lstrip("+-0")[:_LONG_DIGITS] or "0"
    bounded = min(int(exponent), _NO_EXPONENT_ABOVE)
    try:
        value = float.fromhex(f"{match[1]}{sign}{bounded}")
    except OverflowError:
        value = float("-inf" if text.startswith("-") else "inf")
    return int(_double_keys(np.array([value]))[0])

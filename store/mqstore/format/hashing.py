"""The three hashes a store is built on, for one string, and the word of digests.

Reference: java.lang.String#hashCode, MessageExtBrokerInner#tagsString2tagsCode,
IndexFile#indexKeyHashMethod.
"""

from typing import Final

import numpy as np

HASH_WORD: Final = np.dtype("<u8")
"""A word of SipHash, which is no part of a store."""


def java_hash(text: str) -> int:
    """Return ``String.hashCode``: h = 31 h + c over UTF-16 code units, in signed 32 bit."""
    units = text.encode("utf-16-be", errors="surrogatepass")
    h = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + (high << 8 | low)) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


def tags_code(tags: str | None) -> int:
    """Return the ConsumeQueue's hash of a TAGS property; 0 if there is none."""
    return java_hash(tags) if tags else 0


def key_hash(key: str) -> int:
    """Return the IndexFile's hash of ``topic#key``: abs(hashCode), and 0 for −2³¹."""
    h = abs(java_hash(key))
    return 0 if h >> 31 else h

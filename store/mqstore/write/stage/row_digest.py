"""Digests of rows: whether a write that runs again has the rows that were committed.

The digest of many rows is a sum, so neither their order nor their partitions matter. It covers what
a row gives: topic, body, keys, tags, shardingKey, properties, flag, queueId, delay and WAIT; not
its times and ids, which a write may make anew. The CRC-32 of the body, the hash of the properties,
both lengths and the numbers of a row are mixed to 64 bits: that finds mistakes, not forgeries.

Reference: G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators (mix64).
"""

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec.encode import binary_lengths, body_crcs
from mqstore.codec.hashing import hash_strings, hash_text
from mqstore.codec.properties_encode import join_blocks, join_map
from mqstore.format import properties as p
from mqstore.format.arrays import Int64s
from mqstore.write.stage.rows import Rows

_Hashes: TypeAlias = NDArray[np.uint64]
_HASH_BITS: Final = 32
_MODULUS: Final = 1 << 64
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


def digest_of(rows: Rows, crcs: Int64s | None = None) -> int:
    """Return the digest of rows, in [0, 2⁶⁴); 0 for none.

    ``crcs`` are the CRC-32 of their bodies as BODYCRC has them, if they are known: int64[n].
    """
    topics = np.array([hash_text(name or "") for name in (*rows.topic_names, "")], np.int64)
    bodies = body_crcs(rows.bodies) if crcs is None else crcs
    blocks = _blocks(rows)
    hashes = hash_strings(blocks).values.astype(np.int64)
    found: _Hashes = np.zeros(len(rows), np.uint64)
    for column in (
        bodies | binary_lengths(rows.bodies) << _HASH_BITS,
        hashes | binary_lengths(blocks) << _HASH_BITS,
        topics[rows.topics],
        rows.flags,
        rows.queue_ids,
        rows.delay_levels,
    ):
        found = _mixed(found, column)
    return int(found.sum(dtype=np.uint64))


def joined(first: int, second: int) -> int:
    """Return the digest of the rows of both."""
    return (first + second) % _MODULUS


def as_text(digest: int) -> str:
    """Return a digest as 16 hex digits."""
    return f"{digest:016x}"


def _blocks(rows: Rows) -> pa.Array:
    """Return the properties that each row gives, as one text."""
    user = None if rows.properties is None else join_map(rows.properties, rows.wanted)
    typed: list[tuple[str, pa.Array | str]] = [
        (p.KEYS, rows.keys),
        (p.TAGS, rows.tags),
        (p.WAIT, rows.wait_texts),
        (p.SHARDING_KEY, rows.sharding_keys),
    ]
    return join_blocks(len(rows), user, typed).cast(pa.string())


def _mixed(found: _Hashes, column: Int64s) -> _Hashes:
    mixed = (found ^ column.astype(np.int64).view(np.uint64)) + _STEP
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return np.asarray(mixed ^ (mixed >> _SHIFTS[-1]), np.uint64)

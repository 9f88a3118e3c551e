"""A digest of 128 bits of each message of a batch: of its identity, flag, properties and body.

Each part is hashed with the digest of the parts before it as the key. Properties count in any
order: their digests are added, each with its name's digest as the key.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.siphash import siphash
from mqstore.format.arrays import Bytes, Int64s, UInt64Pairs
from mqstore.format.hashing import HASH_WORD

IDENTITIES: Final = {"offset": ("topic", "queueId", "queueOffset"), "id": ("msgId",)}
"""The columns of a message's identity: where it lies, or the id that its producer gave it."""
OF_CONTENT: Final = ("flag", "properties", "body")

FIRST_KEY: Final = np.array([0x6D716C6F67206175, 0x6469742031000000], np.uint64)


def message_digests(batch: pa.RecordBatch, by: str, left_out: Collection[str]) -> UInt64Pairs:
    """Return the digest of each message: ``uint64[n, 2]``.

    The batch has the columns of the identity ``by`` and those of OF_CONTENT; ``left_out`` are names
    of properties that do not count.
    """
    keys = identity_digests(batch, by)
    keys = _numbers([batch.column("flag")], keys)
    sums = _properties(batch.column("properties"), left_out)
    keys = _rows(sums.astype(HASH_WORD), keys)
    return _texts(batch.column("body"), keys)


def identity_digests(batch: pa.RecordBatch, by: str) -> UInt64Pairs:
    """Return the digest of the identity of each message."""
    keys = np.broadcast_to(FIRST_KEY, (batch.num_rows, 2))
    columns = [batch.column(name) for name in IDENTITIES[by]]
    keys = _texts(columns[0], keys)
    return _numbers(columns[1:], keys) if columns[1:] else keys


def _texts(column: pa.Array, keys: UInt64Pairs) -> UInt64Pairs:
    content, edges = _content(column)
    return siphash(content, edges[:-1], np.diff(edges), keys)


def _numbers(columns: list[pa.Array], keys: UInt64Pairs) -> UInt64Pairs:
    table = [column.cast(pa.int64()).to_numpy(zero_copy_only=False) for column in columns]
    return _rows(np.stack(table, axis=1).astype(HASH_WORD), keys)


def _rows(table: UInt64Pairs, keys: UInt64Pairs) -> UInt64Pairs:
    size = table.shape[1] * HASH_WORD.itemsize
    starts = np.arange(len(table), dtype=np.int64) * size
    content = np.ascontiguousarray(table).view(np.uint8).reshape(-1)
    return siphash(content, starts, np.full(len(table), size, np.int64), keys)


def _properties(column: pa.MapArray, left_out: Collection[str]) -> UInt64Pairs:
    """Return for each row the sum of the digests of its properties that count."""
    edges = np.asarray(column.offsets).astype(np.int64)
    first, end = int(edges[0]), int(edges[-1])
    names = column.keys.slice(first, end - first)
    values = column.items.slice(first, end - first)
    # There are few names, so each is hashed, and looked for, once.
    encoded = names.dictionary_encode()
    known = encoded.dictionary
    named = _texts(known, np.broadcast_to(FIRST_KEY, (len(known), 2)))
    counts = np.array([name not in left_out for name in known.to_pylist()], np.bool_)
    codes = encoded.indices.to_numpy()
    rows = np.flatnonzero(counts[codes]) if len(known) else np.zeros(0, np.int64)
    before = np.zeros((end - first + 1, 2), np.uint64)
    before[rows + 1] = _some(values, rows, named[codes[rows]])
    np.cumsum(before, axis=0, out=before)
    return before[edges[1:] - first] - before[edges[:-1] - first]


def _some(column: pa.StringArray, rows: Int64s, keys: UInt64Pairs) -> UInt64Pairs:
    content, edges = _content(column)
    return siphash(content, edges[rows], edges[rows + 1] - edges[rows], keys)


def _content(column: pa.Array) -> tuple[Bytes, Int64s]:
    """Return the bytes of a column of texts or bodies, and where each value begins and ends."""
    _, edges, content = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    all_edges = np.frombuffer(edges, np.int32)
    found = all_edges[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(content or b"", np.uint8), found

"""Ids of messages by their content: what a message is, and which of its equals.

A message that is encoded for a client ends with its UNIQ_KEY: 32 hex digits and a separator. Its id
is a hash of all in front of that, of its topic, and of a number that counts equal messages. A task
gives each message the id of the first of its equals; whoever has all messages gives the others
theirs.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.encode import Encoded

_ID_DIGITS: Final = 32
_DIGEST_BYTES: Final = 16
_FROM_END: Final = _ID_DIGITS + 1  # The separator stands behind the digits.
_NUMBER_BYTES: Final = 8
_DIGEST: Final = np.dtype([("high", np.uint64), ("low", np.uint64)])


def give_ids(encoded: Encoded, salts: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """Return messages with ids of their content, large_binary[n], and digests, binary(16)[n].

    ``salts`` is what else belongs to each message. The encoded messages are not changed.
    """
    data = bytearray(encoded.records.tobytes())
    view = memoryview(data)
    digests = bytearray()
    ends = encoded.starts + encoded.sizes
    for start, end, salt in zip(encoded.starts.tolist(), ends.tolist(), salts, strict=True):
        state = hashlib.blake2b(salt, digest_size=_DIGEST_BYTES)
        state.update(view[start : end - _FROM_END])
        digest = state.digest()
        data[end - _FROM_END : end - 1] = _id_of(digest, 0)
        digests += digest
    edges = np.append(encoded.starts, ends[-1:]) if len(ends) else np.zeros(1, np.int64)
    return _messages(edges, data), _digests(bytes(digests), len(ends))


def number_equals(messages: pa.Array, digests: pa.Array) -> tuple[pa.Array, list[str]]:
    """Return the messages with an id of its own for each, and the ids, in their order."""
    count = len(messages)
    if not count:
        return messages, []
    edges = np.frombuffer(messages.buffers()[1], np.int64, count + 1, 8 * messages.offset)
    held = np.frombuffer(digests.buffers()[1], _DIGEST, count, _DIGEST_BYTES * digests.offset)
    data = bytearray(messages.buffers()[2])
    numbers = _numbers(held)
    for row in np.flatnonzero(numbers).tolist():
        end = int(edges[row + 1])
        made = _id_of(digests[row].as_py(), int(numbers[row]))
        data[end - _FROM_END : end - 1] = made
    ids = [data[end - _FROM_END : end - 1].decode("ascii", "replace") for end in edges[1:].tolist()]
    return _messages(edges, data), ids


def _numbers(digests: "np.ndarray[tuple[int], np.dtype[np.void]]") -> Int64s:
    """Return for each digest how many equal ones stand in front of it."""
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    firsts = np.cumsum(counts) - counts
    numbers = np.empty(len(digests), np.int64)
    numbers[order] = np.arange(len(digests)) - firsts[inverse.ravel()[order]]
    return numbers


def _id_of(digest: bytes, number: int) -> bytes:
    text = digest + number.to_bytes(_NUMBER_BYTES, "big")
    return hashlib.blake2b(text, digest_size=_ID_DIGITS // 2).hexdigest().upper().encode()


def _messages(edges: Int64s, data: bytearray) -> pa.Array:
    starts = pa.py_buffer(np.ascontiguousarray(edges, np.int64))
    buffers = [None, starts, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)


def _digests(data: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(_DIGEST_BYTES), count, [None, pa.py_buffer(data)])

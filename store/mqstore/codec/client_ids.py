"""Ids of messages by their content: what a message is, and which of its equals.

A message that is encoded for a client ends with its UNIQ_KEY: 32 hex digits and a separator. Its id
is a hash of all in front of that, of its topic, and of a number that counts equal messages. A task
gives each message the id of the first of its equals; the publisher, which has the messages of all
tasks, gives the others theirs.
"""

import hashlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec.encode import Encoded
from mqstore.format.arrays import Int32s, Int64s

_ID_DIGITS: Final = 32
_DIGEST_BYTES: Final = 16
_FROM_END: Final = _ID_DIGITS + 1  # The separator stands behind the digits.
_NUMBER_BYTES: Final = 8
ID: Final = np.dtype("S32")
Ids: TypeAlias = NDArray[np.bytes_]
"""Ids of messages: S32[n]."""
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


class IdSet(AbstractSet[str]):
    """Ids of messages as a set that takes 32 bytes for each; ``ids`` are in any order: S32[n]."""

    def __init__(self, ids: Ids) -> None:
        self._ids = np.sort(ids)

    @property
    def sorted(self) -> Ids:
        """The ids in their order."""
        return self._ids

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        """Yield them in their order."""
        return (id_.decode() for id_ in self._ids.tolist())

    def __contains__(self, id_: object) -> bool:
        """Tell whether there is such an id."""
        if not isinstance(id_, str) or len(id_) != _ID_DIGITS or not id_.isascii():
            return False
        wanted = id_.encode()
        place = int(np.searchsorted(self._ids, wanted))
        return place < len(self._ids) and bool(self._ids[place] == wanted)


def digest_of_ids(ids: AbstractSet[str]) -> str:
    """Return 32 hex digits that stand for a set of ids."""
    held = ids if isinstance(ids, IdSet) else IdSet(np.array([*map(str.encode, ids)], ID))
    return hashlib.blake2b(held.sorted.data, digest_size=_DIGEST_BYTES).hexdigest()


def number_equals(digests: bytes) -> Int32s:
    """Return for each of the 16-byte digests how many equal ones stand in front of it."""
    held = np.frombuffer(digests, _DIGEST)
    _, inverse, counts = np.unique(held, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    firsts = np.cumsum(counts) - counts
    numbers = np.empty(len(held), np.int32)
    numbers[order] = np.arange(len(held)) - firsts[inverse.ravel()[order]]
    return numbers


def first_ids_of(messages: pa.Array) -> Ids:
    """Return the ids that messages, large_binary[n], have: those of a task, S32[n]."""
    count = len(messages)
    if not count:
        return np.zeros(0, ID)
    edges = np.frombuffer(messages.buffers()[1], np.int64, count + 1, 8 * messages.offset)
    data = np.frombuffer(messages.buffers()[2], np.uint8)
    places = edges[1:, np.newaxis] + np.arange(-_FROM_END, -1)
    return np.ascontiguousarray(data[places]).view(ID).ravel()


def number_ids(ids: Ids, digests: bytes, numbers: Int32s) -> Ids:
    """Return the ids of messages with those numbers, given the ids that tasks gave them."""
    found = ids.copy()
    for row in np.flatnonzero(numbers).tolist():
        digest = digests[row * _DIGEST_BYTES : (row + 1) * _DIGEST_BYTES]
        found[row] = _id_of(digest, int(numbers[row]))
    return found


def give_numbers(messages: pa.Array, digests: pa.Array, numbers: Int32s) -> pa.Array:
    """Return messages, large_binary[n], with the ids that the numbers give them."""
    changed = np.flatnonzero(numbers).tolist()
    if not changed:
        return messages
    edges = np.frombuffer(messages.buffers()[1], np.int64, len(messages) + 1, 8 * messages.offset)
    data = bytearray(messages.buffers()[2])
    for row in changed:
        end = int(edges[row + 1])
        made = _id_of(digests[row].as_py(), int(numbers[row]))
        data[end - _FROM_END : end - 1] = made
    return _messages(edges, data)


def _id_of(digest: bytes, number: int) -> bytes:
    text = digest + number.to_bytes(_NUMBER_BYTES, "big")
    return hashlib.blake2b(text, digest_size=_ID_DIGITS // 2).hexdigest().upper().encode()


def _messages(edges: Int64s, data: bytearray) -> pa.Array:
    starts = pa.py_buffer(np.ascontiguousarray(edges, np.int64))
    buffers = [None, starts, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)


def _digests(data: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(_DIGEST_BYTES), count, [None, pa.py_buffer(data)])

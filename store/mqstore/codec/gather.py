"""Record starts in a buffer to native header columns, each record checked once.

A header field sits at its IPv4 position, moved by 12 for each IPv6 host before it, so a field
of all records is one gather whatever their hosts are. Above this room bytes are trusted: every
record that ``check`` passes has lengths that add up to its size.

Reference: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqstore.format.arrays import Bytes, Int32s, Int64s, Mask, Structs
from mqstore.format.message import (
    HEADER,
    HOST_VARIANT_MASK,
    IP_V4_BYTES,
    IP_V6_BYTES,
    PROPERTIES_LENGTHS,
    TOPIC_LENGTHS,
    version_indices,
)
from mqstore.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

assert HEADER.fields is not None
_FIELDS = {name: (field[0], field[1]) for name, field in HEADER.fields.items()}
_BORN_IP = _FIELDS["born_ip"][1]
_STORE_IP = _FIELDS["store_ip"][1]
_V6_MORE = IP_V6_BYTES - IP_V4_BYTES
_BYTES = np.dtype(f"V{HEADER.itemsize}")  # Copied whole, where a structure is field by field.


def sliding(buffer: Bytes, dtype: "np.dtype[Any]") -> NDArray[Any]:
    """Return a view whose item i is the ``dtype`` at byte i of ``buffer``; nothing is copied."""
    count = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, buffer, strides=(1,))


def items_at(buffer: Bytes, positions: Int64s, dtype: "np.dtype[Any]") -> NDArray[Any]:
    """Return the ``dtype`` at each position; of one that is not in the buffer, at its edge.

    A length that damage has changed may point anywhere; who reads behind it refuses it later.
    """
    view = sliding(buffer, dtype)
    if not len(view):
        return np.zeros(len(positions), dtype)
    return view[np.clip(positions, 0, len(view) - 1)]


def widths_of(versions: Int64s, lengths: Sequence["np.dtype[Any]"]) -> Int64s:
    """Return the bytes that a length takes in records of those versions; of no version as of 1."""
    return np.array([dtype.itemsize for dtype in lengths], np.int64)[np.maximum(versions, 0)]


def lengths_at(
    buffer: Bytes, positions: Int64s, versions: Int64s, lengths: Sequence["np.dtype[Any]"]
) -> Int64s:
    """Return the lengths at those positions, each as wide as ``lengths`` has it for its version.

    A record of no version is read as one of version 1. A length is negative in a broken record.
    """
    found: Int64s = items_at(buffer, positions, lengths[0]).astype(np.int64)
    for index, dtype in enumerate(lengths):
        if dtype != lengths[0] and (rows := np.flatnonzero(versions == index)).size:
            found[rows] = items_at(buffer, positions[rows], dtype)
    return found


class RecordHeaders:
    """The headers of n records in one buffer: ``buffer[starts[i] : starts[i] + sizes[i]]``."""

    def __init__(self, buffer: Bytes, starts: Int64s, sizes: Int64s) -> None:
        self.buffer = buffer
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def within(cls, data: bytes | bytearray, starts: Int64s, sizes: Int64s) -> "RecordHeaders":
        """Return the headers of records in ``data``; what is written to them changes it."""
        return cls(np.frombuffer(data, np.uint8), starts, sizes)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Int64s | Mask) -> "RecordHeaders":
        """Return the headers of those rows only."""
        return RecordHeaders(self.buffer, self.starts[rows], self.sizes[rows])

    def field(self, name: str) -> NDArray[Any]:
        """Return one header field of all records, in the machine's byte order."""
        dtype, _ = _FIELDS[name]
        values = self._at(self.position(name), dtype) if self.has_v6 else self._fixed[name]
        return values.astype(dtype.newbyteorder("="))

    def position(self, name: str) -> Int64s:
        """Return where in the buffer that field of each record starts."""
        position = _FIELDS[name][1]
        places = self.starts + position
        if self.has_v6:
            if position > _BORN_IP:
                places += _V6_MORE * ((self.sys_flags & BORN_HOST_V6) != 0)
            if position > _STORE_IP:
                places += _V6_MORE * ((self.sys_flags & STORE_HOST_V6) != 0)
        return places

    @cached_property
    def sys_flags(self) -> Int32s:
        """SYSFLAG of each record."""
        return self._fixed["sys_flag"].astype(np.int32)

    @cached_property
    def has_v6(self) -> bool:
        """Tell whether any record has an IPv6 host."""
        return bool((self.sys_flags & HOST_VARIANT_MASK).any())

    @cached_property
    def magics(self) -> Int32s:
        """Magic of each record."""
        return self.field("magic")

    @cached_property
    def body_starts(self) -> Int64s:
        """Where each body starts in the buffer."""
        return self.position("body_length") + _FIELDS["body_length"][0].itemsize

    @cached_property
    def body_lengths(self) -> Int64s:
        """Bytes of each stored body; 0 for a negative length, which only a broken record has."""
        return np.maximum(self.field("body_length").astype(np.int64), 0)

    @cached_property
    def topic_starts(self) -> Int64s:
        """Where each topic starts in the buffer."""
        return self._topic_length_at + widths_of(self._versions, TOPIC_LENGTHS)

    @cached_property
    def topic_lengths(self) -> Int64s:
        """Bytes of each topic; negative in a broken record."""
        return lengths_at(self.buffer, self._topic_length_at, self._versions, TOPIC_LENGTHS)

    @cached_property
    def properties_starts(self) -> Int64s:
        """Where each property block starts in the buffer."""
        return self._properties_length_at + widths_of(self._versions, PROPERTIES_LENGTHS)

    @cached_property
    def properties_lengths(self) -> Int64s:
        """Bytes of each property block."""
        return np.maximum(self._stated_properties_lengths, 0)

    def body(self, row: int) -> memoryview:
        """Return one stored body, not copied."""
        start = int(self.body_starts[row])
        return self.buffer.data[start : start + int(self.body_lengths[row])]

    def lack_ends_of_properties(self) -> Mask:
        """Tell which property blocks end with two zeros or more: their broker was killed there.

        All must be whole. The page of a mapped file that a broker had not written yet is zeros.
        """
        ends = self.properties_starts + self.properties_lengths
        short = self.properties_lengths < 2
        lacking: Mask = ~short & (self.buffer[ends - 1] == 0) & (self.buffer[ends - 2] == 0)
        return lacking

    def have_topics(self, topics: Sequence[str], which: Int64s) -> Mask:
        """Tell for each record whether its topic is ``topics[which[i]]``; all must be whole."""
        same = np.zeros(len(self), np.bool_)
        names = [topic.encode() for topic in topics]
        for name in set(names):
            chosen = np.array([other == name for other in names], np.bool_)
            rows = np.flatnonzero(chosen[which] & (self.topic_lengths == len(name)))
            window = sliding(self.buffer, np.dtype(f"S{len(name)}"))
            same[rows] = window[self.topic_starts[rows]] == name
        return same

    def problems(self) -> dict[int, str]:
        """Return the broken records: row → the rule it breaks. All others may be trusted."""
        found: dict[int, str] = {}
        for broken, reason in self._rules():
            for row in np.flatnonzero(broken).tolist():
                found.setdefault(row, reason)
        return found

    def _rules(self) -> list[tuple[Mask, str]]:
        total = self.field("total_size")
        room = self.sizes - (self.body_starts - self.starts)
        body = self.field("body_length")
        in_body = (body >= 0) & (body <= room)
        end = self.starts + self.sizes
        topic = (self.topic_lengths > 0) & (self.properties_starts <= end)
        ends = self.properties_starts + self.properties_lengths
        adds_up = (self._stated_properties_lengths >= 0) & (ends == end)
        return [
            (self._versions < 0, "no record starts here (bad magic)"),
            (total != self.sizes, "TOTALSIZE is not the size in the ConsumeQueue"),
            (~in_body, "body length reaches out of the record"),
            (~topic, "topic length reaches out of the record"),
            (~adds_up, "lengths of body, topic and properties do not add up to TOTALSIZE"),
        ]

    @cached_property
    def _fixed(self) -> Structs:
        """The headers as they are if both hosts are IPv4; with others, right up to ``born_ip``.

        One gather for all fields: each is fetched from here without touching the records again.
        """
        if len(self.buffer) >= HEADER.itemsize:
            return self._at(self.starts, _BYTES).view(HEADER)
        padded = np.zeros(HEADER.itemsize, np.uint8)
        padded[: len(self.buffer)] = self.buffer
        return sliding(padded, HEADER)[np.zeros(len(self.starts), np.int64)]

    @cached_property
    def _versions(self) -> Int64s:
        return version_indices(self.magics)

    @cached_property
    def _stated_properties_lengths(self) -> Int64s:
        at = self._properties_length_at
        return lengths_at(self.buffer, at, self._versions, PROPERTIES_LENGTHS)

    @cached_property
    def _topic_length_at(self) -> Int64s:
        return self.body_starts + self.body_lengths

    @cached_property
    def _properties_length_at(self) -> Int64s:
        return self.topic_starts + np.maximum(self.topic_lengths, 0)

    def _at(self, positions: Int64s, dtype: "np.dtype[Any]") -> NDArray[Any]:
        return items_at(self.buffer, positions, dtype)

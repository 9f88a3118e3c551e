"""Columns to CommitLog records: one buffer of whole records and where each one starts.

Offsets and store timestamps are left zero: see patch.py. A compiled kernel writes record after
record. Without one the header of all records is one numpy structure; headers, bodies, topics and
properties are then joined, record by record, in one pass over memory.

Reference: org.apache.rocketmq.store.MessageExtEncoder#encode.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec import compute as pc
from mqstore.codec.checksum import crc_of
from mqstore.format.arrays import Bytes, Int32s, Int64s, Recycled, Structs
from mqstore.format.message import (
    HEADERS,
    HOST_VARIANT_SHIFT,
    IP_V6_BYTES,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH,
)
from mqstore.format.record_versions import WRITTEN_VERSION
from mqstore.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from mqstore.native import records

# MessageDecoder#encodeMessage: total size, magic, body CRC, flag, length of the body: 4 bytes each;
# length of the properties: 2. The request names the topic. A batch is messages end to end.
_CLIENT_FIXED_BYTES: Final = 5 * 4 + 2
_NARROW: Final = (pa.binary(), pa.string())  # Their values lie between int32 edges.


@dataclass(frozen=True, slots=True)
class Hosts:
    """Address bytes (4 or 16) and port of the producer and of the broker."""

    born_ip: bytes
    born_port: int
    store_ip: bytes
    store_port: int

    @property
    def sys_flag(self) -> int:
        """The bits of SYSFLAG that tell the two address families."""
        born = BORN_HOST_V6 if len(self.born_ip) == IP_V6_BYTES else 0
        store = STORE_HOST_V6 if len(self.store_ip) == IP_V6_BYTES else 0
        return born | store

    @property
    def variant(self) -> int:
        """Index into message.HEADERS."""
        return self.sys_flag >> HOST_VARIANT_SHIFT


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages, one row each, before they are encoded for a store or a broker. No array has nulls.

    ``topics`` are indices into ``topic_names``, each at most 127 bytes; ``sys_flags`` lack the
    bits of the hosts; ``bodies`` are as they are to be stored; ``properties`` are whole blocks.
    """

    topic_names: tuple[str, ...]
    topics: Int32s
    queue_ids: Int32s
    flags: Int32s
    sys_flags: Int32s
    born_timestamps_ms: Int64s
    bodies: pa.Array
    properties: pa.Array

    def sizes(self, hosts: Hosts) -> Int64s:
        """Return the bytes of each record."""
        names = np.array([len(name.encode()) for name in self.topic_names], np.int64)
        fixed = HEADERS[hosts.variant].itemsize + TOPIC_LENGTH.itemsize
        tails = binary_lengths(self.bodies) + binary_lengths(self.properties)
        return tails + names[self.topics] + fixed + PROPERTIES_LENGTH.itemsize

    def client_sizes(self) -> Int64s:
        """Return the bytes of each message as a producer encodes it into a batch: int64[n].

        They, and not the records', are what a producer's limit of a batch counts.
        """
        variable = binary_lengths(self.bodies) + binary_lengths(self.properties)
        return variable + _CLIENT_FIXED_BYTES

    def take(self, rows: NDArray[np.intp]) -> "Messages":
        """Return the messages of those rows, in that order."""
        chosen = pa.array(rows)
        return Messages(
            self.topic_names,
            self.topics[rows],
            self.queue_ids[rows],
            self.flags[rows],
            self.sys_flags[rows],
            self.born_timestamps_ms[rows],
            self.bodies.take(chosen),
            self.properties.take(chosen),
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """Record i is ``records[starts[i] : starts[i] + sizes[i]]``; they follow without a gap."""

    records: Bytes
    starts: Int64s
    sizes: Int64s


def encode(
    messages: Messages,
    hosts: Hosts,
    order: NDArray[np.intp] | None = None,
    memory: Recycled | None = None,
) -> Encoded:
    """Return the records of ``messages``, those of the rows ``order``, in that order.

    They lie in ``memory``, if it is given. Together they must stay under 2 GiB.
    """
    sizes = messages.sizes(hosts)
    if order is not None:
        sizes = sizes[order]
    starts = np.cumsum(sizes) - sizes
    room = (memory or Recycled(most=1)).take(int(sizes.sum()))
    made = np.frombuffer(room, np.uint8) if len(room) else np.zeros(0, np.uint8)
    if not _in_one_pass(messages, hosts, records.EndToEnd(order, sizes, made)):
        made = _column_by_column(messages if order is None else messages.take(order), hosts, sizes)
    return Encoded(made, starts, sizes)


def _in_one_pass(messages: Messages, hosts: Hosts, places: records.EndToEnd) -> bool:
    """Let the compiled kernel make the records; tell whether it did, or numpy must."""
    fields = records.Fields(
        messages.topics,
        messages.queue_ids,
        messages.flags,
        messages.sys_flags | hosts.sys_flag,
        messages.born_timestamps_ms,
    )
    tails = messages.bodies, messages.properties
    header = _shared_header(1, hosts).tobytes()
    return records.encode(header, _topic_tails(messages), fields, tails, places)


def _shared_header(count: int, hosts: Hosts) -> Structs:
    """Return headers with what is the same in all records; the rest is zero."""
    header = np.zeros(count, HEADERS[hosts.variant])
    header["magic"] = WRITTEN_VERSION.magic
    header["born_ip"] = np.void(hosts.born_ip)
    header["born_port"] = hosts.born_port
    header["store_ip"] = np.void(hosts.store_ip)
    header["store_port"] = hosts.store_port
    return header


def _column_by_column(messages: Messages, hosts: Hosts, sizes: Int64s) -> Bytes:
    header = _shared_header(len(messages.topics), hosts)
    header["total_size"] = sizes
    header["body_crc"] = body_crcs(messages.bodies)
    header["queue_id"] = messages.queue_ids
    header["flag"] = messages.flags
    header["sys_flag"] = messages.sys_flags | hosts.sys_flag
    header["born_timestamp_ms"] = messages.born_timestamps_ms
    header["body_length"] = binary_lengths(messages.bodies)
    property_lengths = binary_lengths(messages.properties).astype(PROPERTIES_LENGTH)
    joined = pc.binary_join_element_wise(
        fixed_width(header),
        messages.bodies,
        _topics(messages),
        fixed_width(property_lengths),
        messages.properties,
        pa.scalar(b""),
    )
    data = joined.buffers()[2]
    made = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return made[: int(sizes.sum())]


def body_crcs(bodies: pa.Array) -> Int64s:
    """Return BODYCRC of each body; 0 for an empty one, as CRC-32's own is."""
    _, positions, data = bodies.buffers()
    if not len(bodies) or data is None:
        return np.zeros(len(bodies), np.int64)
    edges = np.frombuffer(positions, np.int32, len(bodies) + 1, bodies.offset * 4)
    starts = edges.astype(np.int64)
    return crc_of(np.frombuffer(data, np.uint8), starts[:-1], np.diff(starts))


def binary_lengths(values: pa.Array) -> Int64s:
    """Return the bytes of each value of a binary array; 0 for null."""
    is_plain = isinstance(values, pa.Array) and values.type in _NARROW
    if is_plain and len(values) and not values.null_count:
        edges = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
        return np.diff(edges).astype(np.int64)
    lengths = pc.binary_length(values)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    found: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _topic_tails(messages: Messages) -> list[bytes]:
    encoded = [name.encode() for name in messages.topic_names]
    return [len(name).to_bytes(TOPIC_LENGTH.itemsize, "big") + name for name in encoded]


def _topics(messages: Messages) -> Any:
    """Return each record's topic with its length byte before it."""
    tails = _topic_tails(messages)
    if len(tails) == 1:
        return pa.scalar(tails[0], pa.binary())
    return pa.array(tails, pa.binary()).take(pa.array(messages.topics))


def fixed_width(values: NDArray[Any]) -> pa.Array:
    """Return an array of n items as a binary array of n equal lengths, without a copy."""
    width = values.dtype.itemsize
    positions = np.arange(0, width * (len(values) + 1), width, dtype=np.int32)
    buffers = [None, pa.py_buffer(positions), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


_MAX_TOPIC: Final = np.iinfo(TOPIC_LENGTH).max
assert _MAX_TOPIC == 127

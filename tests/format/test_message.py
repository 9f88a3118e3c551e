"""The record's declared layout is the one the oracle writes."""

import struct

import pytest
from hypothesis import given

from mqstore.format import message, sys_flag
from support import oracle, strategies
from support.oracle import Message

# What each field of the header is, for the oracle.
VALUES = {
    "total_size": lambda m: struct.pack(">i", m.size),
    "magic": lambda m: struct.pack(">i", m.magic),
    "body_crc": lambda m: struct.pack(">i", m.crc),
    "queue_id": lambda m: struct.pack(">i", m.queue_id),
    "flag": lambda m: struct.pack(">i", m.flag),
    "queue_offset": lambda m: struct.pack(">q", m.queue_offset),
    "physical_offset": lambda m: struct.pack(">q", m.physical_offset),
    "sys_flag": lambda m: struct.pack(">i", m.sys_flag),
    "born_timestamp_ms": lambda m: struct.pack(">q", m.born_timestamp_ms),
    "born_ip": lambda m: m.born_host.ip,
    "born_port": lambda m: struct.pack(">i", m.born_host.port),
    "store_timestamp_ms": lambda m: struct.pack(">q", m.store_timestamp_ms),
    "store_ip": lambda m: m.store_host.ip,
    "store_port": lambda m: struct.pack(">i", m.store_host.port),
    "reconsume_times": lambda m: struct.pack(">i", m.reconsume_times),
    "prepared_transaction_offset": lambda m: struct.pack(">q", m.prepared_transaction_offset),
    "body_length": lambda m: struct.pack(">i", len(m.body)),
}


@given(one=strategies.messages())
def test_every_field_lies_where_the_oracle_writes_it(one: Message) -> None:
    record = oracle.encode(one)
    variant = (one.sys_flag & message.HOST_VARIANT_MASK) >> message.HOST_VARIANT_SHIFT
    header = message.HEADERS[variant]
    assert header.names == tuple(VALUES)
    for name, (dtype, position) in header.fields.items():
        assert record[position : position + dtype.itemsize] == VALUES[name](one), name


@given(one=strategies.messages())
def test_no_record_is_smaller_than_the_smallest(one: Message) -> None:
    # The smallest has no topic: a record with one has at least one byte more.
    assert one.size > message.MIN_RECORD_BYTES


def test_the_constants_are_the_oracles() -> None:
    assert message.RECORD_MAGICS == (oracle.V1, oracle.V2)
    assert message.BLANK_MAGIC == oracle.BLANK
    assert oracle.blank(message.MIN_BLANK_BYTES) == struct.pack(">ii", 8, oracle.BLANK)
    assert sys_flag.CODEC_BITS == {"lz4": oracle.LZ4, "zstd": oracle.ZSTD, "zlib": oracle.ZLIB}
    assert (sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6) == (oracle.BORN_V6, oracle.STORE_V6)
    assert sys_flag.TRANSACTION_STATES == {4: "PREPARED", 8: "COMMIT", 12: "ROLLBACK"}


@pytest.mark.parametrize(("born_v6", "store_v6"), [(False, False), (True, False), (True, True)])
def test_each_ipv6_host_makes_the_header_twelve_bytes_longer(born_v6: bool, store_v6: bool) -> None:
    header = message.header(born_v6=born_v6, store_v6=store_v6)
    assert header.itemsize == 88 + 12 * (born_v6 + store_v6)

"""Record headers: every field of any batch agrees with the oracle, every broken record is found."""

import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.gather import RecordHeaders
from mqstore.format.message import HEADERS
from support import oracle, strategies
from support.oracle import Message
from support.stores import packed, place


def headers_of(data: bytes, starts: list[int], sizes: list[int]) -> RecordHeaders:
    return RecordHeaders(
        np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(sizes, np.int64)
    )


@given(batch=strategies.batches())
def test_every_field_of_any_batch_is_what_the_oracle_wrote(batch: list[Message]) -> None:
    placed = place(batch)
    headers = headers_of(*packed(placed))
    assert headers.problems() == {}
    assert headers.has_v6 == any(m.sys_flag & 0x30 for m in placed)
    for name, value in {
        "total_size": lambda m: m.size,
        "magic": lambda m: m.magic,
        "body_crc": lambda m: m.crc,
        "queue_id": lambda m: m.queue_id,
        "flag": lambda m: m.flag,
        "queue_offset": lambda m: m.queue_offset,
        "physical_offset": lambda m: m.physical_offset,
        "sys_flag": lambda m: m.sys_flag,
        "born_timestamp_ms": lambda m: m.born_timestamp_ms,
        "born_port": lambda m: m.born_host.port,
        "store_timestamp_ms": lambda m: m.store_timestamp_ms,
        "store_port": lambda m: m.store_host.port,
        "reconsume_times": lambda m: m.reconsume_times,
        "prepared_transaction_offset": lambda m: m.prepared_transaction_offset,
        "body_length": lambda m: len(m.body),
    }.items():
        field = headers.field(name)
        assert field.dtype.isnative, name
        assert field.tolist() == [value(m) for m in placed], name


@given(batch=strategies.batches())
def test_the_tail_of_any_record_lies_where_the_oracle_put_it(batch: list[Message]) -> None:
    data, starts, sizes = packed(batch)
    headers = headers_of(data, starts, sizes)
    for parts, ats, lengths in (
        ([m.body for m in batch], headers.body_starts, headers.body_lengths),
        ([m.topic.encode() for m in batch], headers.topic_starts, headers.topic_lengths),
        ([m.properties for m in batch], headers.properties_starts, headers.properties_lengths),
    ):
        found = [data[a : a + n] for a, n in zip(ats.tolist(), lengths.tolist(), strict=True)]
        assert found == parts


def accepted(data: bytes, start: int, size: int) -> bool:
    """Whether the oracle takes exactly these bytes for one record."""
    record = data[start : start + size]
    try:
        return oracle.decode(record).topic != "" and struct.unpack_from(">i", record)[0] == size
    except (oracle.NotARecordError, UnicodeDecodeError):
        return False


@given(batch=strategies.batches(max_size=4), data=st.data())
def test_a_flipped_bit_is_found_when_the_oracle_finds_it(
    batch: list[Message], data: st.DataObject
) -> None:
    if not batch:
        return
    raw, starts, sizes = packed(batch)
    at = data.draw(st.integers(0, len(raw) - 1))
    flipped = bytearray(raw)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    row = max(i for i, start in enumerate(starts) if start <= at)
    inside_text = at - starts[row] >= HEADERS[0].itemsize
    found = headers_of(bytes(flipped), starts, sizes).problems()
    assert set(found) <= {row}
    if not inside_text:
        assert (row in found) == (not accepted(bytes(flipped), starts[row], sizes[row]))


@pytest.mark.parametrize("position", range(90))
def test_every_byte_of_a_header_set_to_ones_breaks_nothing_but_its_record(position: int) -> None:
    good = [Message(topic="T", body=b"b", properties=b"a\x01b\x02") for _ in range(3)]
    raw, starts, sizes = packed(good)
    broken = bytearray(raw)
    broken[starts[1] + position] = 0xFF
    headers = headers_of(bytes(broken), starts, sizes)
    assert (1 in headers.problems()) == (not accepted(bytes(broken), starts[1], sizes[1]))
    assert set(headers.problems()) <= {1}


@pytest.mark.parametrize(
    ("field", "code", "value", "reason"),
    [
        ("total_size", ">i", 0, "TOTALSIZE"),
        ("total_size", ">i", 2**31 - 1, "TOTALSIZE"),
        ("total_size", ">i", -1, "TOTALSIZE"),
        ("magic", ">i", 0, "magic"),
        ("magic", ">i", oracle.BLANK, "magic"),
        ("body_length", ">i", 2**31 - 1, "body length"),
        ("body_length", ">i", 3, "topic length|add up"),
    ],
)
def test_the_reason_names_the_broken_rule(field: str, code: str, value: int, reason: str) -> None:
    raw, starts, sizes = packed([Message(topic="T", body=b"body")])
    broken = bytearray(raw)
    struct.pack_into(code, broken, HEADERS[0].fields[field][1], value)
    found = headers_of(bytes(broken), starts, sizes).problems()
    assert re.search(reason, found[0])


def test_a_buffer_too_short_for_a_header_is_a_problem_not_a_crash() -> None:
    for length in (1, 4, 40, 87):
        assert headers_of(b"\xda" * length, [0], [length]).problems()

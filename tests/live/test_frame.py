"""Frames: what we send is what RocketMQ's codecs read, and what we read is what they send."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.live.remoting.frame import (
    HEAD_BYTES,
    Frame,
    FrameError,
    TooLargeError,
    decode,
    encode,
    sizes,
)

JSON, BINARY = 0, 1
PYTHON, VERSION = 3, 433
TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)
FRAMES = st.builds(
    Frame,
    code=st.integers(0, 32_767),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.integers(0, 3),
    fields=st.dictionaries(TEXTS, TEXTS, max_size=8),
    remark=TEXTS,
    body=st.binary(max_size=100),
)


def in_binary(frame: Frame) -> bytes:
    """Return a command as RocketMQSerializable#rocketMQProtocolEncode does."""
    remark = frame.remark.encode()
    pairs = ((name.encode(), value.encode()) for name, value in frame.fields.items())
    fields = b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
        for name, value in pairs
    )
    head = struct.pack(
        ">hbhiii", frame.code, PYTHON, VERSION, frame.opaque, frame.flag, len(remark)
    )
    header = head + remark + struct.pack(">i", len(fields)) + fields
    mark = BINARY << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(frame.body), mark) + header + frame.body


SENT_AS = {JSON: encode, BINARY: in_binary}


@given(frame=FRAMES, kind=st.sampled_from([JSON, BINARY]))
def test_a_frame_comes_back_as_it_was(frame: Frame, kind: int) -> None:
    data = SENT_AS[kind](frame)
    found_kind, header_bytes, body_bytes = sizes(data[:HEAD_BYTES], len(data))
    assert found_kind == kind
    assert HEAD_BYTES + header_bytes + body_bytes == len(data)
    end = HEAD_BYTES + header_bytes
    assert decode(kind, data[HEAD_BYTES:end], data[end:]) == frame


def test_a_json_request_is_as_the_protocol_says() -> None:
    data = encode(Frame(30, 7, 0, {"topic": "T", "queueId": "0"}, body=b"xy"))
    length, mark = struct.unpack(">iI", data[:8])
    assert length == len(data) - 4
    assert json.loads(data[8 : 8 + mark]) == {
        "code": 30,
        "flag": 0,
        "language": "PYTHON",
        "opaque": 7,
        "version": 433,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": {"topic": "T", "queueId": "0"},
    }
    assert data[8 + mark :] == b"xy"


@given(header=st.binary(max_size=80), kind=st.sampled_from([JSON, BINARY]))
def test_any_bytes_are_a_frame_or_a_frame_error(header: bytes, kind: int) -> None:
    try:
        found = decode(kind, header, b"")
    except FrameError:
        return
    assert isinstance(found.code, int)


@given(frame=FRAMES, kind=st.sampled_from([JSON, BINARY]), data=st.data())
def test_a_frame_with_one_byte_changed_is_a_frame_or_a_frame_error(
    frame: Frame, kind: int, data: st.DataObject
) -> None:
    header = bytearray(SENT_AS[kind](frame)[HEAD_BYTES:])
    place = data.draw(st.integers(0, len(header) - 1))
    header[place] ^= data.draw(st.integers(1, 255))
    try:
        decode(kind, header, b"")
    except FrameError:
        return


def test_a_frame_at_the_limit_is_taken_and_one_above_is_too_large() -> None:
    assert sizes(struct.pack(">iI", 1_000, 0), 1_000) == (JSON, 0, 996)
    with pytest.raises(TooLargeError, match="maxFrameBytes=999"):
        sizes(struct.pack(">iI", 1_000, 0), 999)

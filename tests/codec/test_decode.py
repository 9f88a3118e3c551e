"""Decoding to columns: agrees with the oracle on any batch, whichever columns are asked for."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.bodies import decompress_bodies
from mqstore.codec.decode import COLUMN_OF, QueuePositions, Records, decode
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.schema import BY_NAME, PROFILES, message_schema
from support import expectations, oracle, strategies
from support.oracle import Message
from support.stores import packed, place, stored

PLENTY = 1 << 30
FULL = PROFILES["full"]


def records_of(messages: list[Message], *, limit: int = PLENTY) -> Records:
    data, starts, sizes = packed(messages)
    headers = RecordHeaders(
        np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(sizes, np.int64)
    )
    queues = sorted({(m.topic, m.queue_id) for m in messages})
    source = QueuePositions(
        queues=[(*queue, "broker-a") for queue in queues],
        queue=np.array([queues.index((m.topic, m.queue_id)) for m in messages], np.int64),
        queue_offsets=np.array([m.queue_offset for m in messages], np.int64),
        tags_codes=np.array([oracle.tags_code(m) for m in messages], np.int64),
    )
    plain = decompress_bodies(headers, limit, PLENTY)
    return Records(headers, source, plain, np.zeros(len(messages), np.bool_))


def decoded(messages: list[Message], columns: tuple[str, ...] = FULL) -> pa.RecordBatch:
    batch = decode(records_of(messages), columns)
    batch.validate(full=True)
    assert batch.schema.equals(message_schema(columns))
    for name in columns:
        assert BY_NAME[name].nullable or batch.column(name).null_count == 0, name
    return batch


@given(batch=strategies.batches())
def test_any_batch_decodes_to_what_the_oracle_says(batch: list[Message]) -> None:
    placed = place(batch)
    expected = [expectations.row(m, "broker-a") for m in placed]
    assert expectations.rows(decoded(placed)) == expected


@given(batch=strategies.batches())
def test_any_batch_decodes_as_kafka_rows(batch: list[Message]) -> None:
    placed = place(batch)
    found = expectations.rows(decoded(placed, PROFILES["kafka"]))
    assert found == [expectations.kafka_row(m) for m in placed]


@given(batch=strategies.batches(max_size=6), columns=st.lists(st.sampled_from(FULL), unique=True))
def test_any_choice_of_columns_gives_those_columns(
    batch: list[Message], columns: list[str]
) -> None:
    if columns:
        placed = place(batch)
        expected = [expectations.row(m, "broker-a") for m in placed]
        assert expectations.rows(decoded(placed, tuple(columns))) == [
            {name: row[name] for name in columns} for row in expected
        ]


@given(message=strategies.delayed())
def test_a_delayed_message_shows_its_delivery_time_as_tags_code(message: Message) -> None:
    (found,) = expectations.rows(decoded(place([message])))
    level = min(int(message.properties_map["DELAY"]), 18)
    delay_ms = 1000 * oracle.LEVELS_S[level - 1]
    assert found["tagsCode"] == message.store_timestamp_ms + delay_ms


def test_every_record_of_a_golden_store_decodes_as_the_oracle_says(
    golden: tuple[str, Path],
) -> None:
    messages = [m for _, data in stored(golden[1]) for _, m in oracle.walk(data)]
    expected = [expectations.row(m, "broker-a") for m in messages]
    assert expectations.rows(decoded(messages)) == expected


def test_every_column_can_be_made_and_every_maker_has_a_column() -> None:
    assert set(COLUMN_OF) == set(BY_NAME)


@pytest.mark.parametrize("columns", [FULL, PROFILES["kafka"]], ids=["full", "kafka"])
def test_no_records_make_an_empty_batch(columns: tuple[str, ...]) -> None:
    assert decoded([], columns).num_rows == 0


@pytest.mark.parametrize("born_ms", [-(2**63), -1, 0, 2**63 - 1])
def test_a_timestamp_no_calendar_has_stands_at_its_edge(born_ms: int) -> None:
    (born,) = decoded([Message(born_timestamp_ms=born_ms)], ("bornTimestamp",)).column(0)
    assert abs(born.as_py().year - max(1, min(born_ms // 31_556_952_000 + 1970, 9999))) <= 1


@pytest.mark.parametrize("codec", [0x400, 0x500, 0x600, 0x700])
def test_an_unknown_codec_is_told_with_its_row(codec: int) -> None:
    good = Message(body=b"plain")
    bad = replace(good, sys_flag=oracle.COMPRESSED | codec)
    plain = records_of([good, bad]).plain
    assert plain is not None
    assert list(plain.broken) == [1]
    assert "unknown compression type" in plain.broken[1]


@pytest.mark.parametrize("codec", [0, oracle.ZLIB, oracle.LZ4, oracle.ZSTD])
def test_a_body_cut_anywhere_is_told_and_never_comes_out_short(codec: int) -> None:
    body = oracle.compress(bytes(range(256)) * 3, codec)
    cuts = [
        Message(body=body[:cut], sys_flag=oracle.COMPRESSED | codec) for cut in range(1, len(body))
    ]
    plain = records_of(cuts).plain
    assert plain is not None
    told = {*plain.broken}
    whole = dict(zip(plain.rows, plain.bodies, strict=True))
    assert told | set(whole) == set(range(len(cuts)))
    # A cut inside a trailing checksum or end mark may still leave all of the data.
    assert all(found == bytes(range(256)) * 3 for found in whole.values())


@pytest.mark.parametrize("codec", [0, oracle.ZLIB, oracle.LZ4, oracle.ZSTD])
def test_a_bomb_is_defused_at_the_limit(codec: int) -> None:
    bomb = Message(body=oracle.compress(bytes(1 << 20), codec), sys_flag=1 | codec)
    exact = records_of([bomb], limit=1 << 20).plain
    assert exact is not None
    assert exact.bodies == [bytes(1 << 20)]
    small = records_of([bomb], limit=(1 << 20) - 1).plain
    assert small is not None
    assert "maxDecompressedBytes" in small.broken[0]


def test_bodies_are_decompressed_only_as_far_as_the_budget_goes() -> None:
    one = Message(body=oracle.compress(bytes(1000), oracle.ZLIB), sys_flag=1 | oracle.ZLIB)
    headers = records_of([one] * 10).headers
    plain = decompress_bodies(headers, limit=1000, budget=2500)
    assert plain.count == 3
    assert [len(body) for body in plain.bodies] == [1000] * 3


def test_an_lz4_frame_of_lz4_java_decompresses() -> None:
    """Bytes as LZ4FrameOutputStream writes them: one raw block, one end mark."""
    frame = bytes.fromhex("04224d18607073") + struct.pack("<I", 5 | 1 << 31) + b"hello" + bytes(4)
    (found,) = decoded([Message(body=frame, sys_flag=1 | oracle.LZ4)], ("body",)).column(0)
    assert found.as_py() == b"hello"

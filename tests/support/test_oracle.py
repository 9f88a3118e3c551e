"""The oracle itself: it rebuilds both golden stores, and is its own inverse."""

import struct
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import expectations, goldens, oracle, strategies
from support.oracle import Message
from support.stores import Layout, is_blank, is_consumable, place, stored

Golden = tuple[str, Path]


def records(root: Path) -> list[Message]:
    return [m for _, data in stored(root) for _, m in oracle.walk(data)]


def test_every_record_of_a_golden_store_encodes_to_its_own_bytes(golden: Golden) -> None:
    _, root = golden
    files = list(stored(root))
    for start, data in files:
        end = 0
        for position, message in oracle.walk(data):
            end = position + message.size
            assert oracle.encode(message) == data[position:end]
            assert message.physical_offset == start + position
            assert message.body_crc is None
        assert is_blank(data[end:]) if start < files[-1][0] else not any(data[end:])


def test_every_unit_of_a_golden_store_follows_from_its_record(golden: Golden) -> None:
    _, root = golden
    queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for message in filter(is_consumable, records(root)):
        queue = queues[message.topic, message.queue_id]
        assert message.queue_offset == len(queue)
        queue.append(oracle.unit(message))
    folders = {(p.parent.name, int(p.name)): p for p in (root / "consumequeue").glob("*/*")}
    assert set(folders) == set(queues)
    for queue_key, folder in folders.items():
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        assert data == b"".join(queues[queue_key]).ljust(len(data), b"\0")


def test_every_index_file_of_a_golden_store_follows_from_its_records(golden: Golden) -> None:
    version, root = golden
    built = oracle.index_files(records(root), slots=100, units=400, tags=version == "5.5.0")
    on_disk = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert [file.bytes() for file in built] == on_disk


def test_every_record_of_a_golden_store_says_what_the_client_decoded(golden: Golden) -> None:
    version, root = golden
    by_place = {(m.topic, m.queue_id, m.queue_offset): m for m in records(root)}
    for row in goldens.expected(version):
        m = by_place[row["topic"], row["queueId"], row["queueOffset"]]
        assert goldens.as_told(expectations.row(m, None), version) == row


@given(batch=strategies.batches())
def test_decode_undoes_encode(batch: list[Message]) -> None:
    data = b"".join(map(oracle.encode, batch))
    assert [m for _, m in oracle.walk(data)] == batch


@given(message=strategies.messages(), data=st.data())
def test_a_cut_record_is_no_record(message: Message, data: st.DataObject) -> None:
    record = oracle.encode(message)
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(oracle.NotARecordError):
        oracle.decode(record[:cut])


@given(body=st.binary(max_size=2000), repeat=st.integers(1, 50))
@pytest.mark.parametrize("codec", [0, oracle.ZLIB, oracle.LZ4, oracle.ZSTD])
def test_decompress_undoes_compress(codec: int, body: bytes, repeat: int) -> None:
    packed = oracle.compress(body * repeat, codec)
    assert oracle.decompress(packed, oracle.COMPRESSED | codec) == body * repeat


@given(message=strategies.messages())
def test_the_property_crc_covers_the_record_but_itself(message: Message) -> None:
    bare = replace(message, properties=b"A\x01b")
    record = oracle.encode(oracle.with_property_crc(bare))
    assert record[-20:-11] == b"__CRC32#\x01"
    assert int(record[-11:-1][::-1]) == oracle.crc32(record[:-20])


@pytest.mark.parametrize(
    ("text", "code"),
    [("TagA", 2598919), ("标签C", 26572492), ("😀", 1772899), ("", 0), ("Aa", 2112), ("BB", 2112)],
)
def test_java_hash_is_what_java_says(text: str, code: int) -> None:
    assert oracle.java_hash(text) == code


@given(batch=strategies.batches(), layout=strategies.layouts())
def test_records_follow_each_other_and_never_cross_a_file(
    batch: list[Message], layout: Layout
) -> None:
    end = layout.start
    for m in place(batch, layout):
        file_end = end + layout.commit_log_bytes - (end - layout.start) % layout.commit_log_bytes
        assert m.physical_offset == (end if end + m.size + 8 <= file_end else file_end)
        end = m.physical_offset + m.size


def test_a_unit_of_a_delayed_message_holds_its_delivery_time() -> None:
    delayed = Message(
        topic=oracle.SCHEDULE_TOPIC,
        properties=oracle.join_properties({"DELAY": "3", "TAGS": "A"}),
        store_timestamp_ms=1_000_000,
    )
    assert struct.unpack(">qiq", oracle.unit(delayed)) == (0, delayed.size, 1_010_000)

"""Encoding: any batch becomes, byte for byte, the records the oracle writes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from mqstore.codec.compress import compress
from mqstore.codec.encode import Hosts, Messages, encode
from mqstore.codec.hashing import hash_strings, hash_text, key_hashes, tags_codes
from mqstore.codec.patch import patch
from mqstore.codec.properties_block import join_blocks, join_map
from oracle import Host, Message
from stores import packed, place

hosts = st.builds(
    lambda ip, port: Host(ip=ip, port=port),
    st.one_of(strategies.ipv4, strategies.ipv6),
    strategies.ports,
)


def messages_of(batch: list[Message]) -> Messages:
    names = tuple(sorted({m.topic for m in batch})) or ("T",)
    return Messages(
        topic_names=names,
        topics=np.array([names.index(m.topic) for m in batch], np.int32),
        queue_ids=np.array([m.queue_id for m in batch], np.int32),
        flags=np.array([m.flag for m in batch], np.int32),
        sys_flags=np.array([m.sys_flag & ~0x30 for m in batch], np.int32),
        born_timestamps_ms=np.array([m.born_timestamp_ms for m in batch], np.int64),
        bodies=pa.array([m.body for m in batch], pa.binary()),
        properties=pa.array([m.properties for m in batch], pa.binary()),
    )


def as_written(m: Message, born: Host, store: Host) -> Message:
    """The same message, sent now from `born` through `store`, as a writer would have it."""
    bits = 0x10 * (len(born.ip) == 16) | 0x20 * (len(store.ip) == 16)
    return replace(
        m,
        born_host=born,
        store_host=store,
        sys_flag=m.sys_flag & ~0x30 | bits,
        magic=oracle.V1,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


@given(batch=strategies.batches(topics=strategies.TOPICS), born=hosts, store=hosts)
def test_any_batch_encodes_to_the_oracles_bytes(
    batch: list[Message], born: Host, store: Host
) -> None:
    # Sealing is not the encoder's: a checksum property is only right where the record lies.
    plain = [replace(m, properties=m.properties.replace(b"__CRC32#", b"crc")) for m in batch]
    placed = place([as_written(m, born, store) for m in plain])
    of = Hosts(born.ip, born.port, store.ip, store.port)
    encoded = encode(messages_of(placed), of)
    records = encoded.records.copy()
    patch(
        records,
        encoded.starts,
        queue_offsets=np.array([m.queue_offset for m in placed], np.int64),
        physical_offsets=np.array([m.physical_offset for m in placed], np.int64),
        store_timestamps_ms=np.array([m.store_timestamp_ms for m in placed], np.int64),
        host_variant=of.variant,
    )
    data, starts, sizes = packed(placed)
    assert records.tobytes() == data
    assert (encoded.starts.tolist(), encoded.sizes.tolist()) == (starts, sizes)
    assert messages_of(placed).sizes(of).tolist() == sizes


@given(batch=strategies.batches(topics=strategies.TOPICS), data=st.data())
def test_any_rows_of_a_batch_encode_alone_as_together(
    batch: list[Message], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(batch) - 1), unique=True)) if batch else []
    of = Hosts(bytes(4), 1, bytes(4), 2)
    some = encode(messages_of(batch).take(np.array(rows, np.intp)), of)
    alone = encode(messages_of([batch[row] for row in rows]), of)
    assert some.records.tobytes() == alone.records.tobytes()


maps = st.lists(
    st.one_of(st.none(), st.dictionaries(strategies.names, strategies.values, max_size=4)),
    max_size=8,
)


@given(rows=maps, data=st.data())
def test_any_maps_join_to_the_oracles_blocks(
    rows: list[dict[str, str] | None], data: st.DataObject
) -> None:
    column = pa.array([None if r is None else list(r.items()) for r in rows],
                      pa.map_(pa.string(), pa.string()))  # fmt: skip
    start = data.draw(st.integers(0, len(rows)))
    column, rows = column.slice(start), rows[start:]
    count = sum(len(r) for r in rows if r)
    wanted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    picks = iter(wanted)
    expected = [
        oracle.join_properties({k: v for k, v in (r or {}).items() if next(picks)}) for r in rows
    ]
    blocks = join_map(column, np.array(wanted, np.bool_))
    assert [block.as_buffer().to_pybytes() for block in blocks] == expected


@given(
    rows=st.lists(
        st.tuples(st.one_of(st.none(), strategies.tags), st.one_of(st.none(), strategies.keys)),
        max_size=8,
    ),
    shared=st.one_of(st.none(), strategies.values),
)
def test_typed_properties_stand_behind_the_users(
    rows: list[tuple[str | None, str | None]], shared: str | None
) -> None:
    user = pa.array([f"n{i}\x01v\x02" for i in range(len(rows))], pa.string())
    typed: list[tuple[str, pa.Array | str]] = [
        ("TAGS", pa.array([tags for tags, _ in rows], pa.string())),
        ("KEYS", pa.array([keys for _, keys in rows], pa.string())),
    ]
    if shared is not None:
        typed.append(("PGROUP", shared))
    blocks = join_blocks(len(rows), user, typed)
    expected = []
    for i, (tags, keys) in enumerate(rows):
        row = {f"n{i}": "v", "TAGS": tags, "KEYS": keys, "PGROUP": shared}
        expected.append({name: value for name, value in row.items() if value is not None})
    assert [oracle.split_properties(block.as_py()) for block in blocks] == expected


@given(texts=st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8")))))
def test_a_column_hashes_as_its_strings_do(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    hashes = hash_strings(column)
    expected = [oracle.java_hash(text or "") for text in texts]
    assert hashes.values.view(np.int32).tolist() == expected
    assert tags_codes(column).tolist() == expected
    assert key_hashes(hashes.values).tolist() == [oracle.key_hash(text or "") for text in texts]


@given(prefix=strategies.names, texts=st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_a_prefix_need_not_be_joined_to_be_hashed(prefix: str, texts: list[str]) -> None:
    prefixes = np.full(len(texts), hash_text(prefix), np.uint32)
    found = hash_strings(pa.array(texts, pa.string())).after(prefixes).values.view(np.int32)
    assert found.tolist() == [oracle.java_hash(prefix + text) for text in texts]


def test_strings_longer_than_the_table_of_powers_hash() -> None:
    texts = ["x" * 5000, "标" * 4097, "a" * 4096 + "😀"]
    found = hash_strings(pa.array(texts, pa.string())).values.view(np.int32)
    assert found.tolist() == [oracle.java_hash(text) for text in texts]


@given(
    bodies=st.lists(st.builds(bytes.__mul__, st.binary(max_size=40), st.integers(1, 200))),
    codec=st.sampled_from(["none", "zlib", "lz4", "zstd"]),
    over=st.sampled_from([0, 1, 100, 4096]),
)
def test_any_bodies_compress_to_what_the_oracle_reads(
    bodies: list[bytes], codec: str, over: int
) -> None:
    stored, flags = compress(pa.array(bodies, pa.binary()), codec, over)
    for body, kept, flag in zip(bodies, stored.to_pylist(), flags.tolist(), strict=True):
        assert oracle.decompress(kept, flag) == body
        assert len(kept) <= len(body)
        if codec == "none" or len(body) < over:
            assert (kept, flag) == (body, 0)


def test_a_zlib_body_is_the_java_clients() -> None:
    stored, flags = compress(pa.array([b"x" * 5000], pa.binary()), "zlib", 4096)
    assert stored[0].as_py()[:2] == bytes.fromhex("785e")
    assert flags.tolist() == [0x301]


@pytest.mark.parametrize("size", [5 << 20, 9 << 20])
def test_lz4_blocks_are_independent_and_of_four_mebibytes(size: int) -> None:
    body = np.random.default_rng(1).bytes(size // 2) + bytes(size // 2)
    stored, flags = compress(pa.array([body], pa.binary()), "lz4", 1)
    frame = stored[0].as_py()
    assert frame[:7] == bytes.fromhex("04224d18607073")
    position, lengths = 7, []
    while length := int.from_bytes(frame[position : position + 4], "little"):
        lengths.append(length & 0x7FFFFFFF)
        position += 4 + lengths[-1]
    assert position + 4 == len(frame)
    assert len(lengths) == -(-size // (4 << 20))
    assert oracle.decompress(frame, flags.tolist()[0]) == body

"""Records, bodies and index chains that lie: named errors or right rows, soon, in little memory."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.hostile import FULL, outcome, read, slices_of, whole, write
from fuzz.in_time import in_time  # noqa: F401 - a fixture
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from support import expectations, oracle
from support.opened import narrowed
from support.oracle import Message
from support.stores import Layout, lay_out

pytestmark = pytest.mark.usefixtures("in_time")


@given(data=st.data())
@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_any_byte_of_the_log_may_change_and_only_what_no_checksum_covers_shows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, mode: str
) -> None:
    laid = whole(tmp_path_factory.mktemp("hostile"), count=4, index=False)
    m = data.draw(st.sampled_from(laid.messages))
    path, start = laid.file_of(m)
    at = data.draw(st.integers(0, m.size - 1))
    write(path, start + at, bytes([data.draw(st.integers(0, 255))]))
    rows = outcome(lambda: read(laid.root, "skip", strict=False, read_mode=mode))
    others = [expectations.row(o, "b") for o in laid.messages if o is not m]
    assert [row for row in rows if row["queueOffset"] != m.queue_offset] == others
    mine = [row for row in rows if row["queueOffset"] == m.queue_offset]
    assert all(row["body"] == m.body for row in mine)


def test_with_a_record_checksum_every_changed_byte_is_found(tmp_path: Path) -> None:
    sealed = oracle.with_property_crc(Message(body=b"body", properties=b"TAGS\x01A\x02"))
    laid = lay_out(tmp_path / "store", [sealed, Message(body=b"other")])
    m = laid.messages[0]
    path, start = laid.file_of(m)
    good = path.read_bytes()
    name_and_digits = range(m.size - 20, m.size)  # without its name there is no checksum at all
    for at in range(m.size):
        bad = bytearray(good)
        bad[start + at] ^= 0x55
        path.write_bytes(bad)
        if at in name_and_digits:
            continue
        with pytest.raises(CorruptStoreError):
            read(laid.root)
        rows = read(laid.root, "skip", strict=False)
        assert [row["body"] for row in rows] == [b"other"], at


@pytest.mark.parametrize("cut", range(0, 2500, 97))
def test_a_store_cut_at_any_byte_is_refused_or_gives_what_is_left(tmp_path: Path, cut: int) -> None:
    laid = whole(tmp_path, count=12)
    (path,) = (laid.root / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.truncate(cut)
    found = outcome(lambda: read(laid.root))
    kept = [m for m in laid.messages if m.physical_offset + m.size <= cut]
    if len(kept) < 12:
        assert isinstance(found, StoreError)
    rows = outcome(lambda: read(laid.root, "skip", strict=False))
    expected = [expectations.row(m, "b") for m in kept]
    assert rows == expected or (cut == 0 and isinstance(rows, list | StoreError))


def test_a_file_cut_while_it_is_read_is_an_error_not_a_signal(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(3000)) for _ in range(20)])
    slices = slices_of(laid.root)
    for mode in ("pread", "mmap"):
        batches = scan(slices, ScanSettings(columns=FULL, read_mode=mode, batch_rows=2))
        next(batches)
        for path in sorted((laid.root / "commitlog").iterdir())[5:]:
            with path.open("r+b") as file:
                file.truncate(100)
        with pytest.raises(CorruptStoreError):
            list(batches)


@pytest.mark.parametrize("codec", [0, oracle.ZLIB, oracle.LZ4, oracle.ZSTD])
def test_a_decompression_bomb_is_stopped_at_the_limit(tmp_path: Path, codec: int) -> None:
    size = 100 << 20
    bomb = Message(body=oracle.compress(bytes(size), codec), sys_flag=1 | codec)
    good = Message(body=b"good")
    laid = lay_out(
        tmp_path / "store", [good, bomb, good], Layout(commit_log_bytes=bomb.size + 4096)
    )
    found = outcome(lambda: read(laid.root, max_decompressed_bytes=1 << 20))
    assert "maxDecompressedBytes" in str(found)
    rows = outcome(lambda: read(laid.root, "skip", max_decompressed_bytes=1 << 20))
    assert [row["body"] for row in rows] == [b"good", b"good"]
    rows = outcome(lambda: read(laid.root, "rescue", max_decompressed_bytes=1 << 20))
    assert [row["crcOk"] for row in rows] == [True, False, True]


def test_many_small_bombs_come_out_a_few_at_a_time(tmp_path: Path) -> None:
    packed = Message(body=oracle.compress(bytes(4 << 20), oracle.ZSTD), sys_flag=1 | oracle.ZSTD)
    laid = lay_out(tmp_path / "store", [packed] * 100, Layout(commit_log_bytes=1 << 20))
    settings = ScanSettings(columns=("body",), batch_bytes=8 << 20)
    sizes = outcome(lambda: [b.nbytes for b in scan(slices_of(laid.root), settings)])
    assert sum(sizes) >= 400 << 20
    assert max(sizes) <= 24 << 20


@given(data=st.data())
def test_an_index_of_any_content_ends(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    laid = whole(tmp_path_factory.mktemp("hostile"), index_slots=3, index_units=30)
    for path in sorted((laid.root / "index").iterdir()):
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(raw) // 4 - 1)) * 4
            struct.pack_into(">i", raw, at, data.draw(st.integers(-3, 40)))
        path.write_bytes(raw)
    outcome(lambda: narrowed(slices_of(laid.root), [f"k{i}" for i in range(5)], []))


def test_a_chain_that_points_at_itself_ends(tmp_path: Path) -> None:
    laid = whole(tmp_path, index_slots=1, index_units=100)
    (path,) = (laid.root / "index").iterdir()
    raw = bytearray(path.read_bytes())
    for number in range(1, 41):
        struct.pack_into(">i", raw, 44 + 20 * number + 16, number)
    path.write_bytes(raw)
    outcome(lambda: narrowed(slices_of(laid.root), ["k1"], []))

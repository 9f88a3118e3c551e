"""Hostile stores: only named errors or right rows, soon, and in little memory.

A store is untrusted bytes: nothing in it may crash, hang, fill memory, or lead out of it.
"""

import os
import signal
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.schema import PROFILES
from mqstore.errors import CorruptStoreError, StoreError, UnsafePathError
from mqstore.files.config import broker_config
from mqstore.files.index.index_file import list_index_files
from mqstore.read.lookup import narrow
from mqstore.read.offsets import AtTimestamp, Latest, resolve
from mqstore.read.plan import QueueSlice, SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.snapshot import take, topics_of
from support import expectations, oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out, write_json

FULL = PROFILES["full"]
LIMIT_BYTES = 256 << 20
LIMIT_S = 20
SECRET = b"secret of another directory"


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Fail whoever does not come back: an alarm reaches even a blocked open()."""

    def late(*_: object) -> None:
        raise AssertionError(f"still not back after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def slices_of(root: Path, *, strict: bool = True) -> list[QueueSlice]:
    snapshot = take(root, broker_name="b", strict=strict)
    of = (snapshot.store.root, snapshot.store.commit_log, "b")
    return [QueueSlice(*of, q.topic, q.queue_id, q.low, q.high) for q in snapshot.queues]


def read(
    root: Path, on_corrupt: str = "fail", *, strict: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """The whole way a batch read goes."""
    parts = [
        piece
        for part in split([weigh(s) for s in slices_of(root, strict=strict)], SplitLimits())
        for piece in part
    ]
    settings = ScanSettings(
        columns=FULL, on_corrupt=on_corrupt, fail_on_data_loss=on_corrupt == "fail", **more
    )
    rows: list[dict[str, Any]] = []
    for batch in scan(parts, settings):
        batch.validate(full=True)
        rows += expectations.rows(batch)
    return rows


def everything(root: Path) -> None:
    """Whatever looks at a store."""
    topics_of(root)
    snapshot = take(root)
    resolve(snapshot, lambda _: (AtTimestamp(1_600_000_000_000), Latest()))
    broker_config.consumer_offsets(str(root))
    broker_config.groups(str(root))
    list_index_files(str(root))
    narrow(slices_of(root), ["k1"], ["0" * 32])
    read(root)


def outcome(act: Callable[[], Any]) -> Any:
    """What comes of it: a named error, or the result; within the memory allowed."""
    signal.alarm(LIMIT_S)  # anew for each: hypothesis makes many
    pool = pa.default_memory_pool()
    held = pool.bytes_allocated()
    tracemalloc.start()
    try:
        found = act()
    except StoreError as error:
        found = error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LIMIT_BYTES
    assert pool.bytes_allocated() - held < LIMIT_BYTES
    if isinstance(found, StoreError):
        assert str(found).startswith("[MQLOG_")
        assert SECRET.decode() not in str(found)
    return found


def some(count: int = 20) -> list[Message]:
    return [
        Message(body=str(i).encode() * 20, properties=f"KEYS\x01k{i}\x02TAGS\x01A".encode())
        for i in range(count)
    ]


def whole(tmp_path: Path, count: int = 20, **layout: Any) -> Laid:
    return lay_out(tmp_path / "store", some(count), Layout(**layout))


# --- paths that lead elsewhere ----------------------------------------------------------------

PLACES = [
    "commitlog",
    "commitlog/00000000000000000000",
    "commitlog/00000000000000004096",
    "consumequeue",
    "consumequeue/T",
    "consumequeue/T/0",
    "consumequeue/T/0/00000000000000000000",
    "index",
    "index/20261121030000000",
    "config",
    "config/topics.json",
    "config/consumerOffset.json",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_symbolic_link_anywhere_is_refused_even_to_the_same_bytes(
    tmp_path: Path, place: str
) -> None:
    laid = whole(tmp_path, count=40)
    outside = tmp_path / "outside"
    (laid.root / place).rename(outside)
    (laid.root / place).symlink_to(outside)
    assert isinstance(outcome(lambda: everything(laid.root)), UnsafePathError)


@pytest.mark.parametrize("place", [p for p in PLACES if "." in p or "/0000" in p or "/2026" in p])
@pytest.mark.parametrize("kind", ["fifo", "directory", "socket"])
def test_what_is_no_plain_file_never_blocks(tmp_path: Path, place: str, kind: str) -> None:
    laid = whole(tmp_path, count=40)
    path = laid.root / place
    path.unlink()
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mknod(path, 0o600 | 0o140000)
    found = outcome(lambda: everything(laid.root))
    # A directory named like an index file is the broker's to skip; all else is an error.
    assert isinstance(found, StoreError) or (kind == "directory" and "index" in place)


@pytest.mark.parametrize("name", ["..", "../outside", "a/b", ".", "T.x", "/etc"])
def test_names_of_topics_never_become_paths(tmp_path: Path, name: str) -> None:
    laid = whole(tmp_path)
    (tmp_path / "outside").write_bytes(SECRET)
    write_json(laid.root / "config/topics.json", {"topicConfigTable": {name: {"topicName": name}}})
    offsets = {"offsetTable": {f"{name}@g": {0: 1}}}
    write_json(laid.root / "config/consumerOffset.json", offsets)
    everything(laid.root)
    assert topics_of(laid.root) == {"T"}
    assert broker_config.consumer_offsets(str(laid.root)) == {}


def test_a_record_of_another_topic_is_not_served_as_this_one(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic="Mine"), Message(topic="Evil")])
    path, position = laid.unit_of(("Mine", 0), 0)
    write(path, position, oracle.unit(laid.messages[1]))
    assert isinstance(outcome(lambda: read(laid.root)), CorruptStoreError)


# --- units that lie ---------------------------------------------------------------------------


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


BIG = 2**63 - 1
UNITS = {
    "outside": (BIG, 200, 0),
    "at the end of the world": (BIG - 100, 200, 0),
    "behind the log": (1 << 40, 200, 0),
    "negative": (-1, 200, 0),
    "most negative": (-(2**63), 200, 0),
    "huge": (0, 2**31 - 2, 0),
    "filler": (0, 2**31 - 1, 0),
    "no size": (0, 0, 0),
    "negative size": (0, -1, 0),
    "most negative size": (0, -(2**31), 0),
    "too short": (0, 8, 0),
    "overlapping": (1, 200, 0),
    "all ones": (-1, -1, -1),
    "across files": (4000, 500, 0),
}


@pytest.mark.parametrize("lie", UNITS)
@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_unit_that_lies_is_an_error_or_a_gap_and_all_others_are_read(
    tmp_path: Path, lie: str, at: int
) -> None:
    laid = whole(tmp_path)
    path, position = laid.unit_of(("T", 0), at)
    write(path, position, struct.pack(">qiq", *UNITS[lie]))
    found = outcome(lambda: read(laid.root))
    assert isinstance(found, StoreError) or len(found) < 20
    rows = outcome(lambda: read(laid.root, "skip", strict=False))
    right = [expectations.row(m, "b") for m in laid.messages]
    if isinstance(rows, StoreError):
        return
    assert all(row in right for row in rows)
    outcome(lambda: read(laid.root, "rescue", strict=False))


@given(units=st.lists(st.tuples(st.integers(-(2**63), BIG), st.integers(-(2**31), 2**31 - 1),
                                st.integers(-(2**63), BIG)), min_size=1, max_size=16))  # fmt: skip
@pytest.mark.parametrize("on_corrupt", ["fail", "skip", "rescue"])
@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_a_queue_of_any_units_at_all_is_survived(
    tmp_path_factory: pytest.TempPathFactory,
    units: list[tuple[int, int, int]],
    on_corrupt: str,
    mode: str,
) -> None:
    laid = whole(tmp_path_factory.mktemp("hostile"), count=3, index=False)
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 0, b"".join(struct.pack(">qiq", *unit) for unit in units))
    outcome(lambda: read(laid.root, on_corrupt, strict=False, read_mode=mode))


@pytest.mark.parametrize("mode", ["pread", "mmap"])
@pytest.mark.parametrize("order", ["decreasing", "all the same", "shuffled"])
def test_units_out_of_order_are_read_where_they_are_or_refused(
    tmp_path: Path, order: str, mode: str
) -> None:
    laid = whole(tmp_path)
    units = [oracle.unit(m) for m in laid.messages]
    changed = {
        "decreasing": units[::-1],
        "all the same": units[:1] * 20,
        "shuffled": units[10:] + units[:10],
    }[order]
    for at, unit in enumerate(changed):
        path, position = laid.unit_of(("T", 0), at)
        write(path, position, unit)
    outcome(lambda: read(laid.root, read_mode=mode))
    rows = outcome(lambda: read(laid.root, "skip", strict=False, read_mode=mode))
    right = [expectations.row(m, "b") for m in laid.messages]
    assert isinstance(rows, StoreError) or all(row in right for row in rows)


@pytest.mark.parametrize("count", [1, 20, 1000])
def test_many_units_of_one_huge_record_take_no_more_memory_than_one(
    tmp_path: Path, count: int
) -> None:
    """A sparse CommitLog and units that all claim 60 MiB of it."""
    laid = lay_out(tmp_path / "store", [Message()], Layout(queue_units=1000))
    with (laid.root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.truncate(1 << 30)
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 0, struct.pack(">qiq", 0, 60 << 20, 0) * count)
    for on_corrupt in ("fail", "skip"):
        outcome(lambda how=on_corrupt: read(laid.root, how, strict=False, batch_bytes=1 << 20))


# --- records that lie -------------------------------------------------------------------------


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


# --- bombs ------------------------------------------------------------------------------------


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


# --- an index that turns in circles -----------------------------------------------------------


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
    outcome(lambda: narrow(slices_of(laid.root), [f"k{i}" for i in range(5)], []))


def test_a_chain_that_points_at_itself_ends(tmp_path: Path) -> None:
    laid = whole(tmp_path, index_slots=1, index_units=100)
    (path,) = (laid.root / "index").iterdir()
    raw = bytearray(path.read_bytes())
    for number in range(1, 41):
        struct.pack_into(">i", raw, 44 + 20 * number + 16, number)
    path.write_bytes(raw)
    outcome(lambda: narrow(slices_of(laid.root), ["k1"], []))


# --- names and texts --------------------------------------------------------------------------


def test_an_error_shows_no_control_characters_of_a_hostile_store(tmp_path: Path) -> None:
    evil = tmp_path / "a\x1b[31mred\x1b[0m\nline"
    laid = lay_out(evil, some())
    path, position = laid.unit_of(("T", 0), 3)
    write(path, position, struct.pack(">qiq", BIG, 200, 0))
    found = outcome(lambda: read(laid.root))
    assert isinstance(found, CorruptStoreError)
    assert str(found).isprintable()


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\0"])
def test_text_that_is_no_text_becomes_text(tmp_path: Path, text: bytes) -> None:
    hostile = Message(properties=b"KEYS\x01" + text + b"\x02" + text + b"\x01v\x02TAGS\x01" + text)
    laid = lay_out(tmp_path / "store", [hostile])
    (row,) = read(laid.root)
    expected = text.decode(errors="replace")
    assert (row["keys"], row["tags"]) == (expected, expected)
    assert row["properties"][expected] == "v"

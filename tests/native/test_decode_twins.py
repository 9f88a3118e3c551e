"""A scan gives the same with the compiled decoder and with numpy: batches, errors, warnings."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.fused.decoder import Decoder
from mqstore.codec.schema import PROFILES
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from support import expectations, kernels, oracle, strategies
from support.oracle import BORN_V6, STORE_V6, Host, Message
from support.stores import Layout, MakeStore, lay_out

pytestmark = kernels.needs_compiled()
FULL = PROFILES["full"]
MAPPED_V4 = bytes(10) + b"\xff\xff\x7f\0\0\1"


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of each chunk the compiled decoder left to numpy."""
    return kernels.left_to_numpy(monkeypatch)


def both_scan(slices: list[QueueSlice], settings: ScanSettings) -> None:
    kernels.assert_same(*kernels.with_both(lambda: kernels.outcome(slices, settings)))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mode", ["pread", "mmap"])
def test_golden_stores_decode_to_the_same_columns_and_numpy_has_nothing_to_do(
    golden: tuple[str, Path], profile: str, mode: str, merged: bool, left: list[int]
) -> None:
    slices = slices_of(take(golden[1]))
    settings = ScanSettings(PROFILES[profile], merged=merged, read_mode=mode)
    both_scan(slices, settings)
    assert left
    assert not any(left)


@pytest.mark.parametrize(
    "more",
    [
        {"tags": "TagA || TagB"},
        {"tags": "no such tag"},
        {"keys": ("key-1", "k1")},
        {"msg_ids": ("0" * 32,)},
        {"decompress": False},
        {"verify_crc": False},
        {"batch_rows": 7, "first_rows": 3},
        {"batch_bytes": 3_000},
        {"columns": ("crcOk",)},
        {"columns": ("value", "headers", "key", "queueOffset")},
        {"columns": ("transactionState", "compression")},
    ],
    ids=str,
)
def test_golden_stores_scan_alike_whatever_is_asked_of_them(
    golden: tuple[str, Path], more: dict[str, object], left: list[int]
) -> None:
    settings = replace(ScanSettings(FULL), **more)  # type: ignore[arg-type]
    both_scan(slices_of(take(golden[1])), settings)
    assert left or "tags" in more
    assert not any(left)


def test_golden_stores_scan_alike_with_a_batch_for_each_row(
    golden: tuple[str, Path], left: list[int]
) -> None:
    few = slices_of(take(golden[1]))[::6]
    both_scan(few, replace(ScanSettings(FULL), batch_bytes=1))
    assert left
    assert not any(left)


def test_messages_of_a_golden_store_are_found_by_any_of_their_ids(golden_550: Path) -> None:
    slices = slices_of(take(golden_550))
    rows = [row for batch in scan(slices, ScanSettings(FULL)) for row in batch.to_pylist()]
    ids = (rows[3]["msgId"].lower(), rows[8]["offsetMsgId"], rows[-1]["offsetMsgId"].lower())
    settings = ScanSettings(("msgId",), msg_ids=ids)
    ours, theirs = kernels.with_both(lambda: kernels.outcome(slices, settings))
    kernels.assert_same(ours, theirs)
    wanted = {text.upper() for text in ids}
    expected = [row for row in rows if wanted & {row["msgId"], row["offsetMsgId"]}]
    assert sum(batch.num_rows for batch in ours) == len(expected) >= 3  # type: ignore[union-attr]


any_settings = st.builds(
    ScanSettings,
    columns=st.one_of(
        st.sampled_from(list(PROFILES.values())),
        st.lists(st.sampled_from(FULL), unique=True, min_size=1).map(tuple),
    ),
    tags=st.sampled_from(["*", "TagA", "标签C || Aa"]),
    on_corrupt=st.sampled_from(["fail", "skip", "rescue"]),
    batch_rows=st.integers(1, 9),
    first_rows=st.integers(1, 9),
    batch_bytes=st.sampled_from([1, 500, 1 << 20]),
    max_decompressed_bytes=st.sampled_from([1, 200, 1 << 20]),
    read_mode=st.sampled_from(["pread", "mmap"]),
    verify_crc=st.booleans(),
    decompress=st.booleans(),
    merged=st.booleans(),
)


@given(batch=strategies.batches(max_size=30), layout=strategies.layouts(), settings=any_settings)
def test_any_store_scans_alike(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    settings: ScanSettings,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, layout)
    both_scan(slices_of(take(laid.root)), settings)


@given(batch=strategies.batches(max_size=30), settings=any_settings, data=st.data())
def test_any_damaged_store_scans_alike(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    settings: ScanSettings,
    data: st.DataObject,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, Layout(commit_log_bytes=4096))
    slices = slices_of(take(laid.root))
    files = [path for path in laid.root.rglob("0000*") if path.is_file()]
    for _ in range(data.draw(st.integers(1, 4))) if files else ():
        path = data.draw(st.sampled_from(files))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, max(0, len(content.rstrip(b"\0")) - 1)))
        change = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(bytes(40))))
        content[at : at + len(change)] = change
        path.write_bytes(content[: path.stat().st_size])
    both_scan(slices, replace(settings, fail_on_data_loss=False))


def read(store: MakeStore, messages: list[Message], **more: object) -> list[dict[str, object]]:
    """Scan a store of those messages with both; return the rows."""
    laid = store(messages, Layout(commit_log_bytes=1 << 20, queue_units=64))
    settings = ScanSettings(FULL, **more)  # type: ignore[arg-type]
    slices = slices_of(take(laid.root, broker_name="b"))
    ours, theirs = kernels.with_both(lambda: kernels.outcome(slices, settings))
    kernels.assert_same(ours, theirs)
    rows = [row for batch in ours for row in expectations.rows(batch)]  # type: ignore[arg-type]
    expected = [expectations.row(m, "b") for _, held in sorted(laid.queues.items()) for m in held]
    assert rows == expected
    return rows


ODD_BLOCKS = {
    "a name twice": b"a\x01old\x02b\x01x\x02a\x01new\x02",
    "a name three times": b"a\x011\x02a\x012\x02b\x01x\x02a\x013\x02",
    "a tag twice": b"TAGS\x01old\x02TAGS\x01new\x02",
    "a name without a value": b"a\x01\x02b\x01x\x02TAGS\x01",
    "a value with a separator": b"a\x01b\x01c\x02",
    "nothing but separators": b"\x02\x02\x01\x02\x01",
    "no last separator": b"TAGS\x01A\x02KEYS\x01k",
    "text beyond ASCII": "名\x01值\x02TAGS\x01标签C\x02KEYS\x01😀\x02".encode(),
    "one long value": b"a\x01" + b"v" * 32_000 + b"\x02",
    "as many names as are looked at": b"".join(b"n%d\x01v\x02" % n for n in range(128)),
}


@pytest.mark.parametrize("what", ODD_BLOCKS)
def test_odd_properties_are_decoded_and_not_left(
    store: MakeStore, what: str, left: list[int]
) -> None:
    plain = Message(properties=b"TAGS\x01A\x02UNIQ_KEY\x010F\x02", body=b"x" * 100)
    read(store, [plain, plain, Message(properties=ODD_BLOCKS[what]), plain, plain] * 3)
    assert not any(left)


LEFT_TO_NUMPY = {
    "more names than are looked at": Message(
        properties=b"".join(b"n%d\x01v\x02" % n for n in range(129))
    ),
    "text that is not UTF-8": Message(properties=b"TAGS\x01\xff\xfe\x02"),
    "half a character in each of two values": Message(properties=b"a\x01\xe5\x02b\x01\x80\x80\x02"),
    "an IPv4 address as an IPv6 one": Message(
        sys_flag=BORN_V6, born_host=Host(ip=MAPPED_V4, port=1)
    ),
}


@pytest.mark.parametrize("what", LEFT_TO_NUMPY)
def test_rare_records_leave_the_chunk_to_numpy(
    store: MakeStore, what: str, left: list[int]
) -> None:
    read(store, [Message(body=b"x"), LEFT_TO_NUMPY[what], Message(body=b"y")])
    assert left == [3]


ADDRESSES = [
    bytes(16),
    bytes(15) + b"\1",
    b"\1" + bytes(15),
    bytes.fromhex("20010db8000000000001000000000001"),
    bytes.fromhex("20010db8000100000001000100010001"),
    bytes.fromhex("00010000000000020000000000000003"),
    bytes.fromhex("0001000200030004000500060000" + "0000"),
    bytes.fromhex("ffffffffffffffffffffffffffffffff"),
    bytes.fromhex("0a0b0c0d0e0f01020304050607080900"),
]


def test_ipv6_hosts_are_written_as_numpy_writes_them(store: MakeStore, left: list[int]) -> None:
    flags = [BORN_V6, STORE_V6, BORN_V6 | STORE_V6]
    v4 = Host(ip=bytes([1, 20, 255, 0]), port=65_535)
    messages = [
        Message(
            sys_flag=flag,
            born_host=Host(ip=ip, port=n) if flag & BORN_V6 else v4,
            store_host=Host(ip=ip, port=n) if flag & STORE_V6 else v4,
        )
        for n, ip in enumerate(ADDRESSES)
        for flag in flags
    ]
    read(store, messages)
    assert not any(left)


@given(ip=strategies.ipv6, port=st.integers(-(2**31), 2**31 - 1))
def test_any_host_is_written_as_numpy_writes_it(
    tmp_path_factory: pytest.TempPathFactory, ip: bytes, port: int
) -> None:
    messages = [
        Message(
            sys_flag=BORN_V6,
            born_host=Host(ip=ip, port=port),
            store_host=Host(ip=ip[:4], port=port),
        )
    ]
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", messages)
    both_scan(slices_of(take(laid.root)), ScanSettings(FULL))


def test_a_chunk_that_needs_more_room_than_usual_is_decoded_all_the_same(
    store: MakeStore, left: list[int]
) -> None:
    short = Message(body=b"b", properties=b"A\x01B\x02")
    many = b"".join(b"%d\x01%d\x02" % (n, n) for n in range(90))
    messages = [
        replace(short, properties=many if n > 150 else short.properties) for n in range(300)
    ]
    read(store, messages, batch_rows=100, first_rows=100)
    assert not any(left)


def test_a_batch_that_is_kept_does_not_change_when_the_next_is_made(golden_550: Path) -> None:
    slices = slices_of(take(golden_550))
    settings = ScanSettings(FULL, batch_rows=20, first_rows=20, merged=True)
    with kernels.using("c"):
        kept = [(batch, batch.to_pylist()) for batch in scan(slices, settings)]
    assert len(kept) > 20
    assert all(batch.to_pylist() == rows for batch, rows in kept)


def test_batches_that_are_gone_leave_their_memory_to_the_next(golden_550: Path) -> None:
    slices = slices_of(take(golden_550))
    settings = ScanSettings(("queueOffset", "body"), batch_rows=20, first_rows=20, merged=True)
    with kernels.using("c"):
        places = [batch.column(1).buffers()[2].address for batch in scan(slices, settings)]
    assert len(places) > 20
    assert len(set(places)) < len(places) // 2


def test_a_body_that_does_not_decompress_is_told_behind_what_came_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = bytes(2_000)
    good = Message(body=oracle.compress(body, oracle.ZLIB), sys_flag=1 | oracle.ZLIB)
    bad = Message(body=b"no zlib at all", sys_flag=1 | oracle.ZLIB)
    laid = lay_out(tmp_path / "store", [good, good, good, bad, good], Layout(index=False))
    slices = slices_of(take(laid.root))
    # Two bodies spend the budget of a batch: the bad one is in the second.
    settings = ScanSettings(FULL, batch_bytes=3_999, on_corrupt="skip")
    with caplog.at_level(logging.WARNING):
        both_scan(slices, settings)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0] == said[1]
    both_scan(slices, replace(settings, on_corrupt="fail"))
    both_scan(slices, replace(settings, on_corrupt="rescue"))


def test_a_file_that_shrank_is_the_error_that_numpy_raises(tmp_path: Path) -> None:
    messages = [Message(body=bytes(300)) for _ in range(20)]
    laid = lay_out(tmp_path / "store", messages, Layout(commit_log_bytes=1 << 20, index=False))
    slices = slices_of(take(laid.root))
    (path,) = (laid.root / "commitlog").iterdir()

    def scanned() -> kernels.Outcome:
        found = kernels.outcome([], ScanSettings(FULL))
        batches = scan(slices, ScanSettings(FULL, first_rows=2, batch_rows=5))
        whole = path.read_bytes()
        try:
            next(batches)
            with path.open("r+b") as file:
                file.truncate(3_000)
            found = [*batches]
        except Exception as error:  # noqa: BLE001
            found = (type(error).__name__, str(error))
        finally:
            path.write_bytes(whole)
        return found

    ours, theirs = kernels.with_both(scanned)
    assert ours == theirs
    assert ours[0] == "CorruptStoreError"


def test_what_a_chunk_claims_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is not even called for more than the edges of an Arrow array can span."""

    class Library:
        @staticmethod
        def mq_decode(*_: object) -> int:
            raise AssertionError

    decoder = Decoder(Library, FULL, check_crc=True)  # type: ignore[arg-type]
    sizes = np.array([2**31 - 64, 91], np.int64)
    assert decoder.decode(sizes, sizes, None, list) is None  # type: ignore[arg-type]

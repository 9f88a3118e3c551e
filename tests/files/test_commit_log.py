"""The CommitLog: any records gathered together are the bytes of those records."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from support import oracle, strategies
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out

MODES = pytest.mark.parametrize("mode", ["pread", "mmap"])


def opened(root: Path, mode: str = "pread") -> CommitLog:
    return CommitLog([Directory(str(root / "commitlog"))], mode)


def gathered(log: CommitLog, places: list[int], sizes: list[int]) -> list[bytes]:
    found = log.gather(np.array(places, np.int64), np.array(sizes, np.int64))
    starts = found.starts.tolist()
    if all(b >= a + n for a, b, n in zip(places, places[1:], sizes, strict=False)):
        assert all(b >= a + n for a, b, n in zip(starts, starts[1:], sizes, strict=False))
    return [found.buffer[a : a + n].tobytes() for a, n in zip(starts, sizes, strict=True)]


@MODES
@given(batch=strategies.batches(max_size=30), layout=strategies.layouts(), data=st.data())
def test_any_records_in_any_order_are_gathered(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    data: st.DataObject,
    mode: str,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, layout)
    chosen = data.draw(st.lists(st.sampled_from(laid.messages), max_size=20)) if batch else []
    if data.draw(st.booleans()):
        chosen.sort(key=lambda m: m.physical_offset)
    places, sizes = [m.physical_offset for m in chosen], [m.size for m in chosen]
    with opened(laid.root, mode) as log:
        assert log.holds(np.array(places, np.int64), np.array(sizes, np.int64)).all()
        assert gathered(log, places, sizes) == [oracle.encode(m) for m in chosen]


@MODES
def test_gathering_a_few_of_many_reads_little_more_than_them(tmp_path: Path, mode: str) -> None:
    many = [Message(body=bytes(3000)) for _ in range(200)]
    laid = lay_out(tmp_path / "store", many, Layout(commit_log_bytes=1 << 20))
    few = laid.messages[::50]
    with opened(laid.root, mode) as log:
        found = log.gather(
            np.array([m.physical_offset for m in few]), np.array([m.size for m in few])
        )
    if mode == "pread":
        assert len(found.buffer) <= 2 * sum(m.size for m in few)


def test_what_no_file_holds_is_not_held(store: MakeStore) -> None:
    laid = store([Message(body=bytes(1000)) for _ in range(10)])
    with opened(laid.root) as log:
        assert (log.low, log.high) == (0, 4096 * 4)
        for place, size in (
            (-1, 100), (0, 90), (0, 4097), (4000, 97), (log.high, 100), (2**63 - 1, 100), (0, -5),
            (-(2**63), 2**31), (0, 0),
        ):  # fmt: skip
            assert not log.holds(np.array([place]), np.array([size]))[0], (place, size)
        assert log.holds(np.array([4096 - 91]), np.array([91]))[0]


def test_a_place_is_named_by_its_file_and_the_byte_in_it(store: MakeStore) -> None:
    laid = store([Message(body=bytes(1000)) for _ in range(10)])
    with opened(laid.root) as log:
        path, position = log.where(5000)
        assert (Path(path), position) == (laid.root / "commitlog" / f"{4096:020d}", 904)
        assert str(log.corrupt(5000, "why")).endswith(f"{4096:020d} at byte 904: why")


def test_reading_stops_at_a_files_end(store: MakeStore) -> None:
    laid = store([Message(body=bytes(1000)) for _ in range(10)])
    with opened(laid.root) as log:
        assert len(log.read(4000, 500)) == 96
        assert log.read(log.high, 10) == b""
        assert log.read(-10, 20) == b""


@MODES
def test_a_file_deleted_meanwhile_is_a_missing_file(tmp_path: Path, mode: str) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(3)])
    with opened(laid.root, mode) as log:
        (laid.root / "commitlog" / ("0" * 20)).unlink()
        with pytest.raises(FileNotFoundError):
            gathered(log, [0], [100])


@MODES
def test_a_file_that_shrank_is_corruption(tmp_path: Path, mode: str) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(30)])
    with opened(laid.root, mode) as log:
        with (laid.root / "commitlog" / ("0" * 20)).open("r+b") as file:
            file.truncate(150)
        with pytest.raises(CorruptStoreError, match="at byte 150"):
            gathered(log, [0, 100], [100, 100])


def test_more_files_than_may_be_open_are_read(tmp_path: Path) -> None:
    many = [Message(body=bytes(1900)) for _ in range(70)]
    laid = lay_out(tmp_path / "store", many, Layout(commit_log_bytes=2048))
    places, sizes = [m.physical_offset for m in laid.messages], [m.size for m in laid.messages]
    for mode in ("pread", "mmap"):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with opened(laid.root, mode) as log:
            assert gathered(log, places, sizes) == [oracle.encode(m) for m in laid.messages]
            assert len(list(Path("/proc/self/fd").iterdir())) <= before + 40
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unknown_read_mode_is_refused(store: MakeStore) -> None:
    with pytest.raises(InvalidOptionError, match="pread, mmap"):
        opened(store([]).root, "warp")

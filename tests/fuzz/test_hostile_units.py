"""Units that lie: a named error or a gap, and all others are read."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.hostile import outcome, read, whole, write
from fuzz.in_time import in_time  # noqa: F401 - a fixture
from mqstore.errors import StoreError
from support import expectations, oracle, soak
from support.oracle import Message
from support.stores import Layout, lay_out

pytestmark = pytest.mark.usefixtures("in_time")

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


@soak.not_in_check
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

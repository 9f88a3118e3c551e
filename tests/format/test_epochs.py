"""The file of epochs: what a broker writes, and what none does."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.format.epochs import MAX_EPOCH_BYTES, Epoch, divergence, parse_epochs


def written(*entries: str, count: int | None = None, crc: int | None = None) -> bytes:
    """Return the file as CheckpointFile writes it: of the CRC-32 the lower 31 bits."""
    text = "".join(f"{entry}\n" for entry in entries)
    known = zlib.crc32(text.encode()) & 0x7FFFFFFF
    number = len(entries) if count is None else count
    return f"{number}\n{known if crc is None else crc}\n{text}".encode()


def test_epochs_of_a_broker_are_read_with_and_without_their_checksum() -> None:
    known = (Epoch(1, 0), Epoch(5, 171_422))
    assert parse_epochs(b"2\n884042323\n1-0\n5-171422\n") == known
    assert parse_epochs(written("1-0", "5-171422")) == known
    assert parse_epochs(written("1-0", "5-171422", crc=0)) == known
    assert parse_epochs(written()) == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "count"),
        (b"\xff\xfe\n\x00\n", "count"),
        (b"1\n", "count"),
        (written("1-0", count=2), "first line says 2"),
        (written("1-0", crc=7), "CRC-32"),
        (written("1-0", "1-5"), "does not follow"),
        (written("1-9", "2-5"), "does not follow"),
        (written("1--5"), "not EPOCH"),
        (written("1-99999999999999999999"), "not EPOCH"),
        (written(f"1-{2**63}"), "not EPOCH"),
        (b"9" * 5000, "count"),
        (bytes(MAX_EPOCH_BYTES + 1), "more than"),
    ],
)
def test_what_no_broker_writes_is_refused_with_the_rule_that_it_breaks(
    data: bytes, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_epochs(data)


@pytest.mark.parametrize(
    ("ours", "theirs", "stale_from"),
    [
        ([(1, 0)], [(1, 0)], None),
        ([(1, 0)], [(1, 0), (5, 70)], 70),
        ([(1, 0), (5, 70)], [(1, 0)], None),
        ([(1, 0), (3, 50)], [(1, 0), (5, 40), (6, 90)], 40),
        ([(1, 0), (3, 50)], [(1, 0), (3, 50), (6, 90)], 90),
        ([(1, 10)], [(1, 0), (5, 40)], None),
    ],
)
def test_a_log_is_stale_from_where_the_other_goes_on_with_a_newer_epoch(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], stale_from: int | None
) -> None:
    newer = divergence([Epoch(*one) for one in ours], [Epoch(*one) for one in theirs])
    assert (None if newer is None else newer.start) == stale_from


@given(
    edits=st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=12)), max_size=8),
    cut=st.integers(0, 80),
)
def test_any_bytes_are_epochs_that_ascend_or_an_error(
    edits: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(written("1-0", "5-171422", "9-292694", crc=0))
    for at, new in edits:
        data[at : at + len(new)] = new
    try:
        epochs = parse_epochs(bytes(data[:cut]))
    except ValueError:
        return
    starts = [epoch.start for epoch in epochs]
    assert starts == sorted(starts)
    assert all(0 <= start < 2**63 for start in starts)
    assert len({epoch.number for epoch in epochs}) == len(epochs)

"""Gap units, which stand for messages that were lost: whole where brokers go on behind them."""

import struct
from pathlib import Path

import pytest

from check.damages import errors, write
from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from support.oracle import ROLLBACK, Message, blank
from support.stores import Laid, Layout, lay_out

SIZE = 4096
QUEUE = ("T", 0)
LOST = (5, 6, 7, 20, 30)
NUMBERS = [number for number in range(60) if number not in LOST]


def put_gap(laid: Laid, queue_offset: int, place: int) -> None:
    path, position = laid.unit_of(QUEUE, queue_offset)
    write(path, position, struct.pack(">qiq", place, 2, 0))


def lose(laid: Laid, message: Message) -> None:
    """Have a record rolled back, and a gap unit in its queue."""
    path, position = laid.file_of(message)
    write(path, position + 36, struct.pack(">i", message.sys_flag | ROLLBACK))
    following = min(m.physical_offset for m in laid.messages if kept_behind(m, message))
    put_gap(laid, message.queue_offset, following - following % SIZE - 1)


def kept_behind(m: Message, lost: Message) -> bool:
    return m.queue_offset > lost.queue_offset and m.queue_offset not in LOST


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    layout = Layout(commit_log_bytes=SIZE, start=2 * SIZE, index=False)
    laid = lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(60)], layout)
    (laid.root / "commitlog" / f"{SIZE:020d}").write_bytes(blank(SIZE).ljust(SIZE, b"\0"))
    for number in LOST:
        lose(laid, laid.messages[number])
    return laid


def numbers_of(slices: list[QueueSlice], **more: int) -> list[int]:
    settings = ScanSettings(columns=PROFILES["full"], **more)  # type: ignore[arg-type]
    return [n for batch in scan(slices, settings) for n in batch["queueOffset"].to_pylist()]


def test_a_store_with_gap_units_is_whole(laid: Laid) -> None:
    assert check(laid.root) == []


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_read_gives_the_messages_around_gaps(laid: Laid, rows: int) -> None:
    slices = slices_of(take(laid.root))
    assert numbers_of(list(slices), batch_rows=rows) == NUMBERS


def test_a_read_of_a_gap_alone_gives_nothing(laid: Laid) -> None:
    (piece,) = slices_of(take(laid.root))
    assert numbers_of([QueueSlice(**{**_fields(piece), "start": 5, "end": 8})]) == []


def _fields(piece: QueueSlice) -> dict[str, object]:
    return {name: getattr(piece, name) for name in piece.__dataclass_fields__}


def test_gaps_before_the_log_are_no_expired_messages(laid: Laid) -> None:
    """The first file expires, which ends where the gap units of the next one point."""
    (laid.root / "commitlog" / f"{SIZE:020d}").unlink()
    assert errors(laid.root) == []
    assert numbers_of(list(slices_of(take(laid.root)))) == NUMBERS


def test_a_gap_unit_in_the_file_of_the_next_message_hides_it(laid: Laid) -> None:
    put_gap(laid, 20, laid.messages[21].physical_offset // SIZE * SIZE + SIZE - 1)
    rules = {finding.problem for finding in errors(laid.root)}
    assert rules == {"a gap unit that hides the message behind it"}


def test_a_gap_unit_must_end_a_file(laid: Laid) -> None:
    put_gap(laid, 5, 2 * SIZE - 9)
    rules = {finding.problem for finding in errors(laid.root)}
    assert rules == {"a gap unit that does not end a CommitLog file"}


def test_no_gap_unit_ends_a_queue(laid: Laid) -> None:
    lose(laid, laid.messages[58])
    put_gap(laid, 59, laid.low + 5 * SIZE - 1)
    assert "a gap unit at the queue's end" in {finding.problem for finding in errors(laid.root)}


def test_queue_offsets_without_record_and_gap_unit_are_an_error(laid: Laid) -> None:
    path, position = laid.unit_of(QUEUE, 20)
    write(path, position, bytes(20))
    assert {finding.problem for finding in errors(laid.root)} == {
        "an empty unit before the queue's end",
        "queueOffset 21 comes after 19",
    }

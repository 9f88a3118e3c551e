"""Walks over damaged and hostile logs: named, bounded, and nothing whole is left out."""

import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqstore.derive import resync
from mqstore.errors import CorruptStoreError
from support import by_log, oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

PLENTY = Layout(commit_log_bytes=1 << 16)


def laid_out(root: Path, count: int = 9, layout: Layout = PLENTY) -> Laid:
    return lay_out(root, [Message(body=b"%03d" % n * 9) for n in range(count)], layout)


def write(laid: Laid, place: int, data: bytes) -> None:
    size = laid.layout.commit_log_bytes
    with (laid.root / "commitlog" / f"{place // size * size:020d}").open("r+b") as file:
        file.seek(place % size)
        file.write(data)


def read_whole(laid: Laid, cache: Path) -> list[int]:
    found = by_log.snapshot(laid.root, cache, strict=False)
    return [row["queueOffset"] for row in by_log.rows(found, on_corrupt="skip")]


@pytest.mark.parametrize(
    ("position", "data"),
    [
        (4, b"\0\0\0\0"),  # magic
        (0, b"\x7f\xff\xff\xff"),  # a size behind the file's end
        (0, b"\0\0\0\1"),
        (0, bytes(120)),  # zeros look like the log's end
        (84, b"\x7f\xff\xff\xff"),  # the body's length: TOTALSIZE leads on
        (28, b"\0\0\0\0\0\0\0\1"),  # PHYSICALOFFSET
    ],
)
def test_a_damaged_record_is_named_and_all_others_are_read(
    tmp_path: Path, position: int, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    laid = laid_out(tmp_path / "store")
    broken = laid.messages[4]
    write(laid, broken.physical_offset + position, data)
    with pytest.raises(CorruptStoreError, match=f"at byte {broken.physical_offset}: .*onCorrupt"):
        by_log.snapshot(laid.root, tmp_path / "cache")
    with caplog.at_level(logging.WARNING):
        assert read_whole(laid, tmp_path / "cache") == [0, 1, 2, 3, 5, 6, 7, 8]
    assert f"at byte {broken.physical_offset}" in caplog.text


def test_a_body_that_changed_is_found_by_the_read(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store")
    write(laid, laid.messages[4].physical_offset + 90, b"?")
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    with pytest.raises(CorruptStoreError, match="the checksum does not hold"):
        by_log.rows(found)


def test_damage_up_to_the_end_of_the_file_does_not_hide_the_next(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store", 60, Layout(commit_log_bytes=2048))
    second = [m for m in laid.messages if m.physical_offset // 2048 == 1]
    last = second[-1].physical_offset
    write(laid, last, b"\xff" * (4096 - last))
    with pytest.raises(CorruptStoreError, match="no blank record ends this file"):
        by_log.snapshot(laid.root, tmp_path / "cache")
    expected = [m.queue_offset for m in laid.messages if m is not second[-1]]
    assert read_whole(laid, tmp_path / "cache") == expected


def test_a_file_that_is_missing_is_an_error_and_the_others_are_read(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store", 60, Layout(commit_log_bytes=2048))
    (laid.root / "commitlog" / f"{2048:020d}").unlink()
    with pytest.raises(CorruptStoreError, match="the next file is missing"):
        by_log.snapshot(laid.root, tmp_path / "cache")
    expected = [m.queue_offset for m in laid.messages if m.physical_offset // 2048 != 1]
    assert read_whole(laid, tmp_path / "cache") == expected


def test_a_rest_behind_the_end_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid = laid_out(tmp_path / "store")
    write(laid, laid.messages[-1].physical_offset + laid.messages[-1].size, b"rest of a record")
    with caplog.at_level(logging.WARNING):
        found = by_log.snapshot(laid.root, tmp_path / "cache")
    assert "the log ends here, in bytes that are no record" in caplog.text
    assert len(by_log.rows(found)) == 9


def test_records_that_a_broker_cut_off_do_not_come_back(tmp_path: Path) -> None:
    """They lie whole behind a newer end, and are older than it."""
    laid = laid_out(tmp_path / "store")
    second = laid.messages[1]
    newer = replace(
        second, body=b"x" * 40, store_timestamp_ms=second.store_timestamp_ms + 5, queue_offset=1
    )
    write(laid, second.physical_offset, oracle.encode(oracle.sealed(newer)))
    found = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    assert [row["body"] for row in found] == [laid.messages[0].body, newer.body]


def test_a_queue_that_no_broker_could_have_is_left_out(tmp_path: Path) -> None:
    odd = [Message(topic="../up"), Message(queue_id=-1), Message(topic="T")]
    laid = lay_out(tmp_path / "store", [Message(), *odd[2:]])
    for message, changed in zip(laid.messages, (odd[1], odd[2]), strict=True):
        moved = replace(message, queue_id=changed.queue_id)
        write(laid, message.physical_offset, oracle.encode(moved))
    found = by_log.snapshot(laid.root, tmp_path / "cache")
    assert [(q.topic, q.queue_id) for q in found.queues] == [("T", 0)]


def test_bytes_that_imitate_records_are_looked_at_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = laid_out(tmp_path / "store", 2)
    start = laid.messages[-1].physical_offset + laid.messages[-1].size
    fakes = range(start + 4, laid.layout.commit_log_bytes - 100, 36)
    for place in fakes:
        size = laid.layout.commit_log_bytes - place
        write(laid, place, struct.pack(">ii", size, oracle.V1))
        write(laid, place + 28, struct.pack(">q", place))
    looked = []
    fetch_at = resync.fetch_at

    def counted(*what: Any) -> Any:
        looked.append(what)
        return fetch_at(*what)

    monkeypatch.setattr(resync, "fetch_at", counted)
    assert len(by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))) == 2
    assert 0 < len(looked) < 8 < len(fakes)

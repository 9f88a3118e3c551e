"""Where a store ends, and the stores whose end is not to be trusted."""

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.check import check
from mqstore.derive.log_end import LogEnd, find_log_end
from mqstore.errors import CorruptStoreError, UncleanStoreError, UnsupportedStoreError
from mqstore.files.base import durable
from mqstore.files.store import Store
from support import oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import append, held, rows

LAYOUT = Layout(commit_log_bytes=4096, queue_units=10, index_slots=11, index_units=50)


def laid(tmp_path: Path, count: int = 20, **layout: object) -> Laid:
    messages = [
        Message(queue_id=n % 2, body=bytes(200), properties=b"KEYS\x01k\x02") for n in range(count)
    ]
    return lay_out(tmp_path / "store", messages, replace(LAYOUT, **layout))  # type: ignore[arg-type]


def log_end(root: Path) -> LogEnd:
    with Store.open(root) as store:
        return find_log_end(store)


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def cut_units(made: Laid, count: int) -> None:
    for m in made.messages[-count:]:
        path, position = made.unit_of((m.topic, m.queue_id), m.queue_offset)
        put(path, position, bytes(20))


@pytest.mark.parametrize("count", [0, 1, 12, 13, 14, 60])
@pytest.mark.parametrize("preallocated", [False, True])
def test_the_tail_is_where_the_last_record_ends(
    tmp_path: Path, count: int, preallocated: bool
) -> None:
    made = laid(tmp_path, count, preallocated=preallocated and count > 0)
    assert log_end(made.root).tail == made.high


def test_a_log_that_ends_with_a_blank_record_goes_on_in_the_next_file(tmp_path: Path) -> None:
    made = laid(tmp_path, 10)
    path, position = made.file_of(made.messages[-1])
    end = position + made.messages[-1].size
    put(path, end, oracle.blank(4096 - end))
    assert log_end(made.root).tail == 4096
    append(made.root, rows(1))
    assert held(made.root)[-1].physical_offset == 4096
    assert check(made.root) == []


def test_records_that_no_queue_needs_to_know_are_passed(tmp_path: Path) -> None:
    kinds = [0, oracle.PREPARED, oracle.ROLLBACK]
    made = lay_out(tmp_path / "store", [Message(sys_flag=k) for k in kinds], LAYOUT)
    assert log_end(made.root).tail == made.high
    append(made.root, rows(1))
    assert len(held(made.root)) == 4


def test_records_that_are_in_no_queue_yet_are_a_reason_to_refuse(tmp_path: Path) -> None:
    made = laid(tmp_path)
    cut_units(made, 3)
    with pytest.raises(UncleanStoreError, match=r"3 messages .* start and stop the broker"):
        append(made.root, rows(1))


def test_a_unit_without_its_record_is_a_reason_to_refuse(tmp_path: Path) -> None:
    made = laid(tmp_path)
    last = made.messages[-1]
    path, position = made.file_of(last)
    put(path, position + 100, b"\xff")
    with pytest.raises(CorruptStoreError):
        append(made.root, rows(1))


def test_a_sound_record_behind_the_end_is_a_reason_to_refuse(tmp_path: Path) -> None:
    made = laid(tmp_path, 20)
    cut_units(made, 3)
    path, position = made.file_of(made.messages[-3])
    put(path, position, bytes(made.messages[-3].size))
    with pytest.raises(CorruptStoreError, match="sound record lies behind the end"):
        append(made.root, rows(1))


def test_what_a_broker_cut_off_is_cleared_and_kept_aside(tmp_path: Path) -> None:
    """Format.md, stale tail: a later record must not bring it back to life."""
    made = laid(tmp_path, 20)
    cut_units(made, 1)
    last = made.messages[-1]
    path, position = made.file_of(last)
    put(path, position + 100, b"\xff")  # Its checksum is wrong now: a torn write.
    torn = path.read_bytes()[position : position + last.size]
    append(made.root, rows(1, body=b"x"))
    assert len(held(made.root)) == 20
    # The broker indexed what it then cut off; who looks up a key asks the record again.
    assert {f.severity for f in check(made.root)} == {"warning"}
    kept = list((made.root / ".mqlog" / "quarantine").iterdir())
    assert [k.read_bytes() for k in kept] == [torn.lstrip(b"\0")]


def test_what_was_cleared_comes_back_if_the_commit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = laid(tmp_path, 20)
    cut_units(made, 1)
    path, position = made.file_of(made.messages[-1])
    put(path, position + 100, b"\xff")
    before = path.read_bytes()
    replace_call = durable.replace

    def replace(source: str, target: str) -> None:
        if target.endswith("pending.json"):
            raise OSError("injected")
        replace_call(source, target)

    monkeypatch.setattr(durable, "replace", replace)
    with pytest.raises(OSError, match="injected"):
        append(made.root, rows(30, body=bytes(300)))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("path", "flavour"),
    [
        ("epochFileCheckpoint", "CONTROLLER"),
        ("brokerIdentity", "CONTROLLER"),
        ("consumequeue/CURRENT", "ROCKSDB_CONSUME_QUEUE"),
        ("consumequeue_rocksdb/CURRENT", "ROCKSDB_CONSUME_QUEUE"),
        ("config/metadata/CURRENT", "ROCKSDB_CONFIG"),
        ("config/topics/CURRENT", "ROCKSDB_CONFIG"),
        ("consumequeue_ext/T/0/x", "CONSUME_QUEUE_EXT"),
        ("batchconsumequeue/T/0/x", "BATCH_CONSUME_QUEUE"),
        ("dledger-n0/data/x", "DLEDGER"),
    ],
)
def test_a_flavour_that_must_not_be_written_is_refused_by_name(
    tmp_path: Path, path: str, flavour: str
) -> None:
    made = laid(tmp_path)
    mark = made.root / path
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text("x")
    with pytest.raises(UnsupportedStoreError, match=rf"MQLOG_UNSUPPORTED_STORE\.{flavour}\]"):
        append(made.root, rows(1))


def test_a_log_with_a_missing_file_is_not_written_to(tmp_path: Path) -> None:
    made = laid(tmp_path, 60)
    (made.root / "commitlog" / f"{4096:020d}").unlink()
    with pytest.raises(UnsupportedStoreError, match="MULTI_PATH"):
        append(made.root, rows(1))


def test_a_link_among_a_stores_files_is_not_written_through(tmp_path: Path) -> None:
    made = laid(tmp_path)
    path = made.file_of(made.messages[-1])[0]
    outside = tmp_path / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.hardlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(Exception, match="UNSAFE_PATH"):
        append(made.root, rows(1))
    assert outside.read_bytes() == before

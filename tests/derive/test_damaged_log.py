"""A log that is damaged in the middle does not end there: nothing is given up unless asked to."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from derive.rebuilds import rebuilt, sizes_of
from mqstore.check import check
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config import checkpoint
from mqstore.read.directory import take
from mqstore.write.recover import RecoverSettings, recover
from support import oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import append, held, rows

LAYOUT = Layout(commit_log_bytes=2048, index_units=100)
BAD = 7  # of 20 messages
FIRST_MS = 1_700_000_000_000
BODY_AT, QUEUE_ID_AT = 88, 15  # of a record whose hosts are IPv4; the last byte of the id


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", messages(20), LAYOUT)


def messages(count: int) -> list[Message]:
    return [
        Message(
            queue_id=n % 2,
            store_timestamp_ms=FIRST_MS + n,
            body=f"body {n}".encode(),
            properties=oracle.join_properties({"KEYS": f"k{n}"}),
        )
        for n in range(count)
    ]


def damage(laid: Laid, number: int = BAD, position: int = BODY_AT) -> None:
    path, start = laid.file_of(laid.messages[number])
    flip(path, start + position)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def state(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".mqlog" not in path.parts
    }


def seen(root: Path) -> int:
    return sum(queue.high - queue.low for queue in take(root).queues)


def killed(text: bytes) -> Callable[[Laid], None]:
    def leave(laid: Laid) -> None:
        (laid.root / "abort").write_bytes(text)

    return leave


def closed(laid: Laid) -> None:
    """Leave nothing: the broker was stopped."""


OURS, THEIRS = killed(b"mqlog: a commit"), killed(b"4711")


@pytest.mark.parametrize(
    ("leave", "settings"),
    [
        (closed, RecoverSettings(rebuild=True)),
        (OURS, RecoverSettings()),
        (OURS, RecoverSettings(rebuild=True)),
        (THEIRS, RecoverSettings(recover_unclean=True)),
        (THEIRS, RecoverSettings(recover_unclean=True, rebuild=True)),
    ],
)
def test_nothing_is_changed_of_a_store_whose_log_is_damaged(
    laid: Laid, leave: Callable[[Laid], None], settings: RecoverSettings
) -> None:
    damage(laid)
    leave(laid)
    before = state(laid.root)
    with pytest.raises(CorruptStoreError, match="this is damage, not the log's end") as refused:
        recover(laid.root, settings)
    assert refused.value.message().endswith("Nothing was changed")
    assert "--cut-at-damage" in refused.value.message()
    assert state(laid.root) == before


def test_a_write_changes_nothing_of_it_either(laid: Laid) -> None:
    damage(laid)
    OURS(laid)
    before = state(laid.root)
    for settings in ({}, {"recover_unclean": True}):
        with pytest.raises(CorruptStoreError, match="this is damage"):
            append(laid.root, rows(1), **settings)
    assert state(laid.root) == before


@pytest.mark.parametrize("leave", [closed, OURS, THEIRS])
def test_who_says_so_lets_the_log_end_at_the_damage(
    laid: Laid, leave: Callable[[Laid], None]
) -> None:
    damage(laid)
    leave(laid)
    lost = b"".join(path.read_bytes() for path in sorted((laid.root / "commitlog").iterdir()))
    found = recover(laid.root, RecoverSettings(recover_unclean=True, cut_at_damage=True))
    assert found.tail == laid.messages[BAD].physical_offset
    assert held(laid.root) == list(laid.messages[:BAD])
    assert seen(laid.root) == BAD
    assert [f for f in check(laid.root) if f.severity == "error"] == []
    kept = sorted((laid.root / ".mqlog" / "quarantine").iterdir())
    assert lost[found.tail :].strip(b"\0") in b"".join(path.read_bytes() for path in kept)


def test_a_log_that_was_torn_ends_there(laid: Laid) -> None:
    """As power is cut, pages of later records may be on the disk and those before not."""
    damage(laid)
    THEIRS(laid)
    noted = checkpoint.load(StoreDir.at(laid.root))
    assert noted is not None
    before_ms = laid.messages[BAD - 1].store_timestamp_ms
    page = bytearray((laid.root / "checkpoint").read_bytes())
    page[:16] = struct.pack(">qq", before_ms, before_ms)
    page[40:48] = struct.pack(">q", laid.messages[-1].physical_offset)
    (laid.root / "checkpoint").write_bytes(page)
    recover(laid.root, RecoverSettings(recover_unclean=True))
    assert seen(laid.root) == BAD
    assert [f for f in check(laid.root) if f.severity == "error"] == []


def test_what_a_broker_cut_off_is_told_from_damage(laid: Laid) -> None:
    """Its units are gone as well: --recover-unclean clears it, and the advice is that one."""
    damage(laid)
    rebuilt(laid.root, sizes_of(LAYOUT))
    with pytest.raises(CorruptStoreError, match="--recover-unclean"):
        recover(laid.root, RecoverSettings(rebuild=True))
    recover(laid.root, RecoverSettings(recover_unclean=True))
    assert seen(laid.root) == BAD
    append(laid.root, rows(1))


def test_one_record_that_says_another_queue_costs_no_other(laid: Laid) -> None:
    """No checksum covers the queue's id: what follows in its queue must be read all the same."""
    damage(laid, position=QUEUE_ID_AT)
    found = recover(laid.root, RecoverSettings(rebuild=True)).rebuilt
    assert found is not None
    assert (found.units_left, found.units_zeroed) == (1, 0)
    assert [(q.low, q.high) for q in take(laid.root).queues] == [(0, 10), (0, 10)]
    assert ("T", 1, 3) in {(f.topic, f.queue_id, f.queue_offset) for f in check(laid.root)}
    assert recover(laid.root, RecoverSettings(rebuild=True)).rebuilt == found


def test_a_sound_log_is_walked_without_a_word(laid: Laid) -> None:
    before = state(laid.root)
    recover(laid.root, RecoverSettings(rebuild=True))
    after = state(laid.root)
    assert {**after, "checkpoint": b""} == {**before, "checkpoint": b""}

"""Where a read starts and ends: each way of saying it, in any queue."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import DataLossError, InvalidOptionError
from mqstore.read.offsets import At, AtTimestamp, Earliest, Last, Latest, Position, resolve
from support import strategies
from support.opened import opened
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out


def ranges(
    root: Path, start: Position, end: Position, *, fail: bool = True
) -> dict[tuple[str, int], tuple[int, int]]:
    resolved = resolve(*opened(root), lambda _: (start, end), fail_on_data_loss=fail)
    return {(q.topic, q.queue_id): (a, b) for q, a, b in resolved}


def ten(store: MakeStore) -> Laid:
    """Offsets [5, 10) are held; five have expired."""
    messages = [Message(body=bytes(700)) for _ in range(10)]
    return store(messages, Layout(expired_files=1))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Earliest(), Latest(), (5, 10)),
        (Latest(), Latest(), (10, 10)),
        (Last(3), Latest(), (7, 10)),
        (Last(99), Latest(), (5, 10)),
        (Last(0), Latest(), (10, 10)),
        (Earliest(), Last(2), (5, 8)),
        (At(5), At(10), (5, 10)),
        (At(7), At(7), (7, 7)),
        (At(6), Latest(), (6, 10)),
    ],
)
def test_each_position_is_found(
    store: MakeStore, start: Position, end: Position, expected: tuple[int, int]
) -> None:
    assert ranges(ten(store).root, start, end) == {("T", 0): expected}


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (At(0), Latest(), (5, 10)),
        (At(4), At(7), (5, 7)),
        (At(0), At(3), (5, 5)),
        (At(7), At(11), (7, 10)),
        (At(11), Latest(), (10, 10)),
        (At(20), At(30), (10, 10)),
    ],
)
def test_an_offset_not_held_is_data_loss_unless_that_is_allowed(
    store: MakeStore, start: Position, end: Position, left: tuple[int, int]
) -> None:
    root = ten(store).root
    with pytest.raises(
        DataLossError, match=r"\[MQLOG_DATA_LOSS\] T/0: .*the store holds \[5, 10\)"
    ):
        ranges(root, start, end)
    assert ranges(root, start, end, fail=False) == {("T", 0): left}


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (At(4), Latest(), "Messages may have expired, or the store was replaced"),
        (At(11), Latest(), "The queue ends at 10: they are not stored yet"),
        (At(7), At(11), "The queue ends at 10: they are not stored yet"),
    ],
)
def test_offsets_behind_the_end_are_not_called_expired(
    store: MakeStore, start: Position, end: Position, why: str
) -> None:
    root = ten(store).root
    with pytest.raises(DataLossError) as caught:
        ranges(root, start, end)
    assert why in str(caught.value)
    assert ("expired" in str(caught.value)) is (start == At(4))


def test_a_start_behind_its_end_is_refused(store: MakeStore) -> None:
    with pytest.raises(InvalidOptionError, match="T/0"):
        ranges(ten(store).root, At(8), At(6))


@given(
    batch=strategies.batches(max_size=30),
    ms=st.integers(-5, strategies.MILLENNIUM_MS + 5),
    data=st.data(),
)
def test_a_timestamp_is_the_first_message_at_or_after_it(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], ms: int, data: st.DataObject
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch)
    if batch and data.draw(st.booleans()):
        near = data.draw(st.sampled_from(laid.messages)).store_timestamp_ms
        ms = near + data.draw(st.integers(-1, 1))
    expected = {
        queue: (
            sum(m.store_timestamp_ms < ms for m in held),
            len(held),
        )
        for queue, held in laid.queues.items()
    }
    assert ranges(laid.root, AtTimestamp(ms), Latest()) == expected


def test_a_timestamp_after_the_last_message_is_the_end_or_an_error(store: MakeStore) -> None:
    root = ten(store).root
    later = Message().store_timestamp_ms + 1
    assert ranges(root, AtTimestamp(later), Latest()) == {("T", 0): (10, 10)}
    with pytest.raises(InvalidOptionError, match="startingOffsetsByTimestamp"):
        ranges(root, AtTimestamp(later, must_exist=True), Latest())


def test_a_timestamp_of_an_ipv6_record_is_found(store: MakeStore) -> None:
    hosts = [strategies.Host(ip=bytes(15) + b"\1"), strategies.Host()]
    messages = [
        Message(
            born_host=hosts[i % 2],
            sys_flag=(0x10, 0)[i % 2],
            store_timestamp_ms=1000 * (i + 1),
        )
        for i in range(8)
    ]
    assert ranges(store(messages).root, AtTimestamp(4500), Latest()) == {("T", 0): (4, 8)}

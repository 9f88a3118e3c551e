"""Streams over very many queues: an idle store is not looked at queue by queue."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mqstore.files.base.store_dir import open_dir
from mqstore.read import tail as tails
from mqstore.read.log_end import WrittenEnd
from mqstore.read.tail import StoreTail
from support.growing import grow
from support.opened import tail_of
from support.oracle import Message
from support.stores import Layout, MakeStore

PREALLOCATED = Layout(commit_log_bytes=1 << 20, preallocated=True)


class Clock:
    """A monotonic clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tails.time, "monotonic", made.monotonic)
    return made


class Looks:
    """A tail whose looks at all queues take a second by the clock, and are counted."""

    def __init__(self, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.clock = clock
        whole = StoreTail._look

        def counted(tail: StoreTail) -> None:
            self.count += 1
            clock.now += 1.0
            whole(tail)

        monkeypatch.setattr(StoreTail, "_look", counted)
        self.tail = tail_of(root)
        self.tail.look(at_once=True)

    def in_seconds(self, seconds: int) -> tuple[int, Any]:
        """Ask ten times a second for so long; return the looks at all queues, and the bounds."""
        before, until = self.count, self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += 0.1
            bounds = self.tail.look()
        return self.count - before, bounds


def test_all_queues_of_an_idle_store_are_looked_at_a_fortieth_of_the_time(
    store: MakeStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(store([Message(body=b"x")], PREALLOCATED).root, clock, monkeypatch)
    looks.in_seconds(10)  # Units may follow their records for some seconds.

    count, _ = looks.in_seconds(400)
    assert 9 <= count <= 11


def test_a_message_is_seen_soon_after_it_is_written(
    store: MakeStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = store([Message(body=b"x")], PREALLOCATED)
    looks = Looks(laid.root, clock, monkeypatch)
    looks.in_seconds(30)

    grow(laid, [*laid.messages, Message(body=b"y")])
    _, bounds = looks.in_seconds(2)
    assert [high for _, high in bounds.values()] == [2]


def test_a_look_at_once_is_at_all_queues(
    store: MakeStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(store([Message(body=b"x")], PREALLOCATED).root, clock, monkeypatch)
    looks.in_seconds(30)
    before = looks.count

    looks.tail.look(at_once=True)
    assert looks.count == before + 1


def test_the_end_of_a_log_is_the_same_until_a_record_is_written(store: MakeStore) -> None:
    laid = store([Message(body=bytes(100)), Message(body=b"x")], PREALLOCATED)
    end = WrittenEnd(open_dir(laid.root))
    assert not end.is_same()  # Not marked yet.

    end.mark()
    assert end.is_same()
    grow(laid, [*laid.messages, Message(body=b"y")])
    assert not end.is_same()
    end.mark()
    assert end.is_same()


def test_the_end_of_a_log_is_another_one_in_the_next_file(store: MakeStore) -> None:
    layout = Layout(commit_log_bytes=4096, preallocated=True)
    laid = store([Message(body=bytes(3000))], layout)
    end = WrittenEnd(open_dir(laid.root))
    end.mark()

    grow(laid, [*laid.messages, Message(body=bytes(3000))])
    assert not end.is_same()


def test_a_look_at_many_queues_keeps_a_bounded_number_of_files_open(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "_open_queues", lambda: 4)
    messages = [Message(queue_id=n, body=b"x") for n in range(40)]
    laid = store(messages)
    opened: list[int] = []
    whole = tails._QueueTail.has_more

    def counted(queue: tails._QueueTail) -> bool:
        found = whole(queue)
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
        return found

    with closing(tail_of(laid.root)) as tail:
        tail.look(at_once=True)
        monkeypatch.setattr(tails._QueueTail, "has_more", counted)
        monkeypatch.setattr(StoreTail, "_stamped", lambda _: {})
        tail._stamps = {}
        before = len(list(Path("/proc/self/fd").iterdir()))
        grow(laid, [*laid.messages, *messages])
        bounds = tail.look(at_once=True)

    assert len(opened) == 40
    assert max(opened) - before <= 4 + 1
    assert {high for _, high in bounds.values()} == {2}

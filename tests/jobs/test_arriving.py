"""Lines of a pipe in groups: when a group ends, and where a line does."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace

import pytest

from mqlog_jobs.replays import arriving
from mqlog_jobs.replays.arriving import ArrivingLines, LineGroup
from mqstore.errors import InvalidMessageError

HOUR = 3600.0


class Pipe:
    """A pipe of lines, and one that an interrupt writes to."""

    def __init__(self) -> None:
        self.readable, self.writable = os.pipe()
        self.interrupts, self.interrupt = os.pipe()

    def write(self, data: bytes) -> None:
        os.write(self.writable, data)

    def end(self) -> None:
        os.close(self.writable)

    def lines(self, linger_s: float) -> ArrivingLines:
        return ArrivingLines(self.readable, self.interrupts, linger_s)

    def close(self) -> None:
        for number in (self.readable, self.writable, self.interrupts, self.interrupt):
            with suppress(OSError):
                os.close(number)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_a_group_ends_when_its_first_line_has_waited_though_more_comes(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "_READ_BYTES", 2)
    clock = count()
    stopped = SimpleNamespace(monotonic=lambda: next(clock) / 100)
    monkeypatch.setattr(arriving, "time", stopped)
    pipe.write(b"a\n" * 1000)
    first = next(iter(pipe.lines(0.1)))
    assert not first.more
    assert 5 <= len(first.lines) <= 10


def test_a_full_group_tells_whether_more_can_be_read(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "_READ_BYTES", 4)
    monkeypatch.setattr(arriving, "_GROUP_LINES", 2)
    groups = iter(pipe.lines(HOUR))
    pipe.write(b"a\nb\nc\nd\n")
    assert next(groups) == LineGroup(1, [b"a", b"b"], more=True)
    assert next(groups) == LineGroup(3, [b"c", b"d"], more=False)


def test_behind_a_group_with_more_the_next_one_ends_though_it_has_no_line(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what the group before left under way is acknowledged while a line has no end yet."""
    monkeypatch.setattr(arriving, "_READ_BYTES", 2)
    monkeypatch.setattr(arriving, "_GROUP_LINES", 1)
    groups = iter(pipe.lines(0.0))
    pipe.write(b"a\nunfinished")
    assert next(groups) == LineGroup(1, [b"a"], more=True)
    assert next(groups) == LineGroup(2, [], more=False)
    pipe.write(b"\n")
    assert next(groups).lines == [b"unfinished"]


def test_what_is_behind_the_last_line_feed_is_a_line_at_the_end_of_the_input(pipe: Pipe) -> None:
    pipe.write(b"a\n\nb")
    pipe.end()
    lines = pipe.lines(HOUR)
    assert list(lines) == [LineGroup(1, [b"a", b"", b"b"], more=False)]
    assert not lines.is_cut


def test_an_interrupt_ends_the_input_with_what_can_be_read(pipe: Pipe) -> None:
    pipe.write(b"a\nb\nunfinished")
    os.write(pipe.interrupt, b"!")
    lines = pipe.lines(HOUR)
    assert list(lines) == [LineGroup(1, [b"a", b"b"], more=False)]
    assert lines.is_cut


def test_an_interrupt_at_the_end_of_the_input_cuts_nothing(pipe: Pipe) -> None:
    pipe.end()
    os.write(pipe.interrupt, b"!")
    lines = pipe.lines(HOUR)
    assert [group.lines for group in lines] == [[]]
    assert not lines.is_cut


def test_a_line_without_an_end_does_not_fill_memory(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "_MOST_LINE_BYTES", 5)
    pipe.write(b"a\n123456")
    with pytest.raises(InvalidMessageError, match="line 2 has more than 5 bytes"):
        list(pipe.lines(0.0))

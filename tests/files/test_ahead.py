"""One item made ahead in a second thread: same order, same errors, and nothing stays behind."""

import os
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from contextvars import ContextVar

import pytest

from mqstore.files import ahead
from mqstore.files.ahead import made_ahead

WAIT_S = 30
NAMED: ContextVar[str] = ContextVar("named", default="nobody")


class Made:
    """Items that note which thread made them, and how many were asked for when one was begun."""

    def __init__(self, count: int, fails_at: int = -1) -> None:
        self.asked = self.begun = 0
        self.threads: set[int] = set()
        self.ended = False
        self._count = count
        self._fails_at = fails_at
        self._next = threading.Condition()

    def items(self) -> Generator[int, None, None]:
        try:
            for number in range(self._count):
                with self._next:
                    assert number <= self.asked, "more than one item ahead"
                    self.begun += 1
                    self._next.notify_all()
                self.threads.add(threading.get_ident())
                if number == self._fails_at:
                    raise LookupError(f"item {number}")
                yield number
        finally:
            self.ended = True

    def wait_for(self, begun: int) -> None:
        with self._next:
            assert self._next.wait_for(lambda: self.begun >= begun, WAIT_S)

    def taken(self, items: Iterator[int]) -> Iterator[int]:
        while True:
            self.asked += 1
            try:
                yield next(items)
            except StopIteration:
                return


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ahead, "_cores", lambda: 2)
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_the_next_item_is_made_while_one_is_used_and_no_more() -> None:
    made, found = Made(5), []
    for item in made.taken(made_ahead(made.items())):
        found.append(item)
        if item < 4:
            made.wait_for(item + 2)  # Without a second thread it would never be begun.
    assert found == [0, 1, 2, 3, 4]
    assert made.ended
    assert made.threads.isdisjoint({threading.get_ident()})


@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_error_comes_after_the_items_before_it(at: int) -> None:
    made, found = Made(5, fails_at=at), []
    with pytest.raises(LookupError, match=f"item {at}"):
        found.extend(made.taken(made_ahead(made.items())))
    assert made.begun == at + 1
    assert made.ended


def test_items_before_an_error_are_yielded() -> None:
    made = Made(5, fails_at=3)
    items = made.taken(made_ahead(made.items()))
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LookupError):
        next(items)


def test_nothing_is_left_when_it_is_closed_early() -> None:
    made = Made(5)
    items = made_ahead(made.items())
    assert next(made.taken(items)) == 0
    items.close()
    assert made.ended
    assert made.begun <= 2
    assert list(items) == []


def use(made: Made, items: Generator[int, None, None]) -> None:
    with closing(items):
        for _ in made.taken(items):
            raise KeyError


def test_an_error_of_the_user_ends_the_thread_before_it_is_handled() -> None:
    made = Made(5)
    alive = threading.active_count()
    items = made_ahead(made.items())
    with pytest.raises(KeyError) as raised:
        use(made, items)
    assert raised.value is not None  # Its traceback holds the frames: they do not hold the thread.
    assert threading.active_count() == alive
    assert made.ended


def test_an_item_that_fails_behind_the_last_one_used_is_not_noticed() -> None:
    made = Made(5, fails_at=1)
    with closing(made_ahead(made.items())) as items:
        assert next(made.taken(items)) == 0
        made.wait_for(2)
    assert made.ended


def test_items_see_the_context_of_the_call_that_takes_the_first() -> None:
    def items() -> Generator[str, None, None]:
        for _ in range(2):
            yield NAMED.get()

    token = NAMED.set("somebody")
    found = list(made_ahead(items()))
    NAMED.reset(token)
    assert found == ["somebody", "somebody"]


@pytest.mark.parametrize("wanted", [True, False])
def test_there_is_no_second_thread_on_one_core_or_if_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    if wanted:
        monkeypatch.setattr(ahead, "_cores", lambda: 1)
    made = Made(5)
    with closing(made_ahead(made.items(), wanted=wanted)) as items:
        assert list(made.taken(items)) == [0, 1, 2, 3, 4]
    assert made.threads == {threading.get_ident()}


def test_closing_it_without_a_thread_closes_the_items() -> None:
    made = Made(5)
    items = made_ahead(made.items(), wanted=False)
    assert next(items) == 0
    items.close()
    assert made.ended


def test_it_counts_the_cores_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    made = Made(3)
    assert list(made.taken(made_ahead(made.items()))) == [0, 1, 2]
    assert made.threads == {threading.get_ident()}


def test_a_child_that_was_forked_in_the_middle_closes_it_and_begins_anew() -> None:
    made = Made(3)
    items = made_ahead(made.items())
    assert next(made.taken(items)) == 0
    made.wait_for(2)
    child = os.fork()
    if not child:
        ended = 1
        try:
            signal.alarm(WAIT_S)
            items.close()
            again = Made(3)
            ended = int(list(again.taken(made_ahead(again.items()))) != [0, 1, 2])
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0
    assert list(made.taken(items)) == [1, 2]

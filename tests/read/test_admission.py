"""Sharing a micro-batch over queues: exact limits, nobody starves, nothing fits that was left."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.read.admission import Admission, Fitting, share_bytes, share_count

counts = st.lists(st.integers(0, 10**12), max_size=12)
turns = st.integers(0, 50)
sizes = st.lists(st.lists(st.integers(1, 100), max_size=20), max_size=8)


def fitting(queues: Sequence[Sequence[int]]) -> Fitting:
    def fit(queue: int, skip: int, most: int, room: int) -> tuple[int, int]:
        grown = [used for used in accumulate(queues[queue][skip : skip + most]) if used <= room]
        return len(grown), grown[-1] if grown else 0

    return fit


@given(counts, st.integers(1, 10**12), turns)
def test_a_share_is_exactly_the_limit_or_all_there_is(
    waiting: list[int], limit: int, turn: int
) -> None:
    taken = share_count(waiting, limit, turn)
    assert sum(taken) == min(limit, sum(waiting))
    assert all(0 <= count <= has for count, has in zip(taken, waiting, strict=True))


@given(counts, st.integers(1, 10**12), turns)
def test_every_queue_gets_one_and_the_rest_goes_by_what_each_has(
    waiting: list[int], limit: int, turn: int
) -> None:
    taken = share_count(waiting, limit, turn)
    filled = sum(1 for count in waiting if count)
    if limit < filled:
        assert max(taken) == 1
        return
    rest = limit - filled
    total = sum(waiting) - filled
    for count, has in zip(taken, waiting, strict=True):
        if has and sum(waiting) > limit:
            assert abs((count - 1) * total - rest * (has - 1)) < total


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 3))
def test_a_limit_below_the_number_of_queues_goes_round(waiting: list[int], limit: int) -> None:
    left = list(waiting)
    for turn in range(sum(waiting)):
        left = [a - b for a, b in zip(left, share_count(left, limit, turn), strict=True)]
    assert not any(left)


@given(sizes, st.integers(1, 2000), turns)
def test_bytes_stay_below_the_limit_and_nothing_more_would_fit(
    queues: list[list[int]], limit: int, turn: int
) -> None:
    waiting = [len(queue) for queue in queues]
    taken, used = share_bytes(waiting, limit, fitting(queues), turn)
    assert used == sum(sum(q[:count]) for q, count in zip(queues, taken, strict=True))
    assert used <= limit or sum(taken) == 1
    for queue, count in zip(queues, taken, strict=True):
        assert count == len(queue) or used + queue[count] > limit


def test_a_message_larger_than_the_limit_comes_alone() -> None:
    assert share_bytes([2, 1], 10, fitting([[50, 1], [3]]), 0) == ([1, 0], 50)
    assert share_bytes([2, 1], 10, fitting([[50, 1], [3]]), 1) == ([0, 1], 3)


def test_little_more_is_looked_at_than_is_taken() -> None:
    looked: list[int] = []

    def fit(_queue: int, _skip: int, most: int, room: int) -> tuple[int, int]:
        count = min(most, room // 100)
        looked.append(count)
        return count, 100 * count

    waiting = [10**9, 10**9]
    taken, used = share_bytes(waiting, 1_000_000, fit)
    assert (taken, used) == ([5000, 5000], 1_000_000)
    assert sum(looked) <= 10_002


@pytest.mark.parametrize(
    ("waiting", "waited_ms", "held"),
    [(9, 0, True), (10, 0, False), (9, 500, False), (9, 499, True)],
)
def test_too_few_are_held_back_for_a_while(waiting: int, waited_ms: float, held: bool) -> None:
    assert Admission(None, None, 10, 500).is_held_back(waiting, waited_ms) is held
    assert not Admission().is_held_back(waiting, 0)

"""The newest generation of a queue is found by its record of queue offset 0, and by no other."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.derive.generations import Generations

QUEUE = ("T", 0)


def begin(numbers: list[int], cuts: tuple[int, ...] = (), queue: tuple[str, int] = QUEUE) -> int:
    """The place where the newest generation begins, counted from 1; 0: there is only one."""
    generations = Generations()
    places = np.arange(1, len(numbers) + 1)
    edges = [0, *sorted(cuts), len(numbers)]
    for low, high in pairwise(edges):
        generations.take(queue, np.array(numbers[low:high], np.int64), places[low:high])
    return generations.begins().get(queue, 0)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 1, 2, 3], 0),
        ([7, 8, 9], 0),
        ([0, 1, 2, 0, 1], 4),
        ([37, 38, 39, 0, 1, 2, 3], 4),
        ([0, 1, 2, 0], 4),
        ([0, 0], 2),
        ([0, 0, 1], 2),
        ([0, 1, 2, 0, 1, 2, 0, 1, 2, 3], 7),
        ([0, 1, 2, 3, 0, 2, 3], 5),
    ],
)
def test_the_last_record_of_queue_offset_0_behind_others_begins_it(
    numbers: list[int], expected: int
) -> None:
    assert begin(numbers) == expected


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 2, 3, 0, 5, 6],
        [0, 0, 2, 3],
        [0, 1, 2, 3, 1, 5, 6],
        [0, 1, 2, 2, 3, 4],
        [0, 1, 98, 3, 4],
    ],
)
def test_a_changed_queue_offset_begins_none(numbers: list[int]) -> None:
    assert begin(numbers) == 0


@given(
    numbers=st.lists(st.integers(0, 3), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_it_does_not_depend_on_how_many_records_come_at_once(
    numbers: list[int], cuts: list[int]
) -> None:
    kept = tuple(cut for cut in cuts if cut <= len(numbers))
    assert begin(numbers, kept) == begin(numbers)


@pytest.mark.parametrize(
    ("first", "expected"),
    [((1, 3), [1]), ((1, 7), [1]), ((7, 8), []), ((1, 12), []), ((12, 13), [])],
)
def test_a_queue_that_got_no_message_since_has_old_ones_only(
    first: tuple[int, int], expected: list[int]
) -> None:
    """Queue 0 has old messages up to place 6 and new ones from place 9 on."""
    generations = Generations()
    generations.take(("T", 1), np.array([4, 5]), np.array(first))
    generations.take(("T", 0), np.array([0, 1, 0, 1]), np.array([2, 6, 9, 10]))
    generations.take(("U", 1), np.array([0]), np.array([4]))
    assert generations.left() == [("T", queue_id) for queue_id in expected]


def test_a_light_queue_has_one_generation() -> None:
    assert begin([0, 1, 0, 1], queue=("%LMQ%a", 0)) == 0

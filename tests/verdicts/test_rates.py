"""Rates between looks, and when a lag is 0: what the spread holds, and what is never foreseen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.verdicts.rates import Drift, drift


def test_a_steady_counter_is_foreseen_to_the_millisecond() -> None:
    found = drift([0, 1_000, 2_000, 3_000], [0, 10, 20, 30])
    assert found is not None
    assert found.per_second.value == 10
    assert (found.per_second.low, found.per_second.high) == (10, 10)
    ahead = found.reach_ms(50)
    assert ahead is not None
    assert ahead.value == 5_000
    assert ahead.low == pytest.approx(5_000)
    assert ahead.high == pytest.approx(5_000)


def test_what_does_not_move_or_was_seen_once_is_not_foreseen() -> None:
    assert drift([5], [5]) is None
    assert drift([5, 5], [5, 6]) is None
    for still in (drift([0, 1_000], [7, 7]), drift([0, 1_000], [7, 3])):
        assert still is not None
        assert still.reach_ms(1) is None
        nothing = still.reach_ms(0)
        assert nothing is not None
        assert nothing.value == 0
    assert Drift(1e-12, 1, 0.0, 2.0).reach_ms(1e9) is None


def test_two_looks_have_the_chance_of_single_events() -> None:
    few, many = drift([0, 10_000], [0, 10], 10), drift([0, 10_000], [0, 10_000], 10_000)
    assert few is not None
    assert many is not None
    assert few.per_second.low == pytest.approx(0.38, abs=0.01)
    assert many.per_second.low == pytest.approx(980.4, abs=0.1)
    # A lag that shrinks by 10, as 1,000 were consumed and 990 stored, may not shrink at all.
    level = drift([0, 10_000], [0, 10], 1_990)
    assert level is not None
    ahead = level.reach_ms(100)
    assert ahead is not None
    assert ahead.high is None


@given(
    steps=st.lists(st.tuples(st.integers(1, 10_000), st.integers(-500, 500)), max_size=20),
    amount=st.integers(0, 10**9),
)
def test_spreads_hold_their_value_and_never_fail(steps: list[tuple[int, int]], amount: int) -> None:
    times, counts = [0], [0]
    for ms, step in steps:
        times.append(times[-1] + ms)
        counts.append(counts[-1] + step)
    found = drift(times, counts)
    if found is None:
        assert not steps
        return
    ahead = found.reach_ms(amount)
    if ahead is not None:
        assert ahead.low is not None
        assert 0 <= ahead.low <= ahead.value + 1
        assert ahead.high is None or ahead.high >= ahead.value - 1


def test_a_commit_between_two_close_looks_does_not_count_as_a_fast_group() -> None:
    times = [*range(0, 50_000, 10_000), 59_950, 60_000, *range(70_000, 100_001, 10_000)]
    found = drift(times, [ms // 5_000 * 500 for ms in times], None, 1_000)
    assert found is not None
    ahead = found.reach_ms(10_000)
    assert ahead is not None
    assert ahead.value == 100_000
    assert ahead.high is not None
    assert ahead.high < 1.5 * ahead.value

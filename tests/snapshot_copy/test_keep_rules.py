"""Which points stay, also where a clock was wrong, and what a wrong clock does to a repository."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.copy.errors import ClockJumpError
from mqstore.copy.keep_rules import JUMP_MS, kept, parse_keep
from mqstore.copy.point_continues import Accepted
from mqstore.copy.prune_points import prune_named, prune_points
from mqstore.copy.take_point import take_point
from mqstore.errors import InvalidOptionError, PointNotFoundError
from mqstore.files.points.manifest import PointHead
from mqstore.files.points.repository import Repository, WantedPoint
from snapshot_copy.copied import SMALL, messages
from snapshot_copy.pointed import at, backing, files, is_whole, kept_at, needed, rows_of
from support.growing import grow

HOUR, DAY = 3_600_000, 86_400_000
YEAR = 365 * DAY
RULES = parse_keep("keep", "24h:1h,30d:1d")


def head(number: int, ms: int) -> PointHead:
    return PointHead(number, ms, ms, "b", "s", 0, 0, 0, 0, 0, 0, 0)


def heads_at(times: Sequence[int]) -> list[PointHead]:
    return [head(number, ms) for number, ms in enumerate(times, 1)]


@given(
    st.lists(st.integers(1, JUMP_MS), min_size=0, max_size=60),
    st.integers(0, 40 * DAY),
)
def test_the_rules_keep_the_last_of_each_step(gaps: list[int], late_ms: int) -> None:
    times = [50 * DAY]
    for gap in gaps:
        times.append(times[-1] + gap)
    now_ms = times[-1] + late_ms
    found = kept(heads_at(times), RULES, now_ms)

    expected = {len(times)}
    for age, step in ((DAY, HOUR), (30 * DAY, DAY)):
        young = [n for n, ms in enumerate(times, 1) if ms >= times[-1] - age]
        expected |= set({times[n - 1] // step: n for n in young}.values())
    assert found == expected


@pytest.mark.parametrize("jump_ms", [DAY + HOUR * 3, 4 * YEAR, -DAY, -4 * YEAR])
def test_a_clock_that_was_wrong_once_costs_no_point(jump_ms: int) -> None:
    """A month of points, one by a wrong clock, and hours by the right one."""
    start_ms = 20_000 * DAY
    right = [start_ms + n * DAY for n in range(30)]
    right += [right[-1] + n * HOUR for n in range(1, 20)]
    wrong = right[-1] + jump_ms
    later = [right[-1] + n * HOUR for n in range(1, 4)]
    times = [*right, wrong, *later]
    plain = kept(heads_at([*right, *later]), RULES, later[-1])
    as_numbered = {n if n <= len(right) else n + 1 for n in plain}
    assert kept(heads_at(times), RULES, later[-1]) >= as_numbered
    # A run that prunes while the clock is wrong counts the jump as one step: one day of thirty.
    before = kept(heads_at(right), RULES, right[-1])
    assert before - kept(heads_at([*right, wrong]), RULES, wrong) <= {1}


@pytest.mark.parametrize("text", ["", "24h", "1h:24h", "0s:0s", "x:1h", "24h:1h,"])
def test_rules_in_another_form_are_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="keep"):
        parse_keep("keep", text)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock so many ms from now."""
    now = time.time_ns()

    def change(ms: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: now + ms * 1_000_000)

    return change


def test_a_clock_that_went_back_is_told_and_points_are_found_by_it(
    tmp_path: Path, set_clock: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    laid, (first,) = kept_at(tmp_path, [5], SMALL)
    place = backing(tmp_path / "repository")
    for hours, told in ((3, 0), (1, 1), (2, 1)):
        set_clock(hours * HOUR)
        take_point(laid.root, place)
        assert caplog.text.count("the clock is behind the time of point 2") == told
    found = Repository(place)
    wanted = {
        h: found.find(WantedPoint("time", first.began_ms + h * HOUR + HOUR // 2)) for h in range(5)
    }
    assert wanted == {0: 1, 1: 3, 2: 4, 3: 4, 4: 4}
    with pytest.raises(PointNotFoundError, match="its first point, 1, is later"):
        found.find(WantedPoint("time", first.began_ms - 1))


def test_a_clock_far_ahead_is_asked_about_and_its_point_can_be_removed(
    tmp_path: Path, set_clock: Callable[[int], None]
) -> None:
    laid, _ = kept_at(tmp_path, [5], SMALL)
    place = backing(tmp_path / "repository")
    set_clock(JUMP_MS - HOUR)
    take_point(laid.root, place)
    set_clock(4 * YEAR)
    with pytest.raises(ClockJumpError, match="--accept-clock"):
        take_point(laid.root, place)
    assert Repository(place).numbers() == [1, 2]
    take_point(laid.root, place, accepted=Accepted(clock=True))
    prune_points(place, RULES)
    assert Repository(place).numbers() == [1, 2, 3]
    set_clock(JUMP_MS)
    take_point(laid.root, place)
    assert [one.number for one in prune_named(place, [3], dry_run=True).gone] == [3]
    assert [one.number for one in prune_named(place, [3]).gone] == [3]
    assert Repository(place).numbers() == [1, 2, 4]
    assert files(tmp_path / "repository") == needed(tmp_path / "repository")
    set_clock(JUMP_MS + HOUR)
    take_point(laid.root, place)
    assert Repository(place).find(WantedPoint("latest")) == 5


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_goes_back_and_forth_harms_no_point(
    tmp_path: Path, set_clock: Callable[[int], None], seed: int
) -> None:
    laid, _ = kept_at(tmp_path, [3], SMALL)
    place, then = (
        backing(tmp_path / "repository"),
        {1: rows_of(at(backing(tmp_path / "repository"), 1))},
    )
    moves = [DAY, -DAY, 4 * YEAR, -4 * YEAR, 0, 2 * DAY, -2 * DAY, HOUR]
    for number, ms in enumerate(moves[seed:] + moves[:seed], 2):
        set_clock(ms)
        grow(laid, messages(3 + 5 * number), SMALL)
        take_point(laid.root, place, accepted=Accepted(clock=True))
        then[number] = rows_of(at(place, number))
        prune_points(place, parse_keep("keep", "2d:0"))
    numbers = Repository(place).numbers()
    assert numbers == sorted(then)
    assert {n: rows_of(at(place, n)) for n in numbers} == then
    assert is_whole(tmp_path / "repository")


def test_the_newest_and_a_damaged_point_can_be_removed_by_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid, _ = kept_at(tmp_path, [5, 20, 30], SMALL)
    place = backing(tmp_path / "repository")
    damaged = tmp_path / "repository" / "points" / "00000002"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(PointNotFoundError, match="no point 7"):
        prune_named(place, [7])
    assert prune_named(place, [2]).stay == prune_named(place, [], dry_run=True).stay
    assert [one.number for one in prune_named(place, [3]).gone] == [3]
    assert Repository(place).numbers() == [1]
    assert files(tmp_path / "repository") == needed(tmp_path / "repository")
    prune_named(place, [1])
    assert files(tmp_path / "repository") == {"mqlog-repository"}
    with caplog.at_level(logging.WARNING):
        take_point(laid.root, place)
    assert not caplog.records
    shutil.rmtree(laid.root)
    assert is_whole(tmp_path / "repository")

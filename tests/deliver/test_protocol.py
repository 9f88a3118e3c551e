"""The protocol of exactly once on modelled brokers: kills, lost and partial answers, crashes."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deliver.modelled import Brokers, KilledError, ModelWire
from mqstore.deliver.once.errors import (
    LostHistoryError,
    NewerOwnerError,
    PublicationError,
)
from mqstore.deliver.once.publish import History, Publication, Write
from mqstore.errors import NondeterministicWriteError
from mqstore.live.send.requests import Queue
from support import soak

QUEUES = [Queue("T", broker, queue_id) for broker in ("a", "b") for queue_id in (0, 1)]
MOST_FAILURES = 12
TRIES = MOST_FAILURES + 2
Make = Callable[[Write, ModelWire, str], Publication]


class Failures:
    """Choices from a list of numbers; after it, and after MOST_FAILURES, nothing fails."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = iter(numbers)
        self.count = 0

    def choose(self, _name: str, count: int) -> int:
        number = next(self._numbers, 0) % count if self.count < MOST_FAILURES else 0
        self.count += number != 0
        return number


def spread(keys: list[str], turn: int) -> dict[Queue, list[str]]:
    """Give each key a queue, another one in each try."""
    found: dict[Queue, list[str]] = {queue: [] for queue in QUEUES}
    for place, key in enumerate(keys):
        found[QUEUES[(place * (turn + 1) + turn) % len(QUEUES)]].append(key)
    return found


def run(brokers: Brokers, version: int, keys: list[str], make: Make) -> None:
    """Try a write until it is done, as a driver that is started again does."""
    for turn in range(TRIES):
        write = Write("app", version, frozenset(keys))
        wire = ModelWire(brokers, version, spread(keys, turn))
        try:
            make(write, wire, f"owner {version} {turn}").run()
        except (KilledError, PublicationError, NewerOwnerError):
            continue
        # From here on the brokers keep what they hold: that is a condition of the promise.
        for name in brokers.logs:
            brokers.keep(name)
        return
    raise AssertionError("the write never ended")


def counted(numbers: list[int], make: Make) -> Counter[str]:
    """How often each row is stored after two writes with those failures."""
    brokers = Brokers(["a", "b"], Failures(numbers).choose)
    for version in range(2):
        run(brokers, version, [f"{version}-{n}" for n in range(6)], make)
    return Counter(brokers.keys())


def expected() -> Counter[str]:
    return Counter(f"{version}-{n}" for version in range(2) for n in range(6))


NUMBERS = st.lists(st.integers(0, 30).map(lambda n: max(0, n - 25)), min_size=60, max_size=150)


@pytest.mark.soak
@given(NUMBERS)
@settings(max_examples=soak.size("protocol", check=30, test=150, whole=50_000))
def test_every_row_is_there_once_whatever_fails_and_whenever(numbers: list[int]) -> None:
    assert counted(numbers, Publication) == expected()


class Blind(Publication):
    """A publisher that does not look."""

    def _resolve(self) -> frozenset[str]:
        return frozenset()


class Hasty(Publication):
    """A publisher that looks, and does not wait for what is under way."""

    def _resolve(self) -> frozenset[str]:
        self._wire.fence = lambda: None  # type: ignore[method-assign]
        return frozenset(super()._resolve())


class Forgetful(Publication):
    """A publisher that does not ask for earlier tries before it begins, nor after."""

    def run(self) -> int | None:
        self._wire.history = lambda *_: History({}, {})  # type: ignore[method-assign,assignment]
        return super().run()


@pytest.mark.parametrize("make", [Blind, Hasty, Forgetful])
def test_a_publisher_that_leaves_a_step_out_is_found(make: Make) -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        numbers = [max(0, rng.randrange(31) - 25) for _ in range(100)]
        if counted(numbers, make) != expected():
            assert counted(numbers, Publication) == expected()
            return
    pytest.fail("no failure shows that the step is missing")


def quiet() -> Brokers:
    return Brokers(["a", "b"], Failures([]).choose)


def publication(
    brokers: Brokers, keys: list[str], version: int = 0, owner: str = "me", **more: bool
) -> Publication:
    wire = ModelWire(brokers, version, spread(keys, 0))
    return Publication(Write("app", version, frozenset(keys)), wire, owner, **more)


def test_a_committed_version_and_those_before_it_send_nothing() -> None:
    brokers = quiet()
    assert publication(brokers, ["x", "y"], 5).run() == 0
    for version, keys in ((5, ["x", "y"]), (4, ["x", "z"])):
        assert publication(brokers, keys, version, f"again {version}").run() is None
    assert sorted(brokers.keys()) == ["x", "y"]
    assert publication(brokers, ["z"], 6, "next").run() == 0
    assert sorted(brokers.keys()) == ["x", "y", "z"]


def test_other_rows_than_those_of_a_commit_are_an_error() -> None:
    brokers = quiet()
    for version in (0, 1):
        publication(brokers, [f"x{version}", f"y{version}"], version).run()
    before = brokers.keys()
    for version in (0, 1):
        for keys in ([f"x{version}", "z"], [f"x{version}"]):
            with pytest.raises(NondeterministicWriteError, match="2 rows were committed as"):
                publication(brokers, keys, version, "other").run()
    assert brokers.keys() == before


def killed_after(brokers: Brokers, keys: list[str], rows: int) -> None:
    """Leave a write whose publisher is killed before it has sent more than so many batches."""
    left = [rows]

    def choose(name: str, _count: int) -> int:
        left[0] -= name == "killed before rows"
        return int(left[0] < 0 and name == "killed before rows")

    quiet_choose, brokers.choose = brokers.choose, choose
    with pytest.raises(KilledError):
        publication(brokers, keys, owner="dead").run()
    brokers.choose = quiet_choose


def test_other_rows_than_last_time_are_an_error() -> None:
    brokers = quiet()
    killed_after(brokers, ["x", "y", "z"], 2)
    there = brokers.keys()
    assert 0 < len(there) < 3
    with pytest.raises(NondeterministicWriteError, match="must have the same rows"):
        publication(brokers, ["new"]).run()
    assert brokers.keys() == there
    assert publication(brokers, ["x", "y", "z"], owner="third").run() == len(there)
    assert sorted(brokers.keys()) == ["x", "y", "z"]


def test_a_second_publisher_stops_the_first() -> None:
    brokers = quiet()
    keys = [f"{n}" for n in range(8)]
    second = publication(brokers, keys, owner="second")

    def interrupt(name: str, _count: int) -> int:
        if name == "killed before rows" and len(brokers.keys()) == 2:
            brokers.choose = Failures([]).choose
            second.run()
        return 0

    brokers.choose = interrupt
    with pytest.raises(NewerOwnerError, match="another publisher of the same application"):
        publication(brokers, keys, owner="first").run()
    assert Counter(brokers.keys()) == Counter(keys)


class Expired(ModelWire):
    def history(self, app: str, since: Mapping[str, int] | None = None) -> History:
        found = super().history(app, since)
        return History(found.records, found.ends, expired=True)


def test_a_history_that_expired_is_an_error_unless_it_is_allowed() -> None:
    brokers = quiet()
    write = Write("app", 7, frozenset({"x"}))
    wire = Expired(brokers, 7, spread(["x"], 0))
    for owner in ("one", "two"):  # The first leaves nothing that the second could take for one.
        with pytest.raises(LostHistoryError, match="MQLOG_CONTROL"):
            Publication(write, wire, owner).run()
    assert Publication(write, wire, "three", allows_lost=True).run() == 0
    assert Publication(write, wire, "four").run() is None
    first = Write("new", 0, frozenset({"y"}))
    assert Publication(first, Expired(brokers, 0, spread(["y"], 0)), "five").run() == 0


def test_a_publisher_gives_up_when_nothing_comes_through() -> None:
    brokers = quiet()

    def choose(name: str, count: int) -> int:
        is_of_rows = (
            name == "stored"
            and sum(map(len, (log.controls() for log in brokers.logs.values()))) >= 2
        )
        return count - 1 if is_of_rows and sending[0] else 0

    sending = [False]
    wire = ModelWire(brokers, 0, spread(["x"], 0))
    send = wire.send

    def failing(landed: frozenset[str], check: Callable[[], None]) -> None:
        sending[0] = True
        try:
            send(landed, check)
        finally:
            sending[0] = False

    wire.send = failing  # type: ignore[method-assign,assignment]
    brokers.choose = choose
    with pytest.raises(PublicationError, match="not all messages could be stored"):
        Publication(Write("app", 0, frozenset({"x"})), wire, "me").run()

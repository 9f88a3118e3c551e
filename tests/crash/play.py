"""Record a commit, cut the power anywhere, and judge what is left: the loop of the crash tests.

A state has a name that makes it again: `scenario:seed:prefix:subset`, the subset in hex, and one
more `prefix:subset` behind a slash for each crash while the crash before it was being recovered.
`prefix:kill` instead is a process that was killed there, and recovery on what it had written,
durable or not; `prefix:again` the same, and the commit made again.
"""

import math
import random
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from crash.disk import (
    Disk,
    Forgotten,
    Passing,
    Recorder,
    State,
    Sync,
    digest,
    standing_in,
)
from crash.invariants import (
    Expected,
    at_rest,
    changes_nothing_again,
    difference,
    everything,
    holds,
    is_decided,
    outcome,
    recover_store,
    seen_before,
)
from crash.scenarios import APP, BY_NAME, Work, work
from support.oracle import Message, NotARecordError, walk
from support.writing import held

ACKED = "acked"
STORE = "store"
KILL, AGAIN = "kill", "again"
MOST_OF_ONE_RECOVERY = 12
FOCUSED_AT_END, FOCUSED_BEFORE = 1, 1
PREFIXES_BETWEEN_RECOVERIES = 6
STRAIGHT = 16  # of so many states, one is not recovered: the commit is made again at once
SHARE_OF_COMMITS = 0.6  # of all states, where there is no time for all; the rest are recoveries'


@dataclass(frozen=True)
class Recording:
    """A commit that went well, and all that its disk could have been on the way."""

    work: Work
    disk: Disk
    expected: Expected
    places: frozenset[str]
    """Where mqstore synced and renamed."""
    with_ids: bool = True
    """Whether the states are of the very job that was recorded: another has other UNIQ_KEYs."""
    verified: set[tuple[bytes, bool]] = field(default_factory=set)
    """How recoveries ended, of which all is known: the store, and whether it has the batch."""


def record(what: Work, base: Path) -> Recording:
    """Make the store of `what` below `base`, commit, and return what was seen."""
    root = base / STORE
    base.mkdir(parents=True)
    with standing_in(Passing()):
        what.lay_out(root)
    before = held_before(root)
    recorder = Recorder(base)
    with standing_in(recorder):
        committed = what.run(root)
    recorder.mark(ACKED)
    assert committed.messages == what.shape.rows
    expected = Expected.of(before, held(root), APP, what.shape.version)
    with standing_in(Passing()):
        holds(root, expected, decided=True)
    shutil.rmtree(base)
    disk = Disk(recorder, _piece_bytes(what.seed))
    return Recording(what, disk, expected, frozenset(recorder.places))


def held_before(root: Path) -> list[Message]:
    """Return all records of a store, up to what is none."""
    found: list[Message] = []
    for path in sorted((root / "commitlog").glob("*")):
        with suppress(NotARecordError):
            found.extend(message for _, message in walk(path.read_bytes()))
    return found


@dataclass(frozen=True)
class Followed:
    """What came after a crash, and went well, and all that its disk could have been on the way."""

    recording: Recording
    """What its states are judged by."""
    disk: Disk
    decided: bool | None
    """Whether the commit is, whatever a power cut leaves from here on; None: either."""
    places: frozenset[str]
    """Where mqstore synced and renamed."""


def nothing_yet(recording: Recording) -> Followed:
    """Return the commit itself, before any crash."""
    return Followed(recording, recording.disk, None, recording.places)


def follow(before: Followed, crash: str, base: Path) -> Followed:
    """Make what a crash leaves below `base`, recover or commit again there, and return that.

    `crash` is one step of a state's name. AssertionError if what was decided is not any more.
    """
    prefix, how = crash.split(":")
    base.mkdir(parents=True)
    if how in (KILL, AGAIN):
        recorder = before.disk.kill(int(prefix), base)
        return _follow(before, recorder, how, is_firm=_is_firm(before, int(prefix), base))
    before.disk.state(int(prefix), int(how, 16)).write(base)
    return _follow(before, Recorder(base), KILL, is_firm=True)


def _is_firm(before: Followed, prefix: int, base: Path) -> bool:
    """Tell whether a commit that is decided after a kill would be after a power cut as well."""
    if before.decided is not None:
        return True
    cut = base.with_name(f"{base.name}-cut")
    cut.mkdir()
    before.disk.state(prefix, 0).write(cut)
    found = is_decided(cut / STORE, before.recording.expected)
    shutil.rmtree(cut)
    return found


def _follow(before: Followed, recorder: Recorder, how: str, *, is_firm: bool) -> Followed:
    recording = before.recording
    root = Path(recorder.base) / STORE
    seen = is_decided(root, recording.expected)
    known = before.decided
    assert known in (None, seen), f"decided, as was known before: {known}; now: {seen}"
    with standing_in(recorder):
        if how == AGAIN:
            assert recording.work.run(root).is_repeated == seen
        else:
            recover_store(root, recording.expected, decided=seen)
    if seen or how == AGAIN:
        recorder.mark(ACKED)
    if how == AGAIN and not seen:
        recording = replace(recording, with_ids=False)
    shutil.rmtree(recorder.base)
    is_open = not is_firm if seen else how == AGAIN
    decided = None if is_open else seen
    return Followed(recording, Disk(recorder), decided, frozenset(recorder.places))


def assert_state(
    recording: Recording,
    state: State,
    base: Path,
    decided: bool | None = None,
    *,
    again: bool = True,
) -> bool:
    """Check all of INV on one state below `base`, which is kept if it fails.

    `decided` is whether the commit is, where that is known: after a crash while recovering.
    Returns whether it is. With `again` the commit is made once more, too.
    """
    base.mkdir(parents=True)
    state.write(base)
    acked = ACKED in state.marks
    known = True if acked else decided
    with standing_in(Passing()):
        found = seen_before(base / STORE, recording.expected, acked=acked)
        assert known in (None, found), f"decided, as was known before: {known}; now: {found}"
        if again and (state.prefix + state.subset) % STRAIGHT == 0:
            _commit_straight(recording, base / STORE, decided=found)
        else:
            _recover(recording, base / STORE, decided=found, again=again)
    shutil.rmtree(base)
    return found


def assert_store(recording: Recording, root: Path, decided: bool | None = None) -> bool:
    """Check all of INV on the store at ``root``, as a failure left it."""
    with standing_in(Passing()):
        found = seen_before(root, recording.expected)
        assert decided in (None, found), f"decided, as was told: {decided}; now: {found}"
        _recover(recording, root, decided=found, again=True)
    return found


def _recover(recording: Recording, root: Path, *, decided: bool, again: bool) -> None:
    """Recover, and look at the end. Most recoveries have the same few ends: each is judged once."""
    is_store = recover_store(root, recording.expected, decided=decided)
    ended = (outcome(root), decided)
    if ended in recording.verified:
        if is_store:
            at_rest(root, recording.expected, decided=decided)
        return
    if is_store:
        holds(root, recording.expected, decided=decided, with_id=recording.with_ids)
        changes_nothing_again(root)
    if again:
        _commit_again(recording, root, decided=decided)
    recording.verified.add(ended)


def _commit_straight(recording: Recording, root: Path, *, decided: bool) -> None:
    """Make the commit again, as a driver does that knows nothing: it recovers by the way."""
    again = recording.work.run(root)
    assert again.is_repeated == decided
    holds(root, recording.expected, decided=True, with_id=decided and recording.with_ids)
    changes_nothing_again(root)


def _commit_again(recording: Recording, root: Path, *, decided: bool) -> None:
    before = everything(root) if decided else {}
    again = recording.work.run(root)
    assert again.is_repeated == decided
    if decided:
        changed = difference(before, everything(root))
        assert not changed, f"a repeated commit changed {changed}"
    else:
        holds(root, recording.expected, decided=True, with_id=False)


@dataclass
class Tally:
    """What was tested so far."""

    states: int = 0
    while_recovering: int = 0
    after_kills: int = 0
    """Of those, how many in which processes had been killed before, with the power on."""
    failures: list[str] = field(default_factory=list)


class Explorer:
    """Tests states of one scenario until there were enough, or too many failed."""

    def __init__(self, scenario: str, base: Path, *, most: int, most_failures: int = 3) -> None:
        self.tally = Tally()
        self._scenario = scenario
        self._base = base
        self._most = most
        self._most_failures = most_failures
        self._seen: set[bytes] = set()

    def run(self, samples: int) -> Tally:
        """Go through seed after seed: crashes of the commit, then crashes of recoveries.

        Of a place with many pieces that were not synced, about ``samples`` subsets are tested.
        """
        seed = 0
        while not self._is_enough():
            what = work(BY_NAME[self._scenario], seed)
            self._seen = set()
            recording = record(what, self._base / "run")
            self._explore(recording, random.Random(seed), samples)
            seed += 1
        return self.tally

    def run_focused(self) -> Tally:
        """Test what lacks that for which a sync ought to have been: see `Disk`.

        Of the commit, of recoveries from where nothing or all is there that was not synced, and
        of what follows kills.
        """
        rng = random.Random(0)
        recording = record(work(BY_NAME[self._scenario], 0), self._base / "run")
        states = list(recording.disk.without_the_forgotten())
        rng.shuffle(states)
        self._test_new(recording, states[: self._most // 2], f"{self._scenario}:0:", None)
        start = nothing_yet(recording)
        for crash in self._crashes(recording.disk, rng):
            if self._is_enough():
                break
            followed = follow(start, crash, self._base / "run")
            states = list(followed.disk.without_the_forgotten())
            rng.shuffle(states)
            # What a recovery leaves that returned is told best by its end.
            ends = [state for state in states if state.prefix == len(followed.disk.ops)]
            chosen = [*ends[:FOCUSED_AT_END], *states[:FOCUSED_BEFORE]]
            known = f"{self._scenario}:0:{crash}/"
            self._test_new(followed.recording, chosen, known, followed.decided)
        return self.tally

    def _crashes(self, disk: Disk, rng: random.Random) -> list[str]:
        """Return cuts at some places, and kills where most is not durable: before each sync."""
        prefixes = range(0, len(disk.ops), PREFIXES_BETWEEN_RECOVERIES)
        syncs = [n for n, op in enumerate(disk.ops) if isinstance(op, Sync | Forgotten)]
        crashes = [f"{prefix}:{how}" for prefix in prefixes for how in ("0", "-1")]
        crashes += [f"{prefix}:{how}" for prefix in syncs for how in (KILL, AGAIN)]
        rng.shuffle(crashes)
        return crashes

    def _test_new(
        self, recording: Recording, states: list[State], known: str, decided: bool | None
    ) -> int:
        """Test those that were not yet; return how many."""
        tested = 0
        for state in states:
            if not self._is_enough() and self._is_new(state, decided):
                self._test(recording, state, known + step(state), decided)
                tested += 1
        return tested

    def _explore(self, recording: Recording, rng: random.Random, samples: int) -> None:
        known = f"{self._scenario}:{recording.work.seed}:"
        states = [s for s in recording.disk.states(rng, samples) if self._is_new(s, None)]
        rng.shuffle(states)
        most = math.ceil(SHARE_OF_COMMITS * (self._most - self.tally.states))
        crashed = []
        for state in states[:most]:
            if self._is_enough():
                return
            decided = self._test(recording, state, known + step(state), None)
            if decided is not None:
                crashed.append((state, decided))
        # Where the commit is decided, a recovery has the most to do.
        crashed.sort(key=lambda one: not one[1])
        start = nothing_yet(recording)
        for number, (outer, _) in enumerate(crashed[: len(crashed) // 2]):
            if self._is_enough():
                return
            last = crashed[-1 - number][0]
            first = (
                step(outer), f"{outer.prefix}:{KILL}", f"{last.prefix}:{AGAIN}", step(outer)
            )[number % 4]  # fmt: skip
            self._crash_again(start, first, rng, twice=number % 4 == 3)

    def _crash_again(self, start: Followed, first: str, rng: random.Random, *, twice: bool) -> None:
        """Test states of what followed a crash; or, if `twice`, of what follows its kill."""
        known = f"{self._scenario}:{start.recording.work.seed}:{first}"
        try:
            followed = follow(start, first, self._base / "run")
            if twice:
                disk = followed.disk
                second = f"{rng.randrange(disk.since, len(disk.ops) + 1)}:{KILL}"
                known = f"{known}/{second}"
                followed = follow(followed, second, self._base / "run")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._failed(known, error)
            return
        states = [followed.disk.draw(rng) for _ in range(MOST_OF_ONE_RECOVERY)]
        tested = self._test_new(followed.recording, states, f"{known}/", followed.decided)
        self.tally.while_recovering += tested
        if followed.disk.since:
            self.tally.after_kills += tested

    def _is_new(self, state: State, decided: bool | None) -> bool:
        key = digest(state, decided)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _test(
        self, recording: Recording, state: State, name: str, decided: bool | None
    ) -> bool | None:
        self.tally.states += 1
        base = self._base / re.sub(r"\W", "-", name)
        try:
            return assert_state(recording, state, base, decided)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._failed(name, error)
            return None

    def _failed(self, name: str, error: Exception) -> None:
        self.tally.failures.append(f"{name} {type(error).__name__}: {error}")

    def _is_enough(self) -> bool:
        tally = self.tally
        return tally.states >= self._most or len(tally.failures) >= self._most_failures


def step(state: State) -> str:
    """Return the part of a state's name that tells one crash."""
    return f"{state.prefix}:{state.subset:x}"


def again(name: str, base: Path) -> None:
    """Judge the state of that name."""
    scenario, seed, rest = name.split(":", 2)
    now = nothing_yet(record(work(BY_NAME[scenario], int(seed)), base / "run"))
    *crashes, last = rest.split("/")
    for number, crash in enumerate(crashes):
        now = follow(now, crash, base / f"run-{number}")
    prefix, subset = last.split(":")
    assert_state(
        now.recording, now.disk.state(int(prefix), int(subset, 16)), base / "state", now.decided
    )


def _piece_bytes(seed: int) -> int:
    return 512 if seed % 2 == 0 else 4096

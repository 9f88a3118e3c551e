"""T3: a commit or a recovery is killed at each system call that changes something, or at a sample.

The process is killed as it enters the call, by strace, so what is left is what all calls before
it did, in the order in which the kernel did them. Nothing stands in for anything: it is the
kernel that ends the locks and the lease, closes the files and forgets the process.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crash import play
from crash.forks import Forks, Laid
from crash.invariants import is_decided
from crash.killing import Call, Killed, can_trace
from crash.scenarios import BY_NAME, work
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent
from support import soak

pytestmark = pytest.mark.soak

SCENARIOS = ["same-file"]
MORE_SCENARIOS = sorted({*BY_NAME} - {*SCENARIOS})
RECOVERED_FROM = soak.size("recoveries_killed", check=1, test=1, whole=5)


@pytest.fixture(scope="module")
def killers() -> Iterator[list[Killed]]:
    if not can_trace():
        pytest.skip("needs strace, and to be allowed to attach to a process")
    with tempfile.TemporaryDirectory() as folder, Forks() as one, Forks() as other:
        yield [Killed(one, Path(folder, "one")), Killed(other, Path(folder, "other"))]


@pytest.mark.parametrize("scenario", SCENARIOS + (MORE_SCENARIOS if soak.WHOLE else []))
def test_what_is_killed_at_any_call_leaves_a_store_that_recovers(
    killers: list[Killed], tmp_path: Path, scenario: str
) -> None:
    sweep = Sweep(scenario, tmp_path, killers)
    left = sweep.calls_of_a_write()
    assert set(left.values()) == {True, False}, "some are decided and some are not"
    pending = [call for call, is_pending in left.items() if is_pending]
    step = max(1, len(pending) // RECOVERED_FROM)
    recoveries = sum(map(sweep.calls_of_a_recovery, pending[::step][:RECOVERED_FROM]))
    soak.tell(f"{scenario}: killed at {len(left)} calls of a write, {recoveries} of recoveries")
    assert recoveries > 3


class Sweep:
    """One scenario, killed everywhere."""

    def __init__(self, scenario: str, space: Path, killers: list[Killed]) -> None:
        self._laid = Laid(work(BY_NAME[scenario], 0), space / "laid")
        self._words = ("write", scenario, 0)
        self._space = space
        self._killers = killers
        self._free = list(killers)
        self._judging = threading.Lock()
        self.recording = self._laid.recording

    def calls_of_a_write(self) -> dict[Call, bool]:
        """Kill a write at its calls; return whether the commit was decided and not finished."""
        root = self._laid_out("all")
        every = self._killers[0].calls(*self._words, root)
        assert len(every) > 80
        calls = soak.sample(every, check=6, test=20)
        return dict(zip(calls, self._each(calls, self._of_a_write), strict=True))

    def calls_of_a_recovery(self, left_at: Call) -> int:
        """Kill the recovery of what a kill at that call left; return at how many calls."""
        left = self._laid_out("left")
        self._killers[0].kill(left_at, *self._words, left)
        again = self._copied(left, "again")
        every = self._killers[0].calls("recover", again)
        assert len(every) > 20
        calls = soak.sample(every, check=4, test=10)
        with self._judging:
            play.assert_store(self.recording, again, True)
        shutil.rmtree(again.parent)

        def of_a_recovery(killed: Killed, call: Call) -> None:
            name = f"recovery-{call.name}-{call.k}"
            root = self._copied(left, name)
            killed.kill(call, "recover", root)
            self._judge(root, f"recovery of {left_at} killed at {call}", decided=True)

        self._each(calls, of_a_recovery)
        shutil.rmtree(left.parent)
        return len(calls)

    def _of_a_write(self, killed: Killed, call: Call) -> bool:
        root = self._laid_out(f"{call.name}-{call.k}")
        killed.kill(call, *self._words, root)
        pending = root.exists() and intent.load(StoreDir.at(root)) is not None
        self._judge(root, f"write killed at {call}")
        return pending

    def _each(
        self, calls: list[Call], work_on: Callable[[Killed, Call], bool | None]
    ) -> list[bool]:
        def one(call: Call) -> bool:
            killed = self._free.pop()
            try:
                return bool(work_on(killed, call))
            finally:
                self._free.append(killed)

        with ThreadPoolExecutor(len(self._killers)) as pool:
            return list(pool.map(one, calls))

    def _judge(self, root: Path, when: str, *, decided: bool | None = None) -> None:
        """Check all of INV, one store at a time: the judge puts something in place of `os`."""
        kept = root.parent
        with self._judging:
            try:
                if decided is None:
                    decided = root.exists() and is_decided(root, self.recording.expected)
                play.assert_store(self.recording, root, decided)
            except BaseException as error:
                error.add_note(f"{self._words}: {when}")
                raise
        shutil.rmtree(kept)

    def _laid_out(self, name: str) -> Path:
        root = self._space / name / play.STORE
        self._laid.copy(root)
        return root

    def _copied(self, left: Path, name: str) -> Path:
        (self._space / name).mkdir()
        return Path(shutil.copytree(left, self._space / name / play.STORE))

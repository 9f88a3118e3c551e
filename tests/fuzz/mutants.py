"""Makes mutants and looks at them, in a process of its own with limits of its own.

    python -m fuzz.mutants '{"seed":1,"mutants":1000,"folder":"…","guided":false,"forked":100,
        "bases":["small"]}'

Before each mutant it writes its line to stdout, so that whoever started it can tell which one
killed it. A mutant that reaches lines, or ends in a way, that none before did is kept, and later
ones are made from it. One in ``forked`` is looked at in a child whose memory is measured.
"""

import json
import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fuzz import bases
from fuzz.looks import LOOKS, WEIGHTS
from fuzz.mutant_outcome import MutantError, look_at_mutant
from fuzz.mutate import Edit, draw, to_line

LIMIT_S, WAIT_S = 10, 300
LIMIT_BYTES = 512 << 20
_MOST_EDITS = 8
_MOST_KEPT = 5_000
_GOLDEN_SHARE = 0.02


class Reached:
    """Counts the lines of mqstore that were run; a function all of whose lines were is let go."""

    def __init__(self, *, lines: bool) -> None:
        self.count = 0
        self._left: dict[CodeType, set[int]] = {}
        if lines:
            sys.settrace(self._called)

    def _called(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            ours = "/mqstore/" in code.co_filename
            left = {line for *_, line in code.co_lines() if line} if ours else set()
            self._left[code] = left
        return self._ran if left else None

    def _ran(self, frame: FrameType, _event: str, _: Any) -> Any:
        left = self._left[frame.f_code]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.count += 1
        return self._ran


class Fuzzer:
    """One run: seeds in, mutants out."""

    def __init__(
        self, folder: Path, seed: int, names: Sequence[str], *, guided: bool, forked: int
    ) -> None:
        self._rng = random.Random(seed)
        self._bases = {name: bases.make(name, folder / name) for name in names}
        self._forked = forked
        self._kept: list[tuple[str, list[Edit], str]] = []
        self._ends: set[str] = set()
        warm_up(self._bases)
        limit_memory()
        self._reached = Reached(lines=guided)
        self._guided = guided

    def run(self, mutants: int, told: Callable[[str], None]) -> dict[str, int]:
        """Look at that many mutants; return what there is to count. Raises MutantError."""
        for number in range(mutants):
            name, edits, look = self._draw()
            told(to_line(name, edits, look))
            before = self._reached.count
            watch()
            if self._forked and number % self._forked == self._forked - 1:
                in_child(partial(look_at_mutant, self._bases[name], edits, look))
                continue
            end = look_at_mutant(self._bases[name], edits, look)
            self._keep(name, edits, look, end, is_new=self._reached.count > before)
        return {
            "mutants": mutants,
            "kept": len(self._kept),
            "ends": len(self._ends),
            "lines": self._reached.count,
        }

    def _draw(self) -> tuple[str, list[Edit], str]:
        rng = self._rng
        look = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if self._kept and rng.random() < 0.3:
            name, edits, of_look = rng.choice(self._kept)
            more = draw(rng, self._bases[name])
            return name, [*edits, *more][-_MOST_EDITS:], rng.choice([look, of_look])
        golden = rng.random() < _GOLDEN_SHARE  # A look at one takes as long as thirty others.
        of_kind = [n for n in self._bases if (n in bases.GOLDEN) == golden]
        name = rng.choice(of_kind or list(self._bases))
        return name, draw(rng, self._bases[name]), look

    def _keep(self, name: str, edits: list[Edit], look: str, end: str, *, is_new: bool) -> None:
        wanted = (is_new or end not in self._ends) and name not in bases.GOLDEN
        if wanted and len(self._kept) < _MOST_KEPT:
            self._kept.append((name, edits, look))
        self._ends.add(end)


def watch() -> None:
    """Let this process not go on for long: ten seconds of CPU, or five minutes in all."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.alarm(WAIT_S)


def warm_up(made: dict[str, bases.Base]) -> None:
    """Look at every base as it is: it must be well, and imports and pools must be there."""
    for name, base in made.items():
        for look in LOOKS if name not in bases.GOLDEN else ("scan fail", "check", "backlog"):
            end = look_at_mutant(base, [], look)
            if end == "copy: UnsupportedStoreError" and name == "entries":
                continue  # Stores of a DLedger group are not copied.
            if not end.endswith(("done", "UnknownTopicError")):
                raise MutantError(f"{name} is not sound: {end}")


def limit_memory() -> None:
    """Let this process have no more than the limit on top of what it has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def in_child(act: Callable[[], object]) -> None:
    """Act in a forked child of little memory. Raises MutantError if it does not come back well."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            watch()
            held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            act()
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
            code = 0 if grown << 10 < LIMIT_BYTES else 3
        except BaseException as error:  # noqa: BLE001 - it is told by the parent
            os.write(writer, f"{type(error).__name__}: {error}"[:2000].encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if status:
        raise MutantError(f"a child ended with status {status}: {text}")


def _late(*_: object) -> None:
    raise MutantError(f"not back after {LIMIT_S} s")


def main() -> None:
    """Run as the argument says; one line a mutant to stdout, then the counts."""
    asked = json.loads(sys.argv[1])
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _late)
    logging.disable()  # A mutant a warning: half the time would go into them.
    begin = time.monotonic()
    out = sys.stdout

    def tell(line: str) -> None:
        out.write(f"at {line}\n")
        out.flush()

    try:
        fuzzer = Fuzzer(
            Path(asked["folder"]),
            asked["seed"],
            asked["bases"],
            guided=asked["guided"],
            forked=asked["forked"],
        )
        counts = fuzzer.run(asked["mutants"], tell)
    except MutantError as error:
        out.write(f"wrong {str(error).encode('unicode_escape').decode()}\n")
        out.flush()
        raise
    counts["ms"] = int(1000 * (time.monotonic() - begin))
    out.write(f"done {json.dumps(counts)}\n")


if __name__ == "__main__":
    main()

"""The code with one guard taken away: what the tests of this folder must notice.

A mutation is a context manager; while it is entered, the guard is not there. Those of the seam
are found by looking: every place that syncs or renames while a commit or a recovery runs.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from crash import play, settled
from crash.disk import forgetting
from crash.scenarios import SCENARIOS, work
from mqstore.files.base import durable
from mqstore.files.log.log_append import CommitLogAppender
from mqstore.files.txn import intent, ledger
from mqstore.write import apply, resume

TELLING = ("everything", "stale-tail", "interlock", "second-version", "new-store")
"""Scenarios in which every step is taken; the first few states of them notice most."""
Mutation = Callable[[], AbstractContextManager[None]]


@contextmanager
def _without_step(function: Callable[..., Any]) -> Iterator[None]:
    """Let a function of mqstore do nothing, by whatever module it is called."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("mqstore"):
                for known, value in list(vars(module).items()):
                    if value is function:
                        patch.setattr(module, known, _nothing)
        yield


@contextmanager
def _patched(owner: Any, **changes: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setattr(owner, name, value)
        yield


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _shown(appender: CommitLogAppender, data: memoryview) -> memoryview:
    appender._hidden = data[4]
    return data


STEPS: dict[str, Mutation] = {
    "the byte that hides the batch": lambda: _patched(CommitLogAppender, _hide=_shown),
    "abort": lambda: _patched(apply.Application, _make_abort=_nothing),
    "scrub": lambda: _without_step(apply.clear_tail),
    "the decision": lambda: _without_step(intent.store),
    "the ledger": lambda: _without_step(ledger.record),
    "removal of the interlock": lambda: _without_step(apply.remove_interlock),
    "removal of abort": lambda: _without_step(apply.remove_abort),
    "the recovery before a commit": lambda: _patched(resume._Resumption, run=_nothing),
    "the sync of the IndexFile before abort": lambda: _patched(
        apply.Application, settle_index=_nothing
    ),
    "the number that readers look at twice": lambda: _without_step(intent.raise_sequence),
    "the second look at the files": lambda: _patched(CommitLogAppender, check_files=_nothing),
    "the lease": lambda: _patched(
        durable, take_lease=lambda _: True, has_lease=lambda _: True, drop_lease=_nothing
    ),
}


BY_ORDER = ("the sync of the IndexFile before abort", "*Application.settle_index*")
"""What is durable before ``abort`` for a broker's sake: noticed by the order of syncs."""


def places(base: Path) -> list[str]:
    """Return every place of mqstore that syncs or renames in a commit or in a recovery."""
    found: set[str] = set()
    for scenario in SCENARIOS:
        recording = play.record(work(scenario, 0), base / "run")
        found |= recording.places
        start = play.nothing_yet(recording)
        for prefix in range(0, len(recording.disk.ops), 5):
            found |= play.follow(start, f"{prefix}:-1", base / "run").places
    return sorted(found)


TOGETHER: dict[str, tuple[str, ...]] = {
    "every sync of a queue that is made again": ("*queue_repair*", "*QueueRebuild*"),
    "every sync of an IndexFile that is made again": ("*index_repair*", "*IndexRebuild*"),
    "every sync of a published log": ("fsync resume._sync_log*", "*_write_again*"),
    "every sync of the folder of intents": ("fsync_directory *LockedStore.writer*",),
    "every sync of an IndexFile's head": ("*IndexAppender._write_head*",),
}
"""Places that each sync what another one syncs as well: one alone may not be missed."""


def all_of(base: Path) -> dict[str, Mutation]:
    """Return every mutation by name."""
    found = places(base)
    single = {place: _without(place) for place in found}
    groups = {
        name: _without(*(p for p in found if any(fnmatch(p, pattern) for pattern in patterns)))
        for name, patterns in TOGETHER.items()
    }
    return {**STEPS, **groups, **single}


def _without(*places: str) -> Mutation:
    return lambda: forgetting(*places)


def is_noticed(name: str, mutation: Mutation, base: Path, *, states: int) -> str:
    """Return what of a weakened mqstore was noticed first; empty if nothing was.

    A place of the seam is looked at where it was passed, any other step everywhere.
    """
    if any(fnmatch(name, pattern) for pattern in BY_ORDER):
        with mutation():
            return settled.unsettled(base)
    for scenario in TELLING:
        explorer = play.Explorer(scenario, base / scenario, most=states, most_failures=1)
        try:
            with mutation():
                tally = explorer.run(samples=2) if name in STEPS else explorer.run_focused()
        except Exception as error:  # noqa: BLE001 - whatever it is, it was noticed
            return f"{scenario}: {type(error).__name__}: {error}"
        if tally.failures:
            return tally.failures[0]
    return ""

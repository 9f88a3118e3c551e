"""What a commit has done so far, as the steps that would take it back.

Each step is remembered before its change is made, so that a change that fails half-way is taken
back as well; a step must therefore do no harm where its change was never made.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from mqstore.files import durable

Step: TypeAlias = Callable[[], None]


class Undo:
    """Steps back, the last change first."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._ended = False

    def remember(self, step: Step) -> None:
        """Run ``step`` if the commit fails later on."""
        if not self._ended:
            self._steps.append(step)

    def end(self) -> None:
        """Take nothing back any more, whatever is done from now on: the commit is decided."""
        self._ended = True
        self._steps.clear()

    def run(self) -> list[OSError]:
        """Take every change back, and return what could not be."""
        problems = []
        while self._steps:
            try:
                self._steps.pop()()
            except OSError as problem:
                problems.append(problem)
        return problems


def make_directories(root: str, path: str, undo: Undo) -> None:
    """Make ``root/path`` and what is missing above it, each durable in its parent."""
    here = root
    for part in path.split("/"):
        parent, here = here, f"{here}/{part}"
        if not durable.is_directory(here):
            undo.remember(lambda made=here: durable.remove_directory(made))  # type: ignore[misc]
            with suppress(FileExistsError):
                durable.make_directory(here)
            durable.fsync_directory(parent)

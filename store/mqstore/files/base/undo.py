"""The steps that take back what a commit has changed so far.

A step is remembered before its change is made, so that a change that fails half-way is taken
back as well; a step must therefore do no harm where its change was never made.
"""

from collections.abc import Callable
from typing import TypeAlias

Step: TypeAlias = Callable[[], None]


class Undo:
    """Steps that take changes back; the last change is taken back first."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._ended = False

    @classmethod
    def ended(cls) -> "Undo":
        """Return one that remembers no step: for changes that are never taken back."""
        undo = cls()
        undo.end()
        return undo

    @property
    def is_ended(self) -> bool:
        """Whether nothing is remembered any more."""
        return self._ended

    def remember(self, step: Step) -> None:
        """Run ``step`` if the commit fails later on."""
        if not self._ended:
            self._steps.append(step)

    def end(self) -> None:
        """Forget all steps, and remember none from now on: the commit is decided."""
        self._ended = True
        self._steps.clear()

    def run(self) -> list[OSError]:
        """Take every change back; return the errors of the steps that failed."""
        problems = []
        while self._steps:
            try:
                self._steps.pop()()
            except OSError as problem:
                problems.append(problem)
        return problems

"""A progress bar on standard error, if that is a terminal; it is removed when the work is done."""

import sys
import time
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_PATIENCE_S: Final = 0.5  # Shorter work needs no bar.
_EVERY_S: Final = 0.1


class Bar:
    """A context manager; call it with (done, total), as often as you like."""

    def __init__(self, doing: str, console: Console | None = None) -> None:
        self._doing = doing
        self._console = console or Console(file=sys.stderr)
        self._next = time.monotonic() + _PATIENCE_S
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show how far it is; not more than ten times a second."""
        if not self._console.is_terminal or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._doing)
        self._progress.update(self._task, completed=min(done, total), total=max(total, 1))

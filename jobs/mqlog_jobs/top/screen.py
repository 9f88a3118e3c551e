"""The full screen of ``mqlog top``: frames that are redrawn in place, and keys."""

import io
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mqlog_jobs.top.frame import SORT_KEYS, Sorting, draw
from mqlog_jobs.top.meter import Measured, Meter

_LINES_ABOVE: Final = 3  # Lines above the rows: the summary, the heads of the columns, a rule,
_LINES_BELOW: Final = (
    4  # and below them: columns and rows that are not shown, a blank line, the keys.
)
_ESCAPE: Final = "\x1b"
_MOVES: Final = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_QUIT: Final = {"q", "Q", _ESCAPE}


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the rows is shown: their order, and the first one."""

    sorting: Sorting
    first: int = 0

    def after(self, key: str, rows: int) -> "Shown":
        """Return it after a key; there are ``rows`` rows."""
        if key in SORT_KEYS:
            by = SORT_KEYS[key]
            back = not self.sorting.back if by == self.sorting.by else False
            return Shown(Sorting(by, back=back))
        if key == "r":
            return replace(self, sorting=replace(self.sorting, back=not self.sorting.back))
        if key in _MOVES:
            return replace(self, first=min(max(self.first + _MOVES[key], 0), max(rows - 1, 0)))
        return self


def run(console: Console, meter: Meter, sorting: Sorting, interval_s: float, frames: int) -> None:
    """Show frames until a key ends it, or ``frames`` of them if that is not 0.

    Standard input must be a terminal; it is as it was when this ends.
    """
    view, number = Shown(sorting), 0
    with (
        _keys() as terminal,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        while not frames or number < frames:
            number += 1
            found = meter.measure()
            end = time.monotonic() + interval_s
            live.update(_frame(console, found, view, interval_s), refresh=True)
            for key in _pressed(terminal, end):
                if key in _QUIT:
                    return
                view = view.after(key, len(found.flows))
                live.update(_frame(console, found, view, interval_s), refresh=True)


def measured(meter: Meter, interval_s: float) -> Measured:
    """Look twice, an interval apart; return what the second look found."""
    meter.measure()
    time.sleep(interval_s)
    return meter.measure()


def _frame(console: Console, measured: Measured, view: Shown, interval_s: float) -> Text:
    drawn = io.StringIO()
    width, height = console.size
    on = Console(file=drawn, force_terminal=True, width=width, highlight=False)
    room = max(height - _LINES_ABOVE - _LINES_BELOW - len(measured.away), 1)
    draw(on, measured, view.sorting, view.first, room)
    lines = drawn.getvalue().split("\n")[: height - 2]
    return Text.from_ansi("\n".join(lines)).append("\n").append(_foot(view, interval_s))


def _foot(view: Shown, interval_s: float) -> Text:
    """Return the time and the keys; that of the order is bold."""
    foot = Text(f"{datetime.now(UTC):%H:%M:%S} UTC  every {interval_s:g} s ", style="dim")
    for key, name in SORT_KEYS.items():
        foot.append(f" [{key}]{name[1:]}", style="bold" if name == view.sorting.by else "")
    reverse = "bold" if view.sorting.back else ""
    return foot.append(" [r]everse", style=reverse).append(" [q]uit")


@contextmanager
def _keys() -> Iterator[int]:
    """Let the terminal give each key at once, and not show it."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int, end: float) -> Iterator[str]:
    """Yield keys until that time (time.monotonic)."""
    while (left := end - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            return
        text = os.read(terminal, 64).decode(errors="replace")
        if not text:  # The terminal is gone.
            yield "q"
            return
        if text.startswith(_ESCAPE):
            yield text  # An arrow is three characters, or more, that come together.
        else:
            yield from text

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
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mqlog_jobs.top.frame import draw, draw_queues
from mqlog_jobs.top.meter import Measured, Meter
from mqlog_jobs.top.view import ESCAPE, SORT_KEYS, Shown, Sorting

_LINES_ABOVE: Final = 3  # Lines above the rows: the summary, the heads of the columns, a rule,
_LINES_BELOW: Final = (
    4  # and below them: columns and rows that are not shown, a blank line, the keys.
)


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
            live.update(_frame(console, meter, found, view, interval_s), refresh=True)
            for key in _pressed(terminal, end):
                queues = 0 if view.opened is None else len(meter.queues(*view.opened))
                after = view.after(key, found.flows, queues)
                if after is None:
                    return
                view = after
                live.update(_frame(console, meter, found, view, interval_s), refresh=True)


def _frame(
    console: Console, meter: Meter, measured: Measured, view: Shown, interval_s: float
) -> Text:
    drawn = io.StringIO()
    width, height = console.size
    on = Console(file=drawn, force_terminal=True, width=width, highlight=False)
    room = max(height - _LINES_ABOVE - _LINES_BELOW - len(measured.away), 1)
    if view.opened is None:
        draw(on, measured, view, room)
    else:
        draw_queues(on, measured, view, meter.queues(*view.opened), max(room - 1, 1))
    lines = drawn.getvalue().split("\n")[: height - 2]
    return Text.from_ansi("\n".join(lines)).append("\n").append(_foot(view, interval_s, width))


def _foot(view: Shown, interval_s: float, width: int) -> Text:
    """Return the keys, that of the order bold, and the time where there is room for it."""
    if view.typing:
        return Text.assemble(
            ("/", "bold"), view.pattern, ("▏  Enter keeps it, Esc drops it", "dim")
        )
    foot = Text(style="dim")
    if view.opened is not None:
        foot.append("[Esc] back to all groups  [q]uit")
    else:
        for key, name in SORT_KEYS.items():
            foot.append(f"[{key}]{name[1:]} ", style="bold" if name == view.sorting.by else "")
        foot.append("[r]everse ", style="bold" if view.sorting.back else "")
        foot.append("[/]" + (view.pattern or "filter") + " ", style="bold" if view.pattern else "")
        foot.append("[Enter]queues [q]uit")
    clock = f"  {datetime.now(UTC):%H:%M:%S} UTC, every {interval_s:g} s"
    if foot.cell_len + len(clock) <= width:
        foot.append(clock)
    foot.truncate(width, overflow="ellipsis")
    return foot


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
        if text.startswith(ESCAPE):
            yield text  # An arrow is three characters, or more, that come together.
        else:
            yield from text

"""Draw the same thing again and again: in place on a terminal, one below the other in a pipe."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count

from rich.console import Console
from rich.live import Live
from rich.text import Text


def watch(
    console: Console | None,
    draw: Callable[[Console | None], None],
    *,
    interval_s: float,
    rounds: int,
) -> None:
    """Call ``draw`` every ``interval_s`` seconds, ``rounds`` times; for ever if that is 0.

    What ``draw`` prints on the console is what is shown; without a console it writes by itself,
    for a program. Its errors end the watch.
    """
    if console is None or not console.is_terminal:
        for number in _rounds(rounds, interval_s):
            if number and console:
                console.print()
            draw(console)
            sys.stdout.flush()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for _ in _rounds(rounds, interval_s):
            # Drawn aside, for what is printed on a live console is put above what it shows.
            drawn = io.StringIO()
            draw(Console(file=drawn, force_terminal=True, width=console.width, highlight=False))
            now = datetime.now(UTC).strftime("%H:%M:%S UTC")
            told = Text(f"\n{now}, every {interval_s:g} s; Ctrl-C ends", style="dim")
            live.update(Text.from_ansi(drawn.getvalue()) + told, refresh=True)


def _rounds(rounds: int, interval_s: float) -> Iterator[int]:
    for number in range(rounds) if rounds else count():
        if number:
            time.sleep(interval_s)
        yield number

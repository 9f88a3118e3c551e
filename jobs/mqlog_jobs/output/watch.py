"""A display that is repeated: redrawn in place on a terminal, appended in a pipe."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mqstore.errors import StoreError, is_of_absence, printable


def watch(
    console: Console | None,
    draw: Callable[[Console | None], object],
    *,
    interval_s: float,
    rounds: int,
) -> None:
    """Call ``draw`` every ``interval_s`` seconds, ``rounds`` times; for ever if that is 0.

    ``draw`` prints on the console that it is given; without one it writes to standard output, for
    a program. Its errors end the loop, but for a server of a cluster that is away: of that there is
    a line on standard error, and the next round may have it again.
    """
    if console is None or not console.is_terminal or console.is_dumb_terminal:
        for number in _rounds(rounds, interval_s):
            if number and console:
                console.print()
            with _awaiting(number):
                draw(console)
            sys.stdout.flush()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for number in _rounds(rounds, interval_s):
            # Text printed on a live console is put above the display, so it is drawn elsewhere.
            drawn = io.StringIO()
            with _awaiting(number):
                draw(Console(file=drawn, force_terminal=True, width=console.width, highlight=False))
            if not drawn.getvalue():
                continue
            now = datetime.now(UTC).strftime("%H:%M:%S UTC")
            footer = Text(f"\n{now}, every {interval_s:g} s; Ctrl-C ends", style="dim")
            live.update(Text.from_ansi(drawn.getvalue()) + footer, refresh=True)


@contextmanager
def _awaiting(number: int) -> Iterator[None]:
    """Let a round pass in which a server is away, unless it is the first one."""
    try:
        yield
    except StoreError as error:
        if not number or not is_of_absence(error):
            raise
        sys.stderr.write(f"mqlog: {printable(str(error))}\n")
        sys.stderr.flush()


def _rounds(rounds: int, interval_s: float) -> Iterator[int]:
    for number in range(rounds) if rounds else count():
        if number:
            time.sleep(interval_s)
        yield number

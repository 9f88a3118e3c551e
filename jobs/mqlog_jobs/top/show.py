"""The command ``top``: a full screen, one frame, or rows for a program."""

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import count

from rich.console import Console

from mqlog_jobs.output import render
from mqlog_jobs.places import Named
from mqlog_jobs.top import screen
from mqlog_jobs.top.frame import draw, row
from mqlog_jobs.top.meter import Meter
from mqlog_jobs.top.view import Shown, Sorting
from mqstore.backlog import BacklogRequest
from mqstore.backlog.request import LATE_AFTER_MS
from mqstore.read.message_query import check_known


@dataclass(frozen=True, slots=True)
class TopRequest:
    """What to show: ``groups`` as in BacklogRequest; ``frames`` is 0 for no end.

    ``topic``: of this topic only. ``late_after_ms`` as in BacklogRequest.
    """

    groups: str | None
    sorting: Sorting
    interval_s: float
    frames: int
    system: bool = False
    topic: str | None = None
    late_after_ms: int = LATE_AFTER_MS


def top(named: Named, request: TopRequest, *, as_json: bool) -> None:
    """Show flows until a key ends it; where no screen can be redrawn, print frames.

    In a pipe it is one frame, if --count does not say otherwise. Raises UnknownTopicError, and what
    looking raises.
    """
    console = render.terminal()
    has_keys = sys.stdin is not None and sys.stdin.isatty()
    redraws = console.is_terminal and not console.is_dumb_terminal
    full = redraws and has_keys and not as_json
    groups = BacklogRequest(
        groups=request.groups, system=request.system, late_after_ms=request.late_after_ms
    )
    with named.opened(request.topic, groups=groups.named, damaged=True) as stores:
        if request.topic is not None:
            check_known(stores, request.topic, consumed=True)
        with closing(Meter(stores, groups, request.topic, system=request.system)) as meter:
            _show(console, meter, request, full=full, as_json=as_json)


def _show(
    console: Console, meter: Meter, request: TopRequest, *, full: bool, as_json: bool
) -> None:
    if full:
        screen.run(console, meter, request.sorting, request.interval_s, request.frames)
        return
    in_pipe = as_json or not console.is_terminal
    meter.measure()
    for number in range(request.frames or 1) if request.frames or in_pipe else count():
        time.sleep(request.interval_s)
        measured = meter.measure()
        if as_json:
            render.json_lines(map(row, request.sorting.of(measured.flows)))
        else:
            if number:
                console.print()
            draw(console, measured, Shown(request.sorting))
        sys.stdout.flush()

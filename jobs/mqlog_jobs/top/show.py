"""The command ``top``: a full screen, one frame, or rows for a program."""

import sys
from contextlib import closing
from dataclasses import dataclass

from rich.console import Console

from mqlog_jobs.output import render
from mqlog_jobs.places import Named
from mqlog_jobs.top import screen
from mqlog_jobs.top.frame import draw, row
from mqlog_jobs.top.meter import Meter
from mqlog_jobs.top.view import Shown, Sorting
from mqstore.backlog import BacklogRequest
from mqstore.errors import InvalidOptionError
from mqstore.read.message_query import check_known


@dataclass(frozen=True, slots=True)
class TopRequest:
    """What to show: ``groups`` as in BacklogRequest; ``frames`` is 0 for no end.

    ``topic``: of this topic only.
    """

    groups: str | None
    sorting: Sorting
    interval_s: float
    frames: int
    system: bool = False
    topic: str | None = None


def top(named: Named, request: TopRequest, *, as_json: bool) -> None:
    """Show flows until a key ends it; a frame of two looks where there is no terminal.

    Raises InvalidOptionError for --count without a terminal, UnknownTopicError, and what looking
    raises.
    """
    console = render.terminal()
    full = console.is_terminal and sys.stdin is not None and sys.stdin.isatty() and not as_json
    if request.frames and not full:
        raise InvalidOptionError("--count", request.frames, "is for a terminal: a pipe gets one")
    groups = BacklogRequest(groups=request.groups)
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
    measured = screen.measured(meter, request.interval_s)
    if as_json:
        render.json_lines(map(row, request.sorting.of(measured.flows)))
    else:
        draw(console, measured, Shown(request.sorting))

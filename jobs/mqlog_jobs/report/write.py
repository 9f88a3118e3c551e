"""Writes the report of stores into a file, which is replaced when the new one is whole."""

import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqlog_jobs.output.amounts import several, size
from mqlog_jobs.output.progress import Bar
from mqlog_jobs.output.render import terminal
from mqlog_jobs.output.whole_file import check_file, is_standard_output, replace_file
from mqlog_jobs.places import Named
from mqlog_jobs.report.facts import Unread
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.report.lag_history import HistoryQuery
from mqlog_jobs.report.page import page
from mqlog_jobs.work.show_backlog import late_after_ms
from mqstore.errors import InvalidOptionError, shown
from mqstore.read.selection import OpenStores
from mqstore.request.places import LIVE, OBJECTS

_PAGE: Final = "report.html"
_LISTS: Final = "GET_ALL_TOPIC_CONFIG"
"""A page is about all topics and groups, which no proxy lists."""


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """What the page is about: see ReportRequest. ``samples`` is what ``mqlog record`` wrote."""

    group: str | None = None
    system: bool = False
    verify: bool | None = None
    samples: Path | None = None
    trace_topic: str | None = None
    late_after: str | None = None

    def request(self, named: Named) -> ReportRequest:
        """Read the samples, and return the request.

        Raises InvalidOptionError, and as ``HistoryQuery.read``.
        """
        history = None
        if self.samples is not None:
            query = HistoryQuery(str(self.samples.absolute()), self.group, self.system)
            history = query.read(named)
        return ReportRequest(
            self.group,
            self.system,
            self.verify,
            history,
            self.trace_topic,
            late_after_ms(self.late_after),
        )


def report_to_file(named: Named, given: ReportArguments, output: str | None) -> None:
    """Write the page of places to ``output`` (None: a new report.html), and print what it says.

    Raises InvalidOptionError, OSError with the file's name, and what reading the places raises.
    """
    target = _page_file(output, {option.name for option in (*LIVE.values(), *OBJECTS.values())})
    check_file(target)
    with named.opened(damaged=True, not_served=_LISTS) as stores:
        request = given.request(named)
        with Bar("Checking") as bar:
            written = write_report(stores, request, target, bar)
    waiting = (
        f"{several(written.waiting, 'message')} waiting for {several(written.groups, 'group')}"
    )
    line = f"{shown(target)}: {size(written.bytes)}; {waiting}"
    if written.errors:
        line += f"; verify found {several(written.errors, 'error')}"
    console = terminal(sys.stderr if is_standard_output(target) else None)
    console.print(line, markup=False, soft_wrap=True)


def _page_file(output: str | None, names: Collection[str]) -> str:
    """Return the file of a report; ``names`` are those of options of clusters.

    Raises InvalidOptionError for a file that nobody named and that is there already.
    """
    if output is None:
        if os.path.lexists(_PAGE):
            raise InvalidOptionError("-o", _PAGE, f"is there already; -o {_PAGE} replaces it")
        return _PAGE
    name, equals, _ = Path(output).name.partition("=")
    if equals and name in names:
        expected = "is the file of the page here: an option of a cluster is --option NAME=VALUE"
        raise InvalidOptionError("-o", f"{name}=…", expected)
    return output


@dataclass(frozen=True, slots=True)
class Written:
    """The size of a report, and what it says in short."""

    bytes: int
    brokers: int
    groups: int
    waiting: int
    errors: int


def write_report(
    stores: OpenStores,
    request: ReportRequest,
    target: str,
    progress: Callable[[int, int], None],
) -> Written:
    """Write the report; raises what gathering it raises, and OSError with the file's name."""
    facts = gather(stores, request, progress)
    text = "".join(page(facts))
    replace_file(target, text)
    behind = () if isinstance(facts.behind, Unread) else facts.behind
    groups = {one.group for one in behind}
    return Written(
        len(text.encode()),
        len(facts.places),
        len(groups),
        sum(one.lag for one in behind),
        facts.verified.errors,
    )

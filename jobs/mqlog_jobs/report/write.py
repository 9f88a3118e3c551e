"""Writes the report of stores into a file, which is replaced when the new one is whole."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mqlog_jobs.output.whole_file import replace_file
from mqlog_jobs.report.facts import Unread
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.report.page import page
from mqstore.read.selection import OpenStores


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
    target: Path,
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

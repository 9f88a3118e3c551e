"""Writes the report of stores into a file, which is replaced when the new one is whole."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqlog_jobs.report.facts import Unread
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.report.page import page
from mqlog_jobs.whole_file import replace_file
from mqstore.options.store_paths import expand
from mqstore.origins import open_all
from mqstore.read.selection import OpenStores, Selection
from mqstore.tables.choice import open_root


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


@contextmanager
def opened(paths: Iterable[str], commit_log: Iterable[Path] | None = None) -> Iterator[OpenStores]:
    """Open directories of stores and globs of them, damaged or not, and close them afterwards.

    Raises InvalidOptionError and what opening a store raises.
    """
    folders = tuple(map(str, commit_log or ()))
    roots = expand(paths)
    # A name that cannot be read in a damaged topics.json is that of the folder.
    names = tuple(open_root(root, folders).broker_name for root in roots)
    selection = Selection(roots=roots, commit_log=folders, broker_names=names)
    with closing(open_all(selection, (), strict=False)) as stores:
        yield stores

"""The result of ``mqlog recover``, as a few lines of text or as one row."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.text import Text

from mqlog_jobs.output.amounts import count, several, size
from mqlog_jobs.output.render import Row, camel_case
from mqstore.check.condition import look
from mqstore.errors import StoreError, shown
from mqstore.write.recover import Recovered

_ARGUMENTS: Final = {
    "recoverUnclean": "--recover-unclean",
    "allowNoLease": "--allow-no-lease",
    "lockTimeout": "--lock-timeout",
    "stagingDir": "--staging-dir",
}
_OPTION: Final = re.compile(rf"\b({'|'.join(_ARGUMENTS)})\b(?:=true\b)?")


@contextmanager
def own_flags() -> Iterator[None]:
    """Let an error that advises an option of writes advise the command's own flag instead."""
    try:
        yield
    except StoreError as error:
        error.args = tuple(
            _OPTION.sub(lambda found: _ARGUMENTS[found[1]], value)
            if isinstance(value, str)
            else value
            for value in error.args
        )
        raise


def show(console: Console, store: str, recovered: Recovered) -> None:
    """Print what was recovered."""
    if recovered.job_id is None:
        console.print(f"{shown(store)}: no commit was left to be finished", markup=False)
    else:
        finished = f"{shown(_name(recovered))} was {recovered.state}, and is finished"
        console.print(Text(finished, style="green"), soft_wrap=True)
    for line in _lines(store, recovered):
        console.print(Text(line, style="dim"), soft_wrap=True)


def row(recovered: Recovered) -> Row:
    """Return a row: the key as in ``table=commits``, and the counts of a rebuild, if any."""
    key, rebuilt = recovered.key, recovered.rebuilt
    return {
        "appId": key.app_id if key else None,
        "version": key.version if key else None,
        "queryId": key.query_id if key else None,
        "batchId": key.batch_id if key else None,
        "jobId": recovered.job_id,
        "state": recovered.state,
        "wasUnclean": recovered.was_unclean,
        "tail": recovered.tail,
        "clearedBytes": recovered.cleared_bytes,
        "rebuilt": {camel_case(name): value for name, value in asdict(rebuilt).items()}
        if rebuilt
        else None,
    }


def _name(recovered: Recovered) -> str:
    if recovered.key:
        return f"commit {recovered.key}"
    return f"a commit without a key, job {recovered.job_id}"


def _lines(store: str, recovered: Recovered) -> list[str]:
    lines = []
    if look(store).abort is not None:
        lines.append("the broker's file abort stays: the broker recovers by itself at its start")
    elif recovered.was_unclean and recovered.job_id is None:
        lines.append("the file abort is removed")
    if recovered.cleared_bytes:
        cleared = f"cleared {size(recovered.cleared_bytes)} behind the end of the CommitLog"
        lines.append(f"{cleared}; a copy is in {shown(store)}/.mqlog/quarantine")
    if recovered.rebuilt:
        made = recovered.rebuilt
        lines.append(
            f"{several(made.records, 'record')} read: {several(made.units_written, 'unit')} "
            f"written, {count(made.units_zeroed)} zeroed, {several(made.keys_put, 'key')} put"
        )
    return [*lines, f"the next record goes to byte {count(recovered.tail)}"]

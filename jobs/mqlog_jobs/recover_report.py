"""What ``mqlog recover`` found and did, as a few lines for people or as one object."""

from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from mqlog_jobs.render import Row, count, size
from mqstore.check.condition import look
from mqstore.errors import shown
from mqstore.write.recover import Recovered


def show(console: Console, store: str, found: Recovered) -> None:
    """Print it."""
    if found.job_id is None:
        console.print(f"{shown(store)}: no commit was left to be finished", markup=False)
    else:
        told = f"{shown(_name(found))} was {found.state}, and is finished"
        console.print(Text(told, style="green"), soft_wrap=True)
    for line in _lines(store, found):
        console.print(Text(line, style="dim"), soft_wrap=True)


def row(found: Recovered) -> Row:
    """Return it as a row: the key as in ``table=commits``, and what was rebuilt, if anything."""
    key, rebuilt = found.key, found.rebuilt
    return {
        "appId": key.app_id if key else None,
        "version": key.version if key else None,
        "queryId": key.query_id if key else None,
        "batchId": key.batch_id if key else None,
        "jobId": found.job_id,
        "state": found.state,
        "wasUnclean": found.was_unclean,
        "tail": found.tail,
        "clearedBytes": found.cleared_bytes,
        "rebuilt": {_camel(name): value for name, value in asdict(rebuilt).items()}
        if rebuilt
        else None,
    }


def _name(found: Recovered) -> str:
    return f"commit {found.key}" if found.key else f"a commit without a key, job {found.job_id}"


def _lines(store: str, found: Recovered) -> list[str]:
    lines = []
    if look(store).abort is not None:
        lines.append("the broker's file abort stays: the broker recovers by itself when it starts")
    elif found.was_unclean and found.job_id is None:
        lines.append("abort was there, and is gone")
    if found.cleared_bytes:
        cleared = f"cleared {size(found.cleared_bytes)} behind the end of the CommitLog"
        lines.append(f"{cleared}; a copy is in {shown(store)}/.mqlog/quarantine")
    if found.rebuilt:
        made = found.rebuilt
        lines.append(
            f"{count(made.records)} records looked at: {count(made.units_written)} units written, "
            f"{count(made.units_zeroed)} zeroed, {count(made.keys_put)} keys put"
        )
    return [*lines, f"the next record goes to byte {count(found.tail)}"]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)

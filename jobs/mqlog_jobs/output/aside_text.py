"""What waits for a group beside its backlog, in words."""

from mqlog_jobs.output.amounts import several
from mqstore.tables.asides import Aside


def parts_of(aside: Aside) -> list[tuple[str, str]]:
    """Return what waits, each with the command that shows it; nothing for what does not."""
    failed = []
    if aside.retries:
        failed.append(f"{aside.retries:,} more {_wait(aside.retries)} for a retry")
    if aside.dead_letters:
        failed.append(several(aside.dead_letters, "dead letter"))
    found = [(", ".join(failed), "mqlog retries")] if failed else []
    if aside.half_messages:
        halves = several(aside.half_messages, "half message")
        outcome = f"{_wait(aside.half_messages)} for the outcome of a transaction"
        found.append((f"{halves} to its topics {outcome}", "mqlog halfmessages"))
    return found


def aside_text(aside: Aside) -> str:
    """Return a line: ``119 more wait for a retry: mqlog retries``; empty if nothing waits."""
    return "; ".join(f"{told}: {command}" for told, command in parts_of(aside))


def _wait(number: int) -> str:
    return "waits" if number == 1 else "wait"

"""The words of evidence and commands; names from a store are untrusted and come out printable."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from mqstore.errors import shown
from mqstore.verdicts.facts import QueueFacts


def names_of(names: Sequence[str]) -> str:
    """Return names from a store, printable."""
    return ", ".join(map(shown, names))


def queue_names(queues: Sequence[QueueFacts]) -> str:
    """Return which queues these are, at most five by name."""
    named = ", ".join(f"{shown(q.broker_name)}/{q.queue_id}" for q in queues[:5])
    more = f" and {len(queues) - 5} more" if len(queues) > 5 else ""
    return f"{'queue' if len(queues) == 1 else 'queues'} {named}{more}"


def word(text: str) -> str:
    """Return a name from a store as one word of a shell."""
    return shlex.quote(shown(text))


def moment(ms: int) -> str:
    """Return a time (epoch ms) in UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds").replace("+00:00", "Z")


def span(ms: int) -> str:
    """Return a length of time in its largest unit that says enough."""
    seconds = ms // 1000
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"

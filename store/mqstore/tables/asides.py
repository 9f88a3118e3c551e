"""What waits for consumer groups beside their backlog: retries, dead letters, half messages.

A message that a consumer failed on comes to the group's retry topic, and is in the group's lag only
once the group has committed an offset there; a dead letter is in no lag. A half message is in no
queue of its topic before its transaction is committed.

Reference: AbstractSendMessageProcessor#consumerSendMsgBack, TransactionalMessageServiceImpl.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mqstore.backlog import BacklogItem
from mqstore.errors import StoreError
from mqstore.format.names import DLQ_PREFIX
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.tables import half_messages
from mqstore.tables.absence import raise_absence
from mqstore.tables.retry_owners import is_source, owner_of

MOST_HALF_MESSAGES: Final = 5_000
"""More than these, with the messages about their outcomes, are not read to count them."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Aside:
    """Messages that wait for a group and are not in its lag.

    ``retries`` lie in its retry topics, in which it has committed no offset; ``dead_letters`` are
    all that its dead-letter topic holds; ``half_messages`` go to topics that it consumes, and their
    transactions have no outcome yet: None where they were not counted.
    """

    retries: int = 0
    dead_letters: int = 0
    half_messages: int | None = None

    def __add__(self, other: "Aside") -> "Aside":
        """Return the sums; half messages are not added, because topics have several groups."""
        return Aside(self.retries + other.retries, self.dead_letters + other.dead_letters)


def asides(
    snapshots: Sequence[Snapshot],
    items: Sequence[BacklogItem],
    halves: Mapping[str, int] | None = None,
) -> dict[str, Aside]:
    """Return what waits beside the backlog, of each group that ``items`` are of.

    ``snapshots`` are of all topics, and ``halves`` the half messages of each topic: see
    ``pending_halves``.
    """
    topics: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        topics[item.group].add(item.topic)
    waiting, dead = Counter[str](), Counter[str]()
    known = set(topics)
    for snapshot in snapshots:
        held = {queue.topic for queue in snapshot.queues}
        for queue in snapshot.queues:
            if not is_source(queue.topic):
                continue
            group, _ = owner_of(queue.topic, known, held)
            if queue.topic.startswith(DLQ_PREFIX):
                dead[group] += queue.messages
            elif queue.topic not in topics[group]:
                waiting[group] += queue.messages
    return {
        group: Aside(
            waiting[group],
            dead[group],
            None if halves is None else sum(halves.get(topic, 0) for topic in topics[group]),
        )
        for group in sorted(known)
    }


def pending_halves(
    sources: Sequence[BoundsSource], snapshots: Sequence[Snapshot]
) -> dict[str, int] | None:
    """Return how many half messages of each topic have no outcome yet.

    None if there are more than MOST_HALF_MESSAGES to look at, or if they may not be read.
    """
    found = Counter[str]()
    try:
        for source, snapshot in zip(sources, snapshots, strict=True):
            for part in half_messages.plan(source, snapshot, None, "fail"):
                pieces = (*part.halves, *part.ops, *part.stored, *part.ended)
                if sum(piece.end - piece.start for piece in pieces) > MOST_HALF_MESSAGES:
                    return None
                for rows in replace(part, given_up=()).batches(("realTopic",)):
                    found.update(topic for topic in rows["realTopic"].to_pylist() if topic)
    except (StoreError, OSError) as error:
        raise_absence(error)
        _LOG.info("half messages were not counted: %s", error)
        return None
    return dict(found)

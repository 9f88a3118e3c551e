"""Messages of a topic as a user names them: by queue and offset, time, tags, SQL92 and keys."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mqstore.errors import InvalidOptionError, UnknownTopicError, shown
from mqstore.options import grammar
from mqstore.read.known_names import instead
from mqstore.read.offsets import At, AtTimestamp, Earliest, Last, Latest, Position
from mqstore.read.queues import QueueBounds
from mqstore.read.selection import OpenStores
from mqstore.read.source import Snapshot

_PLACE: Final = re.compile(r"([^/]+)(?:/(\d{1,9})(?:@(-?\d{1,18}))?)?")


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Messages of a topic, as the user typed it. Raises InvalidOptionError for a contradiction.

    place: ``TOPIC``, ``TOPIC/QUEUE`` or ``TOPIC/QUEUE@OFFSET``; an offset below zero counts from
    the queue's end. tags: a tag expression. sql: an SQL92 expression, None for all. keys: any of
    them. since, until: [since, until) of storeTimestamp, in the grammar of
    mqstore.options.grammar. on_corrupt: fail, skip or rescue, as in ScanSettings.
    """

    place: str
    tags: str = "*"
    sql: str | None = None
    keys: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    on_corrupt: str = "fail"

    def __post_init__(self) -> None:
        if self.since is not None and self._parts()[2] is not None:
            raise InvalidOptionError("--since", self.since, "not together with @OFFSET")
        if "" in self.keys:
            raise InvalidOptionError("--key", "", "is empty: no message has it")

    @property
    def topic(self) -> str:
        """The topic named."""
        return self._parts()[0]

    @property
    def has_start(self) -> bool:
        """Tell whether it says where to start."""
        return self.since is not None or self._parts()[2] is not None

    @property
    def queue_id(self) -> int | None:
        """The queue named, or None for all of the topic."""
        return self._parts()[1]

    def texts(self) -> dict[str, str]:
        """Return the query as texts of the options of a read, by their names."""
        topic, queue_id, queue_offset = self._parts()
        found = {"tags": self.tags, "onCorrupt": self.on_corrupt}
        if queue_id is None:
            found["subscribe"] = json.dumps([topic])
        else:
            found["assign"] = json.dumps({topic: [queue_id]})
        if queue_offset is not None and queue_offset >= 0:
            found["startingOffsets"] = json.dumps({topic: {str(queue_id): queue_offset}})
        elif queue_offset is not None:
            found["startingOffsets"] = str(queue_offset)
        optional = {
            "sql": self.sql,
            "keys": json.dumps(self.keys) if self.keys else None,
            "startingTimestamp": self.since,
            "endingTimestamp": self.until,
        }
        return found | {name: text for name, text in optional.items() if text is not None}

    def ends(self, now_ms: int) -> tuple[Position, Position]:
        """Return where to start and to end in each queue."""
        start: Position = Earliest()
        queue_offset = self._parts()[2]
        if queue_offset is not None:
            start = At(queue_offset) if queue_offset >= 0 else Last(-queue_offset)
        elif self.since is not None:
            start = AtTimestamp(grammar.timestamp("--since", self.since, now_ms=now_ms))
        if self.until is None:
            return start, Latest()
        return start, AtTimestamp(grammar.timestamp("--until", self.until, now_ms=now_ms))

    def _parts(self) -> tuple[str, int | None, int | None]:
        found = _PLACE.fullmatch(self.place)
        if found is None:
            raise InvalidOptionError(
                "TOPIC", self.place, "name a TOPIC, a TOPIC/QUEUE, or a TOPIC/QUEUE@OFFSET"
            )
        topic, queue_id, queue_offset = found.groups()
        return (
            topic,
            None if queue_id is None else int(queue_id),
            None if queue_offset is None else int(queue_offset),
        )


def snapshots_of(
    stores: OpenStores,
    topic: str | None = None,
    *,
    held: bool = False,
    groups: Callable[[str], object] | None = None,
) -> tuple[Snapshot, ...]:
    """Return what the queues of each broker hold: of all topics, or of one that must be known.

    With ``held`` also queues whose messages cannot be read from here; ``groups`` are then those
    whose consumers will be asked for. Raises UnknownTopicError
    with the nearest names.
    """
    take = partial(stores.held_of, groups=groups) if held else stores.snapshots_of
    if topic is None:
        return take(lambda _: True)
    found = take(lambda name: name == topic)
    # A topic that the broker knows, and to which nothing was ever sent, has no queue.
    if not any(snapshot.queues for snapshot in found):
        check_known(stores, topic)
    return found


def check_known(stores: OpenStores, topic: str, *, consumed: bool = False) -> None:
    """Raise UnknownTopicError, with the nearest names, for a topic that no broker knows.

    With ``consumed`` a topic is known too if a group has committed an offset in it.
    """
    known = stores.known_topics([topic], consumed=consumed)
    if topic not in known:
        raise _unknown(topic, known)


def _unknown(topic: str, known: Iterable[str]) -> UnknownTopicError:
    advice = instead("topic", topic, frozenset(known))
    return UnknownTopicError(f"{shown(topic)}: no such topic; {advice}")


def chosen(stores: OpenStores, query: MessageQuery, start: Position) -> list[Snapshot]:
    """Return the snapshots with those queues of the query that hold the offset of its start.

    Raises UnknownTopicError for a topic or a queue that no broker has, InvalidOptionError for an
    offset that none holds.
    """
    snapshots = snapshots_of(stores, query.topic)
    named = [q for one in snapshots for q in one.queues if query.queue_id in (None, q.queue_id)]
    if not named and any(snapshot.queues for snapshot in snapshots):
        ids = ", ".join(map(str, sorted({q.queue_id for one in snapshots for q in one.queues})))
        raise UnknownTopicError(
            f"{shown(query.place)}: the topic has no queue {query.queue_id}; it has {ids}"
        )
    wanted = {id(queue) for queue in named if not isinstance(start, At) or _holds(queue, start)}
    if named and not wanted and isinstance(start, At):
        held = "; ".join(f"queue {q.topic}/{q.queue_id} holds [{q.low}, {q.high})" for q in named)
        raise InvalidOptionError("@OFFSET", start.queue_offset, held)
    return [
        replace(one, queues=tuple(queue for queue in one.queues if id(queue) in wanted))
        for one in snapshots
    ]


def _holds(queue: QueueBounds, start: At) -> bool:
    return queue.low <= start.queue_offset <= queue.high

"""The queues of a group, or of a topic that no group consumes: lags, and rates since it was opened.

Only of what is opened are numbers kept by queue: a cluster may have a million queues of groups.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.backlog import BacklogItem
from mqstore.backlog.standing import Standing
from mqstore.read.source import Snapshot

_MOST_NOTES: Final = 120

QueuePlace = tuple[str, str, int]
"""A broker, a topic, a queueId."""


@dataclass(frozen=True, slots=True)
class QueueFlow:
    """A queue, for a group if it is of one; rates are messages a second, None of a first look.

    [low, high) is held; ``lag``, ``consumed`` and ``status`` are None of a queue without a group,
    ``consumer_offset`` also where the group never committed an offset.
    """

    place: QueuePlace
    high: int
    consumer_offset: int | None
    lag: int | None
    stored: float | None
    consumed: float | None
    status: str | None


@dataclass(frozen=True, slots=True)
class _Counters:
    """What one look found of a queue: counters that only rise, and the rest."""

    high: int
    done: int | None
    consumer_offset: int | None = None
    lag: int | None = None
    status: str | None = None


class OpenedQueues:
    """The queues of one group, or of one topic with the group None, over some looks."""

    def __init__(self, group: str | None, topic: str, window_s: float) -> None:
        self.pair = group, topic
        self._window_s = window_s
        self._notes: deque[tuple[float, dict[QueuePlace, _Counters]]] = deque(maxlen=_MOST_NOTES)

    def note(
        self,
        at_s: float,
        items: Sequence[BacklogItem],
        statuses: Sequence[str],
        snapshots: Sequence[Snapshot],
    ) -> None:
        """Note a look at ``at_s``, with the statuses of the items; not one that was noted."""
        if self._notes and self._notes[-1][0] == at_s:
            return
        group, topic = self.pair
        if group is None:
            found = _of_topic(topic, snapshots)
        else:
            rows = zip(items, statuses, strict=True)
            of_group = [(item, status) for item, status in rows if item.group == group]
            found = _of_group(*zip(*of_group, strict=True)) if of_group else {}
        self._notes.append((at_s, found))
        while len(self._notes) > 2 and self._notes[0][0] < at_s - self._window_s:
            self._notes.popleft()

    def flows(self) -> list[QueueFlow]:
        """Return the queues by topic, broker and queueId, as they were at the last look."""
        now_s, found = self._notes[-1]
        since_s, before = self._notes[0]
        seconds = now_s - since_s
        flows = []
        for place, now in found.items():
            was = before.get(place) if seconds > 0 else None
            stored = None if was is None else (now.high - was.high) / seconds
            is_known = was is not None and was.done is not None and now.done is not None
            consumed = (now.done - was.done) / seconds if is_known else None  # type: ignore[operator,union-attr]
            flows.append(
                QueueFlow(
                    place, now.high, now.consumer_offset, now.lag, stored, consumed, now.status
                )
            )
        return sorted(flows, key=lambda flow: (flow.place[1], flow.place[0], flow.place[2]))


def _of_topic(topic: str, snapshots: Sequence[Snapshot]) -> dict[QueuePlace, _Counters]:
    return {
        (snapshot.broker_name, topic, queue.queue_id): _Counters(queue.high, None)
        for snapshot in snapshots
        for queue in snapshot.queues
        if queue.topic == topic
    }


def _of_group(items: Sequence[BacklogItem], statuses: Sequence[str]) -> dict[QueuePlace, _Counters]:
    standing = Standing.of(items)
    done = standing.consumed.clip(max=standing.high).tolist()
    columns = zip(items, done, standing.lag.tolist(), statuses, strict=True)
    return {
        (item.broker_name, item.topic, item.queue_id): _Counters(
            item.high, queue_offset, item.consumer_offset, lag, status
        )
        for item, queue_offset, lag, status in columns
    }

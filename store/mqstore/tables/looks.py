"""Earlier looks at offsets, ends of queues and CommitLogs: what rates are made of.

A look is taken now, a while before the one that a table reads (``lookAgain``), or was recorded
(``samples``).
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.errors import StoreError
from mqstore.read.capabilities import DeletesFiles
from mqstore.read.retention import LogState
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.tables.absence import raise_absence
from mqstore.tables.columns import US
from mqstore.tables.samples import read_samples
from mqstore.tables.table import TableRequest
from mqstore.verdicts.rates import COMMIT_MS, LEAST_SPAN_MS, Drift, drift

_LOG: Final = logging.getLogger(__name__)
MOST_PAST_LOOKS: Final = 20
"""Looks of which rates are made: the newest ones, of a day at most."""
LOOKED_BACK_MS: Final = 86_400_000
QueueOfBroker: TypeAlias = tuple[str, str, int]
"""A broker's name, a topic and a queueId."""


@dataclass(frozen=True, slots=True)
class LogLook:
    """How far a CommitLog and its disk were filled, in bytes; None: not known."""

    end: int | None
    disk_used: int | None


@dataclass(frozen=True, slots=True)
class PastLook:
    """What was found at one moment (epoch ms): ends of queues, offsets of groups, CommitLogs."""

    at_ms: int
    ends: Mapping[QueueOfBroker, int]
    committed: Mapping[tuple[str, QueueOfBroker], int]
    logs: Mapping[str, LogLook] = field(default_factory=dict)


def log_states(pairs: Sequence[tuple[BoundsSource, Snapshot]]) -> dict[str, LogState]:
    """Return the CommitLog of each broker that tells of it."""
    found = {}
    for source, held in pairs:
        try:
            state = source.log_state() if isinstance(source, DeletesFiles) else None
        except (StoreError, OSError) as error:
            raise_absence(error)
            _LOG.info("the CommitLog of %s is not known: %s", held.broker_name, error)
            continue
        if state is not None:
            found[held.broker_name] = state
    return found


def log_looks(states: Mapping[str, LogState]) -> dict[str, LogLook]:
    """Return how far CommitLogs and their disks are filled; an end that is not exact is None."""
    return {
        name: LogLook(
            None if state.is_here else state.high, None if state.disk is None else state.disk.used
        )
        for name, state in states.items()
    }


def earlier_looks(request: TableRequest) -> list[PastLook]:
    """Return the recorded looks, then one of now; the latter only to wait for ``lookAgain``.

    Ascending by time; without both options there is none. Raises InvalidOptionError for samples
    that cannot be read.
    """
    found: list[PastLook] = []
    now_ms = max((r.now_ms() for r in request.stores.selection.roots), default=0)
    if not now_ms or len(request.stores.sources) > len(request.stores.selection.roots):
        now_ms = time.time_ns() // 1_000_000  # Clusters are among them.
    if request.samples is not None:
        chosen = request.group_choice(request.known_groups)
        window = now_ms - LOOKED_BACK_MS, now_ms
        found += map(_of_sample, read_samples(request.samples, window, MOST_PAST_LOOKS, chosen))
    if request.look_again_ms is not None:
        found.append(_taken(request))
        Event().wait(request.look_again_ms / 1000)
    return sorted(found, key=lambda one: one.at_ms)


def _of_sample(rows: pa.Table) -> PastLook:
    names = ("brokerName", "topic", "queueId", "group", "brokerOffset", "consumerOffset")
    ends: dict[QueueOfBroker, int] = {}
    committed: dict[tuple[str, QueueOfBroker], int] = {}
    columns = (rows[name].to_pylist() for name in names)
    for broker, topic, queue_id, group, end, done in zip(*columns, strict=True):
        queue = sys.intern(broker), sys.intern(topic), queue_id
        ends[queue] = end
        if done is not None:
            committed[sys.intern(group), queue] = done
    brokers = (rows[name].to_pylist() for name in ("brokerName", "logEnd", "diskUsed"))
    logs = {broker: LogLook(end, used) for broker, end, used in zip(*brokers, strict=True)}
    at_ms = int(pc.cast(rows["asOf"], pa.int64())[0].as_py()) // US
    return PastLook(at_ms, ends, committed, logs)


def _taken(request: TableRequest) -> PastLook:
    snapshots = request.stores.held_of(lambda _: True)
    pairs = list(zip(request.stores.sources, snapshots, strict=True))
    ends = {
        (held.broker_name, queue.topic, queue.queue_id): queue.high
        for _, held in pairs
        for queue in held.queues
    }
    committed = {
        (group, (held.broker_name, topic, queue_id)): queue_offset
        for source, held in pairs
        for (topic, group), queues in source.config.consumer_offsets().items()
        for queue_id, queue_offset in queues.items()
    }
    at_ms = max((held.taken_ms for held in snapshots), default=time.time_ns() // 1_000_000)
    return PastLook(at_ms, ends, committed, log_looks(log_states(pairs)))


@dataclass(frozen=True, slots=True)
class QueueSeries:
    """A queue of a group at several times: ends and committed offsets, ascending. Of n looks."""

    times_ms: tuple[int, ...]
    ends: tuple[int, ...]
    committed: tuple[int, ...]

    @property
    def stored(self) -> Drift | None:
        """How the queue grows."""
        return drift(self.times_ms, self.ends)

    @property
    def consumed(self) -> Drift | None:
        """How the group's offset moves."""
        return drift(self.times_ms, self.committed, None, self._unseen)

    @property
    def drained(self) -> Drift | None:
        """How the lag shrinks: what was consumed less what was stored."""
        if not self.times_ms:
            return None
        falls = [done - end for done, end in zip(self.committed, self.ends, strict=True)]
        events = (self.ends[-1] - self.ends[0]) + (self.committed[-1] - self.committed[0])
        return drift(self.times_ms, falls, events, self._unseen)

    @property
    def _unseen(self) -> float:
        """How many messages are consumed while an offset is committed and written."""
        over_ms = self.times_ms[-1] - self.times_ms[0] if self.times_ms else 0
        consumed = self.committed[-1] - self.committed[0] if over_ms > 0 else 0
        return 2 * COMMIT_MS * consumed / over_ms if over_ms > 0 else 0.0


def series(
    looks: Sequence[PastLook], group: str, queue: QueueOfBroker, now: tuple[int, int, int]
) -> QueueSeries:
    """Return a queue of a group at the looks and ``now``: time (ms), end, committed offset.

    It begins behind the last time that an offset went back: nothing was consumed then.
    """
    points = [
        (look.at_ms, look.ends[queue], look.committed[group, queue])
        for look in looks
        if queue in look.ends and (group, queue) in look.committed and look.at_ms < now[0]
    ]
    points.append(now)
    first = 0
    for number in range(1, len(points)):
        before, after = points[number - 1], points[number]
        if after[1] < before[1] or after[2] < before[2]:
            first = number
    kept = points[first:]
    times, ends, committed = zip(*kept, strict=True)
    return QueueSeries(times, ends, committed)


def log_drifts(
    looks: Sequence[PastLook], broker: str, state: LogState, now_ms: int
) -> tuple[Drift | None, Drift | None]:
    """Return how a CommitLog grows, and its disk, in bytes; None where it is not known.

    Looks that span less than LEAST_SPAN_MS, or full files that do, do not tell it.

    Of a store, whose last full files say when they were filled, the CommitLog's rate is theirs.
    """
    past = [(look.at_ms, look.logs[broker]) for look in looks if broker in look.logs]
    now = log_looks({broker: state})[broker]
    points = [(at, log) for at, log in past if at < now_ms] + [(now_ms, now)]
    ends = [(at, log.end) for at, log in points if log.end is not None]
    grows = _rising(ends) if len(ends) > 1 else None
    if state.filled:
        grows = _rising([(at, end) for end, at in state.filled])
    used = [(at, log.disk_used) for at, log in points if log.disk_used is not None]
    return grows, _rising(used) if len(used) > 1 else None


def _rising(points: Sequence[tuple[int, int]]) -> Drift | None:
    """Return the drift since the counter last fell: a disk on which files were deleted."""
    first = 0
    for number in range(1, len(points)):
        (since, before), (at, after) = points[number - 1], points[number]
        if after < before or at < since:
            first = number
    kept = points[first:]
    if kept[-1][0] - kept[0][0] < LEAST_SPAN_MS:
        return None
    return drift([at for at, _ in kept], [count for _, count in kept], 0.0)

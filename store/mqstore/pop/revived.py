"""Which open messages were delivered again since the broker wrote its offsets.

When the time of a message is over, the broker copies it to the retry topic of the group and the
topic, and is done with its checkpoint. Offsets say so, and are written every five seconds. Where
the log goes on behind them, the copy tells: it has the message's UNIQ_KEY, and was stored when the
time was over. Messages without UNIQ_KEY are taken for open.

Memory follows the open messages whose time is over, 40 bytes each, and not what retry topics hold;
each retry topic is read once. Keys are compared by a hash of 64 bits.

Reference: PopReviveService#reviveRetry.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.format import properties
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.names import RETRY_PREFIX
from mqstore.format.pop import retry_topics
from mqstore.pop.checkpoints import OpenOffsets, hash_of
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, Snapshot, slices_of

_RUN_OVER: Final = 64
_NEVER: Final = -1
_Ranges: TypeAlias = list[tuple[QueueBounds, int, int]]


@dataclass(slots=True)
class _Late:
    """n open messages of one group whose time is over, and have a UNIQ_KEY, int64[n] each.

    ``rows`` are those of ``OpenOffsets``, ``key`` the numbers of their keys: hashes, which ascend.
    """

    rows: Int64s
    key: Int64s
    hashes: Int64s

    def newest(self, batches: Iterable[pa.RecordBatch]) -> tuple[Int64s, Int64s]:
        """Return by key the time and the queue offset of the last copy; -1 where there is none."""
        times, places = np.full((2, len(self.hashes)), _NEVER)
        for batch in batches:
            has_key, hashed = _hashes(batch)
            at = np.searchsorted(self.hashes, hashed)
            is_ours = self.hashes[np.minimum(at, len(self.hashes) - 1)] == hashed
            chosen, at = has_key[is_ours], at[is_ours]
            np.maximum.at(times, at, _ms(batch)[chosen])
            np.maximum.at(places, at, batch["queueOffset"].to_numpy()[chosen])
        return times, places


def without_revived(
    source: BoundsSource, snapshot: Snapshot, opened: OpenOffsets, as_of_ms: int
) -> OpenOffsets:
    """Return the same without messages that have a copy in their retry topic.

    In the retry topic itself, a copy lies behind the message.
    """
    late = opened.visible_ms < as_of_ms
    if not late.any():
        return opened
    kept = np.ones(len(opened.queue), np.bool_)
    look = _RetryLook.of(source, snapshot, opened, late)
    for names, numbers in look.by_retry_topics().items():
        kept[look.copied(names, numbers)] = False
    columns = (opened.queue, opened.queue_offsets, opened.visible_ms, opened.pop_ms)
    queue, queue_offsets, visible, pops = (column[kept] for column in columns)
    return replace(
        opened, queue=queue, queue_offsets=queue_offsets, visible_ms=visible, pop_ms=pops
    )


@dataclass(frozen=True, slots=True)
class _RetryLook:
    """One look at the retry topics of a broker. The rows of queue i are edges[i]:edges[i + 1]."""

    source: BoundsSource
    snapshot: Snapshot
    opened: OpenOffsets
    late: Mask
    edges: Int64s
    queues: Mapping[str, Mapping[int, QueueBounds]]

    @classmethod
    def of(
        cls, source: BoundsSource, snapshot: Snapshot, opened: OpenOffsets, late: Mask
    ) -> "_RetryLook":
        edges = np.searchsorted(opened.queue, np.arange(len(opened.names) + 1))
        queues: defaultdict[str, dict[int, QueueBounds]] = defaultdict(dict)
        for queue in snapshot.queues:
            queues[queue.topic][queue.queue_id] = queue
        return cls(source, snapshot, opened, late, edges, dict(queues))

    def by_retry_topics(self) -> Mapping[tuple[str, ...], list[int]]:
        """Return which queues have late messages, by the retry topics that are there."""
        found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for number in np.unique(self.opened.queue[self.late]).tolist():
            topic, group, _ = self.opened.names[number]
            names = (topic,) if topic.startswith(RETRY_PREFIX) else retry_topics(group, topic)
            there = tuple(name for name in names if name in self.queues)
            if there:
                found[there].append(number)
        return found

    def copied(self, names: Sequence[str], numbers: Sequence[int]) -> Int64s:
        """Return the rows of late messages of those queues that have a copy in those topics."""
        of_queues = {number: self._late_rows(number) for number in numbers}
        since_ms = min(int(self.opened.visible_ms[rows].min()) for rows in of_queues.values())
        copies = [queue for name in names for queue in self.queues[name].values()]
        starts = self.source.first_at(copies, [since_ms] * len(copies))
        ranges = [(q, start, q.high) for q, start in zip(copies, starts, strict=True)]
        ranges = [one for one in ranges if one[1] < one[2]]
        late = self._by_key(of_queues) if ranges else None
        if late is None:
            return np.empty(0, np.int64)
        is_copied = np.zeros(len(late.rows), np.bool_)
        for name in names:
            own = [number for number in numbers if self.opened.names[number][0] == name]
            its = [one for one in ranges if one[0].topic == name]
            is_copied |= self._is_copied(late, own, *late.newest(_read(self.snapshot, its)))
        return late.rows[is_copied]

    def _late_rows(self, number: int) -> Int64s:
        start, end = self.edges[number : number + 2].tolist()
        rows: Int64s = start + np.flatnonzero(self.late[start:end])
        return rows

    def _by_key(self, of_queues: Mapping[int, Int64s]) -> _Late | None:
        """Return the messages at those rows by their keys; None if none of them has one."""
        kept, hashes = [], []
        for number, rows in of_queues.items():
            topic, _, queue_id = self.opened.names[number]
            queue = self.queues.get(topic, {}).get(queue_id)
            places = self.opened.queue_offsets[rows]
            for batch in () if queue is None else _read(self.snapshot, _runs(queue, places)):
                has_key, hashed = _hashes(batch)
                held = batch["queueOffset"].to_numpy()[has_key]
                is_late = np.isin(held, places)
                kept.append(rows[np.searchsorted(places, held[is_late])])
                hashes.append(hashed[is_late])
        if not sum(map(len, kept)):
            return None
        distinct, key = np.unique(np.concatenate(hashes), return_inverse=True)
        return _Late(np.concatenate(kept), key, distinct)

    def _is_copied(self, late: _Late, own: Sequence[int], times: Int64s, places: Int64s) -> Mask:
        """Tell which messages have a copy there; ``own`` are the queues that lie in that topic."""
        is_own = np.isin(self.opened.queue[late.rows], own)
        is_behind = places[late.key] > self.opened.queue_offsets[late.rows]
        is_later = times[late.key] >= self.opened.visible_ms[late.rows]
        is_copied: Mask = is_later & (~is_own | is_behind) & (places[late.key] != _NEVER)
        return is_copied


def _runs(queue: QueueBounds, places: Int64s) -> _Ranges:
    """Return ranges that hold those of the ascending places that the queue holds."""
    held = places[(places >= queue.low) & (places < queue.high)]
    if not len(held):
        return []
    first = np.flatnonzero(np.diff(held, prepend=held[0] - _RUN_OVER - 1) > _RUN_OVER)
    last = np.append(first[1:], len(held)) - 1
    return [(queue, int(held[a]), int(held[b]) + 1) for a, b in zip(first, last, strict=True)]


def _read(snapshot: Snapshot, ranges: _Ranges) -> Iterator[pa.RecordBatch]:
    settings = ScanSettings(
        columns=("queueOffset", "storeTimestamp", "properties"),
        on_corrupt="skip",
        fail_on_data_loss=False,
    )
    yield from scan(slices_of(snapshot, ranges), settings)


def _hashes(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Return the rows that have a UNIQ_KEY, and a hash of each."""
    found = pc.map_lookup(batch["properties"], pa.scalar(properties.UNIQ_KEY), "last")
    rows: Int64s = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    return rows, np.array([hash_of(key) for key in found.drop_null().to_pylist()], np.int64)


def _ms(batch: pa.RecordBatch) -> Int64s:
    times: Int64s = batch["storeTimestamp"].cast(pa.int64()).to_numpy() // 1000
    return times

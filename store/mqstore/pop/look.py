"""Reads the state of a broker's POP groups from a place: a store, its log alone, a cluster.

Checkpoints wait in the timer topic until their time is over, then come to a revive topic, which
the broker works off. So those are read that the revive topic has behind the broker's offset, and
those of the timer topic that the broker had not delivered at the last look: invisible times are
three days at most, so nothing older is read.

Offsets are written every five seconds. Where the log goes on behind them, a message whose time is
over may have been revived since: ``revived`` finds its copy in the retry topic.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.files.config.pop_files import PopFacts
from mqstore.format import properties
from mqstore.format.arrays import Int64s, TopicGroup
from mqstore.format.names import RETRY_PREFIX, TIMER_TOPIC
from mqstore.format.pop import (
    CHECKPOINT_TAG,
    MOST_TIMER_MS,
    POP_TAGS,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    KvEntry,
    KvPops,
    OrderInfo,
    acks_of,
    checkpoint_of,
    parse_values,
)
from mqstore.pop.checkpoints import CheckpointLog, OpenOffsets
from mqstore.pop.gone import (
    ABSENT,
    NO_LOG_PLACE,
    QueueStarts,
    batches_of_queues,
    queue_starts,
)
from mqstore.pop.revived import without_revived
from mqstore.pop.state import GroupOffsets, GroupQueue, PopSources, PopState
from mqstore.read.capabilities import unreadable
from mqstore.read.heads import NO_TIMESTAMP
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, Snapshot, slices_of

_LOG = logging.getLogger(__name__)
SLACK_MS: Final = 300_000
"""So much older than the newest that was delivered, checkpoints are still looked at."""
_POP_EXPRESSION: Final = " || ".join(POP_TAGS)
_POP_COLUMNS: Final = ("tags", "physicalOffset", "properties", "body")
_COMMIT_PAUSES: Final = (0.0, 0.1, 0.3)
_BUFFERED_MS: Final = 15_000
_GroupTest: TypeAlias = Callable[[str], object]
_Kept = TypeVar("_Kept")


@dataclass(slots=True)
class _PopLook:
    """One look at one broker; ``groups`` chooses the groups whose messages are kept.

    ``is_hidden``: some of what POP is told by cannot be read.
    """

    source: BoundsSource
    snapshot: Snapshot
    groups: _GroupTest
    log: CheckpointLog
    is_hidden: bool = False

    def read(self, committed: GroupOffsets) -> None:
        """Collect checkpoints and acknowledgements."""
        timers = self._queues(lambda topic: topic == TIMER_TOPIC)
        revived = self._queues(lambda topic: topic.startswith(REVIVE_PREFIX))
        if revived and not any(queue.topic == TIMER_TOPIC for queue in self.snapshot.queues):
            self.is_hidden = True
            _warn_of_hidden(self.snapshot.broker_name)
        newest = max(self._last_times([*timers, *revived]), default=None)
        if newest is None:
            return
        delivered = self.source.timers_delivered_ms()
        oldest = min(delivered or newest, newest) - SLACK_MS - MOST_TIMER_MS
        since = oldest + MOST_TIMER_MS if delivered else oldest
        # What the broker delivers meanwhile is found twice, not missed.
        self._read_timers(timers, oldest, since)
        self._read_revived(revived, since, committed)

    def _queues(self, topics: Callable[[str], bool]) -> list[QueueBounds]:
        """Return the queues of those topics that this user may read; others with a warning."""
        found = [q for q in self.snapshot.queues if topics(q.topic) and q.low < q.high]
        refused = unreadable(self.source, found)
        self.is_hidden |= bool(refused)
        return [queue for queue in found if queue.topic not in refused]

    def _last_times(self, queues: Sequence[QueueBounds]) -> Iterator[int]:
        with closing(self.snapshot.origin.records()) as records:
            for queue in queues:
                units = records.at((queue.topic, queue.queue_id), [queue.high - 1])
                times = [] if units is None else records.store_timestamps(units).tolist()
                yield from (time for time in times if time != NO_TIMESTAMP)

    def _read_timers(self, queues: Sequence[QueueBounds], oldest_ms: int, since_ms: int) -> None:
        """Read what was stored since ``oldest_ms``; keep what is due since ``since_ms``."""
        starts = self.source.first_at(queues, [oldest_ms] * len(queues))
        ranges = [(q, start, q.high) for q, start in zip(queues, starts, strict=True)]
        for batch in self._scanned(ranges):
            real = pc.map_lookup(batch["properties"], pa.scalar(properties.REAL_TOPIC), "last")
            pops = batch.filter(pc.fill_null(pc.starts_with(real, REVIVE_PREFIX), False))
            self._note_names(pops)
            out = _numbers(pops, properties.TIMER_OUT_MS)
            self._note(pops.filter(pa.array(out >= since_ms)), is_pop=True)

    def _read_revived(
        self, queues: Sequence[QueueBounds], since_ms: int, committed: GroupOffsets
    ) -> None:
        starts = self.source.first_at(queues, [since_ms] * len(queues))
        for queue, start in zip(queues, starts, strict=True):
            done = committed.get((queue.topic, REVIVE_GROUP), {}).get(queue.queue_id, -1) + 1
            done = min(max(done, queue.low), queue.high)
            for batch in self._scanned([(queue, min(start, done), done)]):
                self._note_names(batch)
                self._note(batch, is_done=True)
            for batch in self._scanned([(queue, done, queue.high)]):
                self._note_names(batch)
                self._note(batch)

    def _scanned(
        self, ranges: Sequence[tuple[QueueBounds, int, int]], columns: Sequence[str] = _POP_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of POP; what is damaged, or expires meanwhile, is left out."""
        settings = ScanSettings(
            columns=tuple(columns), tags=_POP_EXPRESSION, on_corrupt="skip", fail_on_data_loss=False
        )
        yield from scan(slices_of(self.snapshot, ranges), settings)

    def _note_names(self, batch: pa.RecordBatch) -> None:
        """Note which group pops which topic, by UNIQ_KEY: topic@queue@start@group@…@ck."""
        keys = pc.map_lookup(batch["properties"], pa.scalar(properties.UNIQ_KEY), "last")
        is_checkpoint = pc.equal(batch["tags"], CHECKPOINT_TAG)
        parts = pc.split_pattern(pc.drop_null(pc.filter(keys, is_checkpoint)), "@")
        parts = parts.filter(pc.greater(pc.list_value_length(parts), 3))
        topics, groups = pc.list_element(parts, 0), pc.list_element(parts, 3)
        pairs = pc.unique(pc.binary_join_element_wise(topics, groups, "@"))
        for pair in pairs.to_pylist():
            topic, _, group = pair.partition("@")
            if self.groups(group):
                self.log.add_pair(topic, group)

    def _note(self, batch: pa.RecordBatch, *, is_done: bool = False, is_pop: bool = False) -> None:
        """Note checkpoints and acknowledgements; ``is_pop``: the pops themselves wrote them."""
        values = parse_values([body or b"" for body in batch["body"].to_pylist()])
        places = batch["physicalOffset"].to_pylist()
        for tag, value, place in zip(batch["tags"].to_pylist(), values, places, strict=True):
            if tag == CHECKPOINT_TAG:
                found = checkpoint_of(value)
                if found is not None and self.groups(found.key.group):
                    self.log.add_pair(found.key.topic, found.key.group)
                    if is_done:
                        self.log.add_done(found)
                    else:
                        self.log.add(found, place if is_pop else NO_LOG_PLACE)
            else:
                acks = acks_of(value)
                if acks is not None and self.groups(acks.key.group):
                    self.log.add_acks(acks)


@lru_cache(maxsize=1024)
def _warn_of_hidden(broker: str) -> None:
    """Warn once in a process and for a broker; one of 5.1 does not know the topic by its name."""
    _LOG.warning(
        "broker %s has no topic %s for clients: what POP groups popped is not counted before it is "
        "delivered again; its store tells",
        broker,
        TIMER_TOPIC,
    )


def offsets_and_bounds(source: BoundsSource, snapshot: Snapshot) -> tuple[GroupOffsets, Snapshot]:
    """Return what groups committed, and a snapshot that is not older where that matters.

    Where groups pop, a message that is popped, or revived, in between would be nowhere. And a group
    that consumes what was stored in between would be ahead of its queue's end.
    """
    committed = source.config.consumer_offsets()
    pops = any(_is_of_pops(queue.topic) and queue.high for queue in snapshot.queues)
    if not pops and not _is_ahead(committed, snapshot):
        return committed, snapshot
    return committed, source.held(lambda _: True, strict=False)


def _is_ahead(committed: GroupOffsets, snapshot: Snapshot) -> bool:
    ends = {(queue.topic, queue.queue_id): queue.high for queue in snapshot.queues}
    return any(
        queue_offset > ends.get((topic, queue_id), queue_offset)
        for (topic, _), queues in committed.items()
        for queue_id, queue_offset in queues.items()
    )


def snapshot_of_pops(source: BoundsSource, topics: Container[str]) -> Snapshot | None:
    """Return a snapshot of topics, of all retry topics and of what POP is told by.

    None of a broker where nobody can pop: of 4.x, or behind a proxy.
    """
    if not any(map(_is_of_pops, source.topics())):
        return None

    def is_wanted(topic: str) -> bool:
        return topic in topics or topic.startswith(RETRY_PREFIX) or _is_of_pops(topic)

    return source.snapshot(is_wanted, strict=False)


def _is_of_pops(topic: str) -> bool:
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def pop_state(
    source: BoundsSource,
    snapshot: Snapshot,
    groups: _GroupTest,
    facts: PopFacts,
    committed: GroupOffsets,
    option: str | None = None,
) -> PopState:
    """Return the state of the POP groups of one broker that pass ``groups``.

    ``snapshot`` is of all topics of ``source``, and not older than ``committed``, what its groups
    committed. ``option`` is the text that chose the groups, for
    the InvalidOptionError where more messages are open than memory is for. Also raises what a
    scan raises.
    """
    config = source.config
    chosen = [pair for pair in committed if groups(pair[1])]
    with_kv = facts.kv is None or facts.kv.is_used
    look = _PopLook(source, snapshot, groups, CheckpointLog(snapshot.broker_name, option))
    look.read(committed)
    kv = None if facts.kv is None else _chosen_entries(facts.kv, groups)
    order_info = _chosen(facts.order_info or {}, groups)
    starts = _starts(snapshot, look.log, kv, order_info)
    opened = look.log.open_offsets(starts)
    opened = without_revived(source, snapshot, opened, as_of_ms=snapshot.taken_ms)
    is_live = facts.order_info is None
    return PopState(
        PopSources(
            opened=opened,
            named=frozenset(look.log.pairs),
            committed=_chosen(committed, groups),
            pulled=config.pulled(chosen) if with_kv else {},
            order_info=_of_queues_now(starts, order_info),
            modes=frozenset(pair for pair in facts.modes if groups(pair[1])),
            kv=None if kv is None else _entries_of_queues_now(starts, kv),
            topics={queue.topic for queue in snapshot.queues} | set(source.topic_configs()),
            set_back=_set_back(source, snapshot, facts, opened, committed) if is_live else set(),
            pulling=_pulling(source, facts, committed, groups),
            is_live=is_live,
            is_buffered=facts.is_buffered,
            is_hidden=is_live and look.is_hidden,
        )
    )


def _pulling(
    source: BoundsSource, facts: PopFacts, committed: GroupOffsets, groups: _GroupTest
) -> set[TopicGroup]:
    """Return the pairs of a broker with the KV service whose members pull: they are connected."""
    if facts.kv is not None:
        return set()
    names = sorted({group for _, group in committed if groups(group)})
    online = source.config.online(names, lambda *_: None) or {}
    pairs = {
        (topic, name)
        for name, group in online.items()
        if group.is_pulling
        for topic in group.expressions
    }
    return pairs - facts.modes


def _set_back(
    source: BoundsSource,
    snapshot: Snapshot,
    facts: PopFacts,
    opened: OpenOffsets,
    committed: GroupOffsets,
) -> set[GroupQueue]:
    """Return the queues of a cluster whose group was set back: to before what it popped.

    A broker commits a pop some milliseconds after it wrote the checkpoint, or seconds after where
    it keeps pops in memory; and what was popped since ``committed`` was asked for is no setback.
    So it is asked again.
    """
    suspects = _behind(opened, committed)
    if facts.is_buffered:
        since_ms = snapshot.taken_ms - _BUFFERED_MS
        suspects = {name for name in suspects if opened.newest_ms(name) < since_ms}
    for pause in _COMMIT_PAUSES:
        if suspects:
            time.sleep(pause)
            suspects &= _behind(opened, source.config.offsets_now())
    return suspects


def _behind(opened: OpenOffsets, committed: GroupOffsets) -> set[GroupQueue]:
    return {
        (topic, group, queue_id)
        for (topic, group, queue_id), end in zip(opened.names, opened.ends.tolist(), strict=True)
        if committed.get((topic, group), {}).get(queue_id, 0) < end
    }


def _chosen(table: Mapping[TopicGroup, _Kept], groups: _GroupTest) -> dict[TopicGroup, _Kept]:
    return {pair: value for pair, value in table.items() if groups(pair[1])}


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Entries that pass, each time that they are looked at."""

    entries: Iterable[KvEntry]
    passes: Callable[[KvEntry], object]

    def __iter__(self) -> Iterator[KvEntry]:
        return filter(self.passes, self.entries)


def _chosen_entries(kv: KvPops, groups: _GroupTest) -> KvPops:
    entries = _Chosen(kv.entries, lambda entry: groups(entry.group))
    pairs = frozenset(pair for pair in kv.pairs if groups(pair[1]))
    return KvPops(entries, pairs, kv.is_used)


def _starts(
    snapshot: Snapshot,
    log: CheckpointLog,
    kv: KvPops | None,
    order_info: Mapping[TopicGroup, Mapping[int, OrderInfo]],
) -> QueueStarts:
    """Return the starts of all queues that anything was popped from."""
    queues = log.queues
    queues |= {(one.topic, one.queue_id) for one in (kv.entries if kv else ())}
    queues |= {(topic, queue_id) for (topic, _), its in order_info.items() for queue_id in its}
    return queue_starts(snapshot, queues)


def _entries_of_queues_now(starts: QueueStarts, kv: KvPops) -> KvPops:
    def is_of_now(one: KvEntry) -> bool:
        start = starts.get((one.topic, one.queue_id), ABSENT)
        return start.has_popped(one.queue_offset, one.pop_ms)

    return KvPops(_Chosen(kv.entries, is_of_now), kv.pairs, kv.is_used)


def _of_queues_now(
    starts: QueueStarts, order_info: Mapping[TopicGroup, Mapping[int, OrderInfo]]
) -> dict[TopicGroup, dict[int, OrderInfo]]:
    return {pair: batches_of_queues(starts, pair[0], its) for pair, its in order_info.items()}


def _numbers(batch: pa.RecordBatch, name: str) -> Int64s:
    """Return a decimal property of each row; the largest number where it is none."""
    texts = pc.map_lookup(batch["properties"], pa.scalar(name), "last")
    is_number = pc.fill_null(pc.match_substring_regex(texts, r"^\d{1,18}$"), False)
    values = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    numbers: Int64s = values.fill_null(np.iinfo(np.int64).max).to_numpy()
    return numbers

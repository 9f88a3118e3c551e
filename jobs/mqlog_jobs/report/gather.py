"""Reads stores into the facts of a report, in time and memory that are bounded.

What each part costs, beside listing the store:

- queues and topics: the edges of each queue, and the sizes in at most a million ConsumeQueue units
  of a queue, evenly spread where it has more;
- rates: see ``rates``; tags: see ``tag_counts``; backlog: see ``behind``; traces: see
  ``latencies``;
- files: their names, sizes and ends;
- verify: stores with a small CommitLog are checked, others with --verify.

Of a running cluster each look is a request and each tag a message pulled, so there are fewer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.report.behind import Waiting, waiting
from mqlog_jobs.report.facts import (
    Behind,
    BrokerHeld,
    Facts,
    Found,
    LagHistory,
    Tags,
    TopicHeld,
    Unread,
)
from mqlog_jobs.report.latencies import TRACE_BYTES, Bounds, Traced, latencies
from mqlog_jobs.report.on_disk import files_of, verified
from mqlog_jobs.report.rates import BISECTED_QUEUES, MOST_LOOKS, TimedQueue, rates
from mqlog_jobs.report.tag_counts import MOST_MESSAGES, tags_of
from mqstore import __version__
from mqstore.backlog import BacklogRequest, plan_all
from mqstore.backlog.request import LATE_AFTER_MS
from mqstore.errors import InvalidOptionError, StoreError, UnknownGroupError, UnknownTopicError
from mqstore.read.queues import QueueBounds
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of
from mqstore.read.system_topics import system_topics
from mqstore.tables import store as store_tables
from mqstore.tables.asides import asides, pending_halves
from mqstore.tables.choice import store_roots
from mqstore.tables.latency import PASS_MESSAGES
from mqstore.tables.traces import TRACE_TOPIC

T = TypeVar("T")

_TAGGED_TOPICS: Final = 40  # whose tags are counted
_TAGGED_PAIRS: Final = 40  # of a group and a topic, whose tags are counted
_MS_OF_A_SECOND: Final = 1000
EXACT_UNITS: Final = 1 << 20  # of a queue, whose sizes are all read: BoundsSource.weigh
_TIMES: Final = ("topic", "queueId", "messageCount", "minStoreTimestamp", "maxStoreTimestamp")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What a report is about: ``groups`` is a comma list or /regex/, None for all.

    ``verify``: check the stores' rules; None: those with a small CommitLog. ``history`` is what
    samples say, if there are any; ``trace_topic`` has traces, None: the default one.
    ``late_after_ms`` as in BacklogRequest.
    """

    groups: str | None = None
    system: bool = False
    verify: bool | None = None
    history: LagHistory | None = None
    trace_topic: str | None = None
    late_after_ms: int = LATE_AFTER_MS


@dataclass(frozen=True, slots=True)
class _HeldQueue:
    """A queue of the n-th source, with the times of its first and last message."""

    source: int
    bounds: QueueBounds
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class _Budget:
    """How many messages are looked at for their tags, queues for rates, and how often."""

    messages: int
    queues: int
    looks: int


_OF_STORES: Final = _Budget(MOST_MESSAGES, BISECTED_QUEUES, MOST_LOOKS)
_OF_CLUSTERS: Final = _Budget(50_000, 64, 1_500)


def gather(
    opened: OpenStores,
    request: ReportRequest,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Facts:
    """Return the facts of those stores; the directories among them are opened leniently.

    A part that cannot be read is Unread, with its reason. Raises what taking snapshots raises.
    """
    sources, snapshots = opened.sources, opened.held_of(lambda _: True)
    now_ms = max(snapshot.taken_ms for snapshot in snapshots)
    stores = store_roots(opened.selection)
    budget = _OF_STORES if len(stores) == len(sources) else _OF_CLUSTERS
    queues = _queues(snapshots)
    system = _system_topics(snapshots)
    timed = [
        TimedQueue(q.source, q.bounds, q.first_ms, q.last_ms)
        for q in queues
        if q.bounds.topic not in system and q.first_ms is not None and q.last_ms is not None
    ]
    topics = _read(lambda: _topics(sources, snapshots, queues, system, len(stores)))
    behind = _read(lambda: _waiting(sources, snapshots, request, (now_ms, len(stores))))
    known = [q.bounds for q in queues if q.bounds.topic not in system - {TRACE_TOPIC}]
    traced = Traced(request.trace_topic, request.groups, request.system)
    most = Bounds(TRACE_BYTES, budget.queues, min(budget.messages, PASS_MESSAGES))
    log_bytes = [snapshot.high - snapshot.low for snapshot in snapshots]
    return Facts(
        made_ms=now_ms,
        version=__version__,
        places=tuple(
            _place(
                (source, snapshot), [q for q in queues if q.source == n], system, len(stores) <= n
            )
            for n, (source, snapshot) in enumerate(zip(sources, snapshots, strict=True))
        ),
        topics=topics,
        tags=_read(lambda: _topic_tags(opened, system, budget)),
        behind=behind if isinstance(behind, Unread) else _with_tags(behind, budget),
        asides={} if isinstance(behind, Unread) else behind.asides,
        rates=_read(lambda: rates(sources, timed, budget.queues, budget.looks)),
        files=_read(lambda: files_of(stores)),
        verified=verified(
            stores, log_bytes[: len(stores)], wanted=request.verify, progress=progress
        ),
        history=request.history,
        latency=_read(lambda: latencies(opened, known, most, traced)),
    )


def _read(part: Callable[[], T]) -> Found[T]:
    try:
        return part()
    except (InvalidOptionError, UnknownGroupError, UnknownTopicError):
        raise  # Of the request, and not of a store.
    except (StoreError, OSError) as error:
        return Unread(str(error))


def _queues(snapshots: Sequence[Snapshot]) -> list[_HeldQueue]:
    held = []
    for number, snapshot in enumerate(snapshots):
        rows = rows_of(store_tables.queues(snapshot, _TIMES))
        for bounds, row in zip(snapshot.queues, rows, strict=True):
            times = _ms(row["minStoreTimestamp"]), _ms(row["maxStoreTimestamp"])
            held.append(_HeldQueue(number, bounds, *times))
    return held


def _system_topics(snapshots: Iterable[Snapshot]) -> set[str]:
    """Return RocketMQ's own topics; none of a configuration that cannot be read."""
    found: set[str] = set()
    for snapshot in snapshots:
        names = _read(partial(system_topics, snapshot))
        if not isinstance(names, Unread):
            found |= names
    return found


def _place(
    pair: tuple[BoundsSource, Snapshot], queues: Iterable[_HeldQueue], system: set[str], live: bool
) -> BrokerHeld:
    """Return one broker with its ``queues``; a ``live`` one tells its address and its version."""
    source, snapshot = pair
    parts: tuple[list[_HeldQueue], list[_HeldQueue]] = ([], [])
    for queue in queues:
        parts[queue.bounds.topic in system].append(queue)
    own, others = parts
    told = _read(lambda: source.broker(snapshot)) if live else None
    known = None if told is None or isinstance(told, Unread) else told
    return BrokerHeld(
        known.place if known else snapshot.origin.name,
        snapshot.broker_name,
        messages=sum(q.bounds.messages for q in own),
        queues=len(own),
        system_messages=sum(q.bounds.messages for q in others),
        system_queues=len(others),
        log_bytes=known.high - known.low if known else snapshot.high - snapshot.low,
        first_ms=min((q.first_ms for q in own if q.first_ms is not None), default=None),
        last_ms=max((q.last_ms for q in own if q.last_ms is not None), default=None),
        is_unclean=snapshot.is_unclean,
        is_live=live,
        version=known.version if known else None,
    )


def _topics(
    sources: Sequence[BoundsSource],
    snapshots: Sequence[Snapshot],
    queues: Iterable[_HeldQueue],
    system: set[str],
    stores: int,
) -> tuple[TopicHeld, ...]:
    """Return the topics that have a queue, those with the most messages first.

    The first ``stores`` of the sources are directories; bytes of the others are estimated.
    """
    by_topic: defaultdict[str, list[_HeldQueue]] = defaultdict(list)
    for queue in queues:
        by_topic[queue.bounds.topic].append(queue)
    sizes: defaultdict[str, int] = defaultdict(int)
    for source, snapshot in zip(sources, snapshots, strict=True):
        for weighed in source.weigh(slices_of(snapshot), strict=False):
            sizes[weighed.slice.topic] += weighed.total
    held = [
        TopicHeld(
            name,
            queues=len(own),
            messages=sum(q.bounds.high - q.bounds.low for q in own),
            bytes=sizes[name],
            is_weighed=any(
                q.source >= stores or q.bounds.high - q.bounds.low > EXACT_UNITS for q in own
            ),
            is_system=name in system,
            first_ms=min((q.first_ms for q in own if q.first_ms is not None), default=None),
            last_ms=max((q.last_ms for q in own if q.last_ms is not None), default=None),
        )
        for name, own in by_topic.items()
    ]
    return tuple(sorted(held, key=lambda topic: (-topic.messages, topic.name)))


def _topic_tags(opened: OpenStores, system: set[str], budget: _Budget) -> dict[str, Tags]:
    ranges: defaultdict[str, list[QueueSlice]] = defaultdict(list)
    for snapshot in opened.snapshots_of(lambda topic: topic not in system):
        for piece in slices_of(snapshot):
            ranges[piece.topic].append(piece)
    longest = sorted(ranges, key=lambda topic: -sum(p.end - p.start for p in ranges[topic]))
    chosen = {topic: ranges[topic] for topic in longest[:_TAGGED_TOPICS]}
    return tags_of(chosen, budget.messages)


def _waiting(
    sources: Sequence[BoundsSource],
    snapshots: Sequence[Snapshot],
    request: ReportRequest,
    at: tuple[int, int],
) -> Waiting:
    """Return the backlog; ``at`` are the time (epoch ms) and how many sources are directories."""
    now_ms, stores = at
    asked = BacklogRequest(
        groups=request.groups, system=request.system, late_after_ms=request.late_after_ms
    )
    items = plan_all(sources, snapshots, asked)
    live = {snapshot.origin for snapshot in snapshots[stores:]}
    found = waiting(items, now_ms, estimating=live, late_after_ms=request.late_after_ms)
    return replace(found, asides=asides(snapshots, items, pending_halves(sources, snapshots)))


def _with_tags(found: Waiting, budget: _Budget) -> Found[tuple[Behind, ...]]:
    """Return the rows of groups, the longest with their tags."""
    longest = [(one.group, one.topic) for one in found.behind if one.lag][:_TAGGED_PAIRS]
    chosen = {pair: found.ranges[pair] for pair in longest}
    tags = _read(lambda: tags_of(chosen, budget.messages))
    if isinstance(tags, Unread):
        return found.behind
    return tuple(replace(one, tags=tags.get((one.group, one.topic))) for one in found.behind)


def _ms(value: object) -> int | None:
    return round(value.timestamp() * _MS_OF_A_SECOND) if isinstance(value, datetime) else None

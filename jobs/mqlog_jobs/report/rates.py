"""Counts messages by the time of their storage, by bisection: store timestamps of a queue ascend.

The work is bounded: at most ``BISECTED_QUEUES`` queues are bisected, for so many steps of time that
there are about ``MOST_LOOKS`` bisections. Where there are more queues, some of each topic stand
for all of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Final

from mqlog_jobs.report.facts import Rates
from mqstore.errors import CorruptStoreError
from mqstore.read.queues import QueueBounds
from mqstore.read.source import BoundsSource

MOST_LOOKS: Final = 12_000
BISECTED_QUEUES: Final = 500
_FEWEST_STEPS: Final = 24
_MOST_STEPS: Final = 72
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
STEPS_MS: Final = (
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28)),
)


@dataclass(frozen=True, slots=True)
class TimedQueue:
    """A queue of the n-th source, and when its first and last message were stored."""

    source: int
    bounds: QueueBounds
    first_ms: int
    last_ms: int

    @property
    def messages(self) -> int:
        """Messages held."""
        return self.bounds.high - self.bounds.low


def rates(
    sources: Sequence[BoundsSource],
    queues: Sequence[TimedQueue],
    most_queues: int = BISECTED_QUEUES,
    looks: int = MOST_LOOKS,
) -> Rates:
    """Return how many messages of each topic were stored in each step of time.

    Queues with a damaged record are left out, as if their broker had them not.
    """
    chosen = _chosen(queues)[:most_queues]
    if not chosen:
        return Rates(0, _SECOND, {}, 0, 0)
    first, last = min(q.first_ms for q in queues), max(q.last_ms for q in queues)
    step = step_ms(first, last, looks // len(chosen))
    start = first - first % step
    edges = list(range(start, last + 1 + step, step))
    found = [
        (queue, counts)
        for number, source in enumerate(sources)
        for queue, counts in _counted(source, [q for q in chosen if q.source == number], edges)
    ]
    return _together(queues, found, Rates(start, step, {}, len(found), len(queues)))


def step_ms(first_ms: int, last_ms: int, most: int) -> int:
    """Return the shortest usual step of which the time has at most ``most``, 24 to 72."""
    most = min(max(most, _FEWEST_STEPS), _MOST_STEPS)
    usual = (step for step in STEPS_MS if last_ms // step - first_ms // step < most)
    return next(usual, (last_ms - first_ms) // (most - 1) + 1)


def _chosen(queues: Iterable[TimedQueue]) -> list[TimedQueue]:
    """Return the queues to bisect: of each topic the longest, then the second longest, …."""
    topics: defaultdict[str, list[TimedQueue]] = defaultdict(list)
    for queue in sorted(queues, key=lambda q: -q.messages):
        topics[queue.bounds.topic].append(queue)
    rounds = zip_longest(*topics.values())
    return [queue for one in rounds for queue in one if queue is not None]


def _counted(
    source: BoundsSource, queues: Sequence[TimedQueue], edges: Sequence[int]
) -> list[tuple[TimedQueue, list[int]]]:
    """Return the messages of each queue between the edges; one by one if a record is damaged."""
    if not queues:
        return []
    try:
        places = _places(source, [queue.bounds for queue in queues], edges)
    except CorruptStoreError:
        if len(queues) == 1:
            return []
        return [found for queue in queues for found in _counted(source, [queue], edges)]
    counts = [[b - a for a, b in pairwise(of_queue)] for of_queue in zip(*places, strict=True)]
    return list(zip(queues, counts, strict=True))


def _places(
    source: BoundsSource, queues: Sequence[QueueBounds], edges: Sequence[int]
) -> list[list[int]]:
    """Return for each edge the first queue offset of each queue at or after it.

    The middle edge first: what it finds bounds the searches on both of its sides.
    """
    places = {0: [queue.low for queue in queues], len(edges) - 1: [queue.high for queue in queues]}
    spans = [(0, len(edges) - 1)]
    while spans:
        low, high = spans.pop()
        middle = (low + high) // 2
        if middle == low:
            continue
        narrow = [
            replace(queue, low=start, high=end)
            for queue, start, end in zip(queues, places[low], places[high], strict=True)
        ]
        places[middle] = source.first_at(narrow, [edges[middle]] * len(narrow))
        spans += [(low, middle), (middle, high)]
    return [places[number] for number in range(len(edges))]


def _together(
    queues: Sequence[TimedQueue], found: Sequence[tuple[TimedQueue, list[int]]], empty: Rates
) -> Rates:
    """Return the rates by topic; where not all of its queues were bisected, in their proportion."""
    held: defaultdict[str, int] = defaultdict(int)
    for queue in queues:
        held[queue.bounds.topic] += queue.messages
    sums: dict[str, list[int]] = {}
    for queue, counts in found:
        before = sums.get(queue.bounds.topic, [0] * len(counts))
        sums[queue.bounds.topic] = [a + b for a, b in zip(before, counts, strict=True)]
    looked = {topic: sum(counts) for topic, counts in sums.items()}
    by_topic = {
        topic: [round(count * held[topic] / looked[topic]) for count in sums[topic]]
        for topic in sorted(sums, key=lambda name: (-held[name], name))
        if looked[topic]
    }
    missing = held.keys() - by_topic.keys()
    return replace(
        empty,
        counts=by_topic,
        left_out=len(missing),
        messages_left_out=sum(held[topic] for topic in missing),
    )

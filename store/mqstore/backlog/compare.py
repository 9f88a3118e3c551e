"""The backlog beside what RocketMQ's own tools would print, and one word why they differ.

``consumerProgress`` prints a line for each queue of topics.json that consumers may read, of each
topic the group has an offset for: maxOffset less the committed offset, whatever is still held
and whatever the group filters. The metric rocketmq_consumer_lag_messages of 5.x adds up, over
the queues that producers may write, maxOffset less the committed offset; by tag it counts
hashes, and guesses where there are many. It leaves out retry topics, and queues a group never
committed. Its latency is that of the message at the committed offset, if it is still there.

Of a group that pops, consumerProgress counts what was never popped; the metric adds a count of what
is popped and not acknowledged, which a broker keeps in memory from its start on, and which pops in
order are not part of. Here it is that of a broker that ran all the time.

A broker asked while no consumer is online tells less: consumerProgress lists topics by what was
committed, but the metric has only groups that are online. Here every group is taken to be.

Reference: AdminBrokerProcessor#getConsumeStats, ConsumerProgressSubCommand;
ConsumerLagCalculator#processAllGroup, #getConsumerLagStats, #calculateMessageCount;
PopInflightMessageCounter.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.backlog.estimate import Estimate, Matches, estimate
from mqstore.backlog.items import BacklogItem
from mqstore.backlog.measure import measure
from mqstore.backlog.request import EXACT, BacklogRequest
from mqstore.backlog.schema import AHEAD, EXPIRED, NEVER_COMMITTED, SQL92, TOPIC_GONE
from mqstore.backlog.schema import COLUMNS as BACKLOG_COLUMNS
from mqstore.backlog.standing import Standing
from mqstore.codec.schema import TIMESTAMP
from mqstore.format.arrays import TopicGroup, TopicQueue
from mqstore.format.config import PERM_READ, PERM_WRITE
from mqstore.format.names import RETRY_PREFIX
from mqstore.pop.state import POP_FIFO, PULL
from mqstore.read.broker_state import BrokerState
from mqstore.read.source import Origin, RecordSource

SAME: Final = "SAME"
# AHEAD: diff is negative. EXPIRED: both count messages that are gone.
ESTIMATE: Final = "ESTIMATE"  # the metric looked at some and guessed
HASH_COLLISION: Final = "HASH"  # the metric takes tags of one hash for the same
TAG_FILTER: Final = "TAGS"  # consumerProgress counts messages the group filters out
RETRY_LEFT_OUT: Final = "RETRY"  # the metric leaves retry topics out
POPPED: Final = "POPPED"  # consumerProgress leaves out what is popped and not acknowledged
IN_ORDER: Final = "FIFO"  # both count what is acknowledged behind a hole of a batch in order
UNLISTED: Final = "UNLISTED"  # topics.json does not have the queue, or not the topic

_BACKLOG_COLUMN: Final = {name: column for name, *column in BACKLOG_COLUMNS}


def _ours(*names: str) -> tuple[tuple[str, pa.DataType, bool, str], ...]:
    return tuple((name, *_BACKLOG_COLUMN[name]) for name in names)


COLUMNS: Final = (
    *_ours("brokerName", "group", "topic", "queueId", "brokerOffset", "consumerOffset"),
    *_ours("minOffset", "subscription", "expressionType"),
    ("progressDiff", pa.int64(), True, "Diff of consumerProgress; null: it has no such line"),
    ("progressInflight", pa.int64(), True,
     "Inflight of consumerProgress 5.x; null as above, and where it is not told"),
    ("metricLag", pa.int64(), True,
     "the queue's part of rocketmq_consumer_lag_messages; null: the metric excludes it"),
    ("metricIsEstimate", pa.bool_(), True, "the metric extrapolates from some of the messages"),
    ("metricLatencyMs", pa.int64(), True,
     "the queue's latency; rocketmq_consumer_lag_latency is the largest"),
    *_ours("lag", "lagMatching", "expired", "lagMs"),
    ("difference", pa.string(), False,
     "one word for the reason of a difference; SAME without one"),
    ("asOf", TIMESTAMP, False, "when the offsets were read"),
)  # fmt: skip
SCHEMA: Final = pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in COLUMNS])
_SHARE: Final = 10_000
_NEAR_UNITS: Final = 4096


@dataclass(frozen=True, slots=True)
class Listed:
    """What a store's config says of its queues to the tools. Pickles.

    ``topics`` has (readQueueNums, writeQueueNums, perm) of each; ``groups`` are the configured
    ones; ``committed`` the (topic, group) pairs with an offset, ``ours`` those of our own streams,
    which no broker knows; ``pulled`` how far groups pulled, as far as the broker tells.
    """

    topics: dict[str, tuple[int, int, int]]
    groups: frozenset[str]
    committed: frozenset[tuple[str, str]]
    ours: frozenset[tuple[str, str]]
    pulled: Mapping[tuple[str, str], Mapping[int, int]]

    @classmethod
    def of(cls, config: BrokerState, pairs: Collection[TopicGroup]) -> "Listed":
        """Ask a broker's configuration, of how far groups pulled for those (topic, group).

        Raises CorruptConfigError.
        """
        entries, committed = config.topics(), config.committed()
        brokers = {key for key, found in committed.items() if found.is_brokers}
        return cls(
            {t: (e.read_queue_nums, e.write_queue_nums, e.perm) for t, e in entries.items()},
            frozenset(config.groups()),
            frozenset(brokers),
            frozenset(committed.keys() - brokers),
            config.pulled(pairs),
        )

    def in_progress(self, item: BacklogItem) -> bool:
        """Tell whether consumerProgress has a line for this queue of this group."""
        known = (item.topic, item.group) in self.committed
        return known and item.queue_id < self.topics.get(item.topic, (0, 0, 0))[0]

    def in_metric(self, item: BacklogItem) -> bool:
        """Tell whether the metric counts this queue of this group, were it online."""
        _, writable, perm = self.topics.get(item.topic, (0, 0, 0))
        open_ = item.queue_id < writable and bool(perm & (PERM_READ | PERM_WRITE))
        # Without a file of groups nothing is known of any: brokers add those that come.
        configured = not self.groups or item.group in self.groups
        configured &= (item.topic, item.group) not in self.ours
        return open_ and configured and not item.topic.startswith(RETRY_PREFIX)

    def inflight(self, item: BacklogItem) -> int | None:
        """Return what was pulled and not committed; None where the broker does not tell."""
        told = self.pulled.get((item.topic, item.group))
        return None if told is None else max(told.get(item.queue_id, -1) - item.consumed, 0)


def compare(
    items: Sequence[BacklogItem],
    request: BacklogRequest,
    listed: Mapping[Origin, Listed],
    as_of_ms: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each item, some ten thousand at a time, queue by queue, as SCHEMA.

    ``listed`` has what each origin's configuration says. Our own numbers are exact whatever the
    request's lag_mode. Raises what ``measure`` raises.
    """
    asked = BacklogRequest(request.groups, request.subscriptions, EXACT)
    for share in _shares(items):
        ours = measure(share, asked, as_of_ms)
        origin = share[0].origin
        with closing(origin.records()) as source:
            tools = _Tools(source, share, listed[origin], as_of_ms)
        yield _batch(share, ours, tools)


def _shares(items: Sequence[BacklogItem]) -> Iterator[list[BacklogItem]]:
    """Yield the items of some queues of one store: all of a queue, for it is read once."""

    def queue(item: BacklogItem) -> tuple[str, str, int]:
        return item.broker_name, item.topic, item.queue_id

    share: list[BacklogItem] = []
    for (broker, _, _), of_queue in groupby(sorted(items, key=queue), queue):
        if share and (len(share) >= _SHARE or share[0].broker_name != broker):
            yield share
            share = []
        share += of_queue
    if share:
        yield share


class _Tools:
    """What the tools would print of some items of one store."""

    def __init__(
        self, source: RecordSource, items: Sequence[BacklogItem], listed: Listed, as_of_ms: int
    ) -> None:
        self.listed = listed
        self._source = source
        self._as_of_ms = as_of_ms
        self._estimates: dict[tuple[str, int, int, str | None], Estimate] = {}
        self._times: dict[tuple[str, int, int], int] = {}
        for queue, its in groupby(items, lambda i: (i.topic, i.queue_id)):
            of_queue = list(its)
            self._estimate(queue, of_queue)
            with suppress(FileNotFoundError):  # They expired meanwhile: no message, no age.
                self._time(queue, of_queue)

    def metric(self, item: BacklogItem) -> Estimate | None:
        """Return what the queue adds to the metric, or None if it is left out."""
        if not self.listed.in_metric(item):
            return None
        committed = item.consumer_offset
        if committed is None or committed < 0:
            return Estimate(0, is_sample=False)
        popped = item.popped
        if popped is not None and item.mode != POP_FIFO:
            return Estimate(item.high - popped.begin + len(popped.open), is_sample=False)
        # SQL92 needs bitmaps that hardly any broker keeps: without, every message matches.
        every = Estimate(max(0, item.high - committed), is_sample=False)
        return self._estimates.get(_key(item, committed), every)

    def latency_ms(self, item: BacklogItem) -> int | None:
        """Return the age of the message at the committed offset, or None if there is none."""
        if not self.listed.in_metric(item) or item.consumer_offset is None:
            return None
        time = self._times.get((item.topic, item.queue_id, item.consumer_offset))
        return None if time is None else self._as_of_ms - time

    def _estimate(self, queue: TopicQueue, items: Sequence[BacklogItem]) -> None:
        """Note the estimates of those that take a queue by tag."""
        units: dict[str | None, Matches] = {}
        for item in sorted(items, key=lambda item: item.consumed):
            committed, wanted = item.consumer_offset, item.tag_filter(EXACT)
            if committed is None or wanted is None or not 0 <= committed < item.high:
                continue
            if item.subscription not in units:
                units[item.subscription] = Matches(self._source, queue, wanted)
            matches, bounds = units[item.subscription], (item.low, item.high)
            key = _key(item, committed)
            if key not in self._estimates and self.listed.in_metric(item):
                self._estimates[key] = estimate(matches, bounds, committed)

    def _time(self, queue: TopicQueue, items: Sequence[BacklogItem]) -> None:
        """Note when the messages at the committed offsets were stored."""
        held = {i.consumer_offset for i in items if i.low <= (i.consumer_offset or 0) < i.high}
        rest = sorted(place for place in held if place is not None)
        while rest:
            # One read for those that are close to each other.
            upto = bisect_left(rest, rest[0] + _NEAR_UNITS)
            near, rest = np.array(rest[:upto], np.int64), rest[upto:]
            for units in self._source.units(queue, int(near[0]), int(near[-1]) + 1):
                inside = near[(near >= units.start) & (near < units.end)]
                times = self._source.store_timestamps(units.take(inside - units.start))
                for queue_offset, time in zip(inside.tolist(), times.tolist(), strict=True):
                    # A time of 0 or less is taken for none, and NO_TIMESTAMP is below.
                    if time > 0:
                        self._times[(*queue, queue_offset)] = time


def _key(item: BacklogItem, committed: int) -> tuple[str, int, int, str | None]:
    return item.topic, item.queue_id, committed, item.tag_expression


def _batch(items: Sequence[BacklogItem], ours: pa.RecordBatch, tools: _Tools) -> pa.RecordBatch:
    metrics = [tools.metric(item) for item in items]
    shown = [tools.listed.in_progress(item) for item in items]
    standing = Standing.of(items)
    diffs = standing.diff.tolist()
    progress = [diff if line else None for diff, line in zip(diffs, shown, strict=True)]
    inflight = [
        tools.listed.inflight(item) if line else None
        for item, line in zip(items, shown, strict=True)
    ]
    matching = ours["lagMatching"].to_pylist()
    expired = (standing.expired > 0).tolist()
    numbers = zip(items, progress, metrics, matching, expired, strict=True)
    theirs = {
        "progressDiff": progress,
        "progressInflight": inflight,
        "metricLag": [None if m is None else m.count for m in metrics],
        "metricIsEstimate": [None if m is None else m.is_sample for m in metrics],
        "metricLatencyMs": [tools.latency_ms(item) for item in items],
        "difference": [_difference(*row) for row in numbers],
    }
    arrays = [
        pa.array(theirs[field.name], field.type) if field.name in theirs else ours[field.name]
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _difference(
    item: BacklogItem,
    progress: int | None,
    metric: Estimate | None,
    matching: int,
    expired: bool,
) -> str:
    """Return the first cause that is there and explains a number that is not ours."""
    count = None if metric is None else metric.count
    if progress == count == matching:
        return SAME
    causes = (
        (TOPIC_GONE, item.topic_gone),
        (AHEAD, item.consumed > item.high),
        (NEVER_COMMITTED, item.consumer_offset is None),
        (IN_ORDER, item.mode == POP_FIFO and progress != item.lag),
        (POPPED, item.mode not in (PULL, POP_FIFO) and progress != item.lag),
        (SQL92, item.expression_type == SQL92),
        (EXPIRED, expired),
        (ESTIMATE, metric is not None and metric.is_sample and count != matching),
        (HASH_COLLISION, count is not None and count != matching),
        (TAG_FILTER, progress is not None and progress != matching),
        (RETRY_LEFT_OUT, metric is None and item.topic.startswith(RETRY_PREFIX)),
    )
    return next((word for word, holds in causes if holds), UNLISTED)

"""How long messages took, of the newest of them: ``table=latency``, over what clients traced.

The work is bounded: about ``Bounds.trace_bytes`` of the trace topic are read, the newest messages
of each of its queues, and then the messages of users' topics that were stored since: the newest
ones of each queue, of so many queues and messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.report.facts import Found, Latencies, Looked, Unread
from mqstore.errors import InvalidOptionError
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.selection import OpenStores
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.tables.choice import Window, slices
from mqstore.tables.latency import SCHEMA, LatencyPart
from mqstore.tables.traces import trace_topic

TRACE_BYTES: Final = 16 << 20  # Some seconds.
_US_OF_A_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is looked at: bytes of traces, queues of topics, messages of these."""

    trace_bytes: int
    queues: int
    messages: int


@dataclass(frozen=True, slots=True)
class Traced:
    """Which trace topic is read (None: the default one), and of which groups, as a report is."""

    topic: str | None = None
    groups: str | None = None
    system: bool = False


def latencies(
    opened: OpenStores, queues: Iterable[QueueBounds], most: Bounds, of: Traced
) -> Found[Latencies] | None:
    """Return the rows of the newest messages; None where there is no trace.

    ``queues`` are those of the trace topic and of the topics that may be looked at. Raises
    UnknownTopicError for a trace topic that is named, and what reading raises.
    """
    topic = trace_topic(opened, of.topic)
    lengths: dict[str, list[int]] = {}
    for queue in queues:
        lengths.setdefault(queue.topic, []).append(queue.messages)
    if not sum(lengths.pop(topic, ())):
        return None
    chosen = _chosen(lengths, most.queues)
    snapshots = opened.snapshots_of(lambda name: name == topic or name in chosen)
    pairs = list(zip(opened.sources, snapshots, strict=True))
    traces, size = [], 0
    for source, snapshot in pairs:
        pieces = slices(source, snapshot, topic.__eq__)
        size += sum(weighed.total for weighed in source.weigh(pieces, strict=False))
        traces += pieces
    number = _length(traces)
    newest = _newest(traces, number * most.trace_bytes // max(size, 1))
    since_ms = _begin_ms(newest, traces)
    messages = [
        piece
        for source, snapshot in pairs
        for piece in slices(source, snapshot, chosen.__contains__, Window(since_ms))
    ]
    messages = _newest(messages, most.messages)
    part = LatencyPart(tuple(messages), tuple(newest), of.groups, system=of.system)
    try:
        found = pa.Table.from_batches(part.batches(SCHEMA.names), SCHEMA)
    except InvalidOptionError as error:  # More groups than fit into memory: of the traces.
        return Unread(str(error))
    return Latencies(
        tuple(rows_of(found)),
        since_ms,
        Looked(_length(newest), number),
        Looked(_length(messages), sum(map(sum, lengths.values()))),
        len(lengths) - len(chosen),
    )


def _chosen(lengths: Mapping[str, Sequence[int]], most: int) -> set[str]:
    """Return the topics with the most messages that have so many queues; one at least."""
    chosen: set[str] = set()
    room = most
    for topic in sorted(lengths, key=lambda name: (-sum(lengths[name]), name)):
        room -= len(lengths[topic])
        if room < 0 and chosen:
            break
        chosen.add(topic)
    return chosen


def _newest(pieces: Sequence[QueueSlice], most: int) -> list[QueueSlice]:
    """Return the ends of the slices: of each equally many messages, so many in all."""
    each = max(most // max(len(pieces), 1), 1)
    return [replace(piece, start=max(piece.start, piece.end - each)) for piece in pieces]


def _begin_ms(newest: Sequence[QueueSlice], whole: Sequence[QueueSlice]) -> int | None:
    """Return since when all traces are among the newest (epoch ms); None: since the first."""
    settings = ScanSettings(columns=("storeTimestamp",))
    firsts = [
        replace(part, end=part.start + 1)
        for part, piece in zip(newest, whole, strict=True)
        if part.start > piece.start
    ]
    times = [
        int(us) // _US_OF_A_MS
        for first in firsts
        for found in scan([first], settings)
        for us in found["storeTimestamp"].cast(pa.int64()).to_pylist()
    ]
    return max(times, default=None)


def _length(pieces: Iterable[QueueSlice]) -> int:
    return sum(piece.end - piece.start for piece in pieces)

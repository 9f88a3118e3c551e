"""Counts the messages before each group where a unit costs as much as its record.

How many messages there are is known from queue offsets. Of their tags, only the messages that may
match are requested: the holder of the queue looks at the units itself. For SQL92 all are read.
Bytes of messages that are not asked for are an estimate; numbers of messages are exact.

Reference: DefaultMessageFilter#isMatchedByConsumeQueue (hash), PullAPIWrapper#processPullResult.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from mqstore.backlog.count import QueueCount, TooManyTagsError, fits
from mqstore.backlog.keys import SqlVerdicts, TagStrings
from mqstore.codec.properties import PropertyBlocks
from mqstore.errors import CorruptStoreError
from mqstore.read.queues import QueueRange
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, RecordSource, records_of
from mqstore.read.units import UnitBatch


def count_matches(source: RecordSource, queues: Sequence[QueueCount]) -> None:
    """Count queues of one origin that are not counted by hash. Raises as ``count``."""
    spans = [queue.span for queue in queues]
    open_ = [(queue, span) for queue, span in zip(queues, spans, strict=True) if span is not None]
    sizes = source.sizes([span for _, span in open_])
    for (queue, span), size in zip(open_, sizes, strict=True):
        classifier = queue.classifier
        if isinstance(classifier, SqlVerdicts):
            _count_by_sql(source, queue, span)
        elif isinstance(classifier, TagStrings):
            name, start, end = span
            since = max(start, classifier.since)
            for units, tags in source.tagged((name, since, end), classifier.wanted):
                queue.add_some(units, tags)
                if len(queues) > 1 and not fits(queues):
                    raise TooManyTagsError
        queue.fill(size)
    for queue in queues:
        if len(queue.open.places):
            _count_open(source, queue)
        queue.note_consumed()


def _count_open(source: RecordSource, queue: QueueCount) -> None:
    """Count the open messages of a POP group, which have holes between them."""
    item, classifier = queue.items[0], queue.classifier
    ranges = [((item.topic, item.queue_id), *run) for run in queue.open.runs()]
    for name, start, end in ranges:
        if isinstance(classifier, SqlVerdicts):
            for units, properties in _with_properties(source, queue, (name, start, end)):
                queue.add_open_some(units, properties)
        elif isinstance(classifier, TagStrings):
            for units, tags in source.tagged((name, start, end), classifier.wanted):
                queue.add_open_some(units, tags)
    queue.fill_open(source.sizes(ranges))


def _count_by_sql(source: RecordSource, queue: QueueCount, span: QueueRange) -> None:
    """Read all records of ``span``; what is broken or expires meanwhile passes nothing."""
    for units, properties in _with_properties(source, queue, span):
        queue.add_some(units, properties)


def _with_properties(
    source: RecordSource, queue: QueueCount, span: QueueRange
) -> Iterator[tuple[UnitBatch, pa.MapArray]]:
    item, (name, start, end) = queue.items[0], span
    piece = QueueSlice(item.origin, item.broker_name, *name, start, end)
    settings = ScanSettings(columns=("properties",), fail_on_data_loss=False)
    for units, records in records_of(source, [piece], settings, _ignored):
        yield units.take(records.rows), PropertyBlocks.of(records.headers).as_map()


def _ignored(_: CorruptStoreError) -> None:
    """Do nothing: a backlog counts messages, and a consumer would not get this one."""

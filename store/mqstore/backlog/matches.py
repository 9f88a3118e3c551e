"""Counts the messages before each group where a unit costs as much as its record.

How many messages there are is known from queue offsets. Of their tags, only the messages that may
match are requested: the holder of the queue looks at the units itself. For SQL92 all are read.
Bytes of messages that are not asked for are an estimate; numbers of messages are exact.

Reference: DefaultMessageFilter#isMatchedByConsumeQueue (hash), PullAPIWrapper#processPullResult.
"""

from collections.abc import Sequence

from mqstore.backlog.count import QueueCount, TooManyTagsError, fits
from mqstore.backlog.keys import SqlVerdicts, TagStrings
from mqstore.codec.properties import PropertyBlocks
from mqstore.errors import CorruptStoreError
from mqstore.read.queues import QueueRange
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, RecordSource, records_of


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
        queue.note_consumed()


def _count_by_sql(source: RecordSource, queue: QueueCount, span: QueueRange) -> None:
    """Read all records of ``span``; what is broken or expires meanwhile passes nothing."""
    item, (name, start, end) = queue.items[0], span
    piece = QueueSlice(item.origin, item.broker_name, *name, start, end)
    settings = ScanSettings(columns=("properties",), fail_on_data_loss=False)
    for units, records in records_of(source, [piece], settings, _ignored):
        properties = PropertyBlocks.of(records.headers).as_map()
        queue.add_some(units.take(records.rows), properties)


def _ignored(_: CorruptStoreError) -> None:
    """Do nothing: a backlog counts messages, and a consumer would not get this one."""

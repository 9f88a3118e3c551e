"""What lies before each group in a queue, where a unit costs as much as its record.

How many messages there are is known from queue offsets. Of their tags, only the messages that may
match are asked for: whoever holds the queue looks at the units itself. Bytes of the others are an
estimate; numbers of messages are exact.

Reference: DefaultMessageFilter#isMatchedByConsumeQueue (hash), PullAPIWrapper#processPullResult.
"""

from collections.abc import Sequence

from mqstore.backlog.count import QueueCount, TooManyTagsError, fits
from mqstore.backlog.keys import TagStrings
from mqstore.read.source import RecordSource


def count_matches(source: RecordSource, queues: Sequence[QueueCount]) -> None:
    """Count queues of one origin that are not counted by hash. Raises as ``count``."""
    spans = [queue.span for queue in queues]
    open_ = [(queue, span) for queue, span in zip(queues, spans, strict=True) if span is not None]
    sizes = source.sizes([span for _, span in open_])
    for (queue, span), size in zip(open_, sizes, strict=True):
        classifier = queue.classifier
        if isinstance(classifier, TagStrings):
            name, start, end = span
            since = max(start, classifier.since)
            for units, tags in source.tagged((name, since, end), classifier.wanted):
                queue.add_some(units, tags)
                if len(queues) > 1 and not fits(queues):
                    raise TooManyTagsError
        queue.fill(size)
    for queue in queues:
        queue.note_consumed()

"""Options of a read that follows places, from paths and texts: parsed, and checked together.

What is followed are messages, or a table whose rows lie in the messages of one topic.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateStreamOptions for what is
refused together.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.options.option import Option
from mqstore.options.texts import parse, refusals
from mqstore.request.places import LIVE, OBJECTS
from mqstore.request.read import check_together, named_places, without_places
from mqstore.request.read_options import (
    MESSAGES,
    READ_OPTIONS,
    STREAM_OPTIONS,
    QueueRange,
    ReadOptions,
    StreamOptions,
    queue_range,
    takers,
    takes,
)
from mqstore.tables.catalog import CATALOG

_ENDS: Final = ("ending_offsets", "ending_timestamp", "ending_by_timestamp")
_AT_REST: Final = ("queues", "cache_dir", "tier")
_STREAMED: Final = {name: one.streamed for name, one in CATALOG.items() if one.streamed}
_OF_STREAMED: Final = frozenset({
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingGroup", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "maxBytesPerPartition",
})  # fmt: skip
"""What a stream of a table takes beside the table's own options: where it starts, and its tasks."""
_OF_MESSAGES: Final = {f: o for f, o in READ_OPTIONS.items() if MESSAGES in takers(o.name)}


def _stream_start(name: str, text: str) -> QueueRange:
    return queue_range(name, text, grammar.LATEST)


IN_STREAM: Final[dict[str, Option]] = {
    **{f: o for f, o in _OF_MESSAGES.items() if f not in {*_ENDS, *_AT_REST}},
    **{f: o for f, o in READ_OPTIONS.items() if o.name in {s.option for s in _STREAMED.values()}},
    "starting_offsets": replace(READ_OPTIONS["starting_offsets"], parse=_stream_start),
    **STREAM_OPTIONS,
    **LIVE,
    **OBJECTS,
}
"""The options of a stream, by field."""
_FOLLOWED: Final = (MESSAGES, *_STREAMED)


def refused_in_stream(ends: str, from_log: str, tables: str) -> dict[str, tuple[str, str]]:
    """Return what a stream refuses of the options of reads, with a reason for each kind.

    The kinds are the ends of a range, the options of reads by the log or of a tier, and those of
    tables.
    """
    others = [field for field in READ_OPTIONS if field not in {*IN_STREAM, *_ENDS, *_AT_REST}]
    return (
        refusals((READ_OPTIONS[field].name for field in _ENDS), ends)
        | refusals((READ_OPTIONS[field].name for field in _AT_REST), from_log)
        | refusals((READ_OPTIONS[field].name for field in others), tables)
    )


def stream_options(
    paths: tuple[str, ...],
    texts: Mapping[str, str],
    refused: Mapping[str, tuple[str, str]] | None = None,
) -> StreamOptions:
    """Return the options of a stream of ``paths``; touches no store.

    ``texts`` are the options by name in lower case, ``refused`` as in ``parse``. Raises
    InvalidOptionError.
    """
    values, given = parse(texts, IN_STREAM, refused or {})
    table = values.get("table", MESSAGES)
    if table not in _FOLLOWED:
        expected = f"a stream reads {' or '.join(_FOLLOWED)}: other tables are for a batch read"
        raise InvalidOptionError("table", table, expected)
    limits = {field: values.pop(field) for field in STREAM_OPTIONS if field in values}
    values.setdefault("starting_offsets", QueueRange(grammar.LATEST))
    read = ReadOptions(
        places=named_places(paths, texts, given), given=given, **without_places(values)
    )
    check_together(read, _takes)
    read = _of_topic(read)
    read.places.check_grows()
    found = StreamOptions(read=read, **limits)
    least, most = found.min_offsets, found.max_offsets
    if least is not None and most is not None and least > most:
        raise InvalidOptionError(
            "minOffsetsPerTrigger", least, f"is more than maxOffsetsPerTrigger={most}"
        )
    return found


def _takes(table: str, option: str) -> bool:
    return takes(table, option) or (table in _STREAMED and option in _OF_STREAMED)


def _of_topic(options: ReadOptions) -> ReadOptions:
    """Return the options with the topic that a table's rows lie in; unchanged for messages.

    The one that an option names has to be there. The default one may come later, as for a batch.
    """
    streamed = _STREAMED.get(options.table)
    if streamed is None:
        return options
    if options.places.topics:
        topics = ", ".join(options.places.topics)
        expected = f"its topic is {streamed.topic}, or that of {streamed.option}, not {topics}"
        raise InvalidOptionError("table", options.table, expected)
    if streamed.option in options.given:
        return replace(options, subscribe=(options.given[streamed.option],))
    return replace(options, subscribe_pattern=re.escape(streamed.topic))

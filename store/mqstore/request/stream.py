"""Options of a read that follows places, from paths and texts: parsed, and checked together.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateStreamOptions for what is
refused together.
"""

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
)

_ENDS: Final = ("ending_offsets", "ending_timestamp", "ending_by_timestamp")
_OF_LOG_READS: Final = ("queues", "cache_dir")
_OF_MESSAGES: Final = {f: o for f, o in READ_OPTIONS.items() if MESSAGES in takers(o.name)}


def _stream_start(name: str, text: str) -> QueueRange:
    return queue_range(name, text, grammar.LATEST)


IN_STREAM: Final[dict[str, Option]] = {
    **{f: o for f, o in _OF_MESSAGES.items() if f not in {"table", *_ENDS, *_OF_LOG_READS}},
    "starting_offsets": replace(READ_OPTIONS["starting_offsets"], parse=_stream_start),
    **STREAM_OPTIONS,
    **LIVE,
    **OBJECTS,
}
"""The options of a stream, by field."""


def refused_in_stream(ends: str, from_log: str, tables: str) -> dict[str, tuple[str, str]]:
    """Return what a stream refuses of the options of reads, with a reason for each kind.

    The kinds are the ends of a range, the options of reads by the log, and those of tables.
    """
    return (
        refusals((READ_OPTIONS[field].name for field in _ENDS), ends)
        | refusals((READ_OPTIONS[field].name for field in _OF_LOG_READS), from_log)
        | refusals((o.name for f, o in READ_OPTIONS.items() if f not in _OF_MESSAGES), tables)
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
    limits = {field: values.pop(field) for field in STREAM_OPTIONS if field in values}
    values.setdefault("starting_offsets", QueueRange(grammar.LATEST))
    read = ReadOptions(
        places=named_places(paths, texts, given), given=given, **without_places(values)
    )
    read.places.check_grows()
    found = StreamOptions(read=read, **limits)
    check_together(found.read)
    least, most = found.min_offsets, found.max_offsets
    if least is not None and most is not None and least > most:
        raise InvalidOptionError(
            "minOffsetsPerTrigger", least, f"is more than maxOffsetsPerTrigger={most}"
        )
    return found

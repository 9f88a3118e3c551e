"""The options of a streaming read: those of a batch read without its ends, and its own.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateStreamOptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.read.admission import Admission
from pyspark_mqlog.option import (
    MESSAGES,
    Option,
    any_text,
    declared,
    named_paths,
    own_options,
    parse,
    refusals,
)
from pyspark_mqlog.options import (
    READ_OPTIONS,
    REFUSED_IN_READ,
    STREAM_OPTIONS,
    QueueRange,
    ReadOptions,
    check_together,
    parse_read,
    queue_range,
)

_ENDS: Final = frozenset({"ending_offsets", "ending_timestamp", "ending_by_timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a streaming read. ``read`` has those it shares with a batch read."""

    read: ReadOptions
    max_offsets: Annotated[int | None, Option("maxOffsetsPerTrigger", grammar.count)]
    min_offsets: Annotated[int | None, Option("minOffsetsPerTrigger", grammar.count)]
    max_bytes: Annotated[int | None, Option("maxBytesPerTrigger", grammar.size)]
    max_delay_ms: Annotated[int, Option("maxTriggerDelay", grammar.duration, "15m")]
    commit_group: Annotated[str | None, Option("commitGroup", any_text)]

    @property
    def admission(self) -> Admission:
        """The limits of a micro-batch."""
        return Admission(self.max_offsets, self.max_bytes, self.min_offsets, self.max_delay_ms)

    @property
    def starts_where_it_was(self) -> bool:
        """Tell whether a start that is worked out again later is the same one."""
        read, at = self.read, self.read.starting_offsets
        if {"startingTimestamp", "startingOffsetsByTimestamp", "startingGroup"} & set(read.given):
            return False
        return at.last_count is None and at.word == grammar.EARLIEST


def _starting_offsets(name: str, text: str) -> QueueRange:
    return queue_range(name, text, grammar.LATEST)


OWN_OPTIONS: Final = declared(StreamOptions)
_SHARED: Final = {
    field: option
    for field, option in READ_OPTIONS.items()
    if option.tables >= MESSAGES and field not in {*_ENDS, "table"}
}
_STARTING: Final = replace(
    READ_OPTIONS["starting_offsets"], parse=_starting_offsets, default="latest"
)
_DECLARED: Final = {**_SHARED, "starting_offsets": _STARTING, **OWN_OPTIONS}
_REFUSED: Final = {
    **REFUSED_IN_READ,
    **refusals(
        (READ_OPTIONS[field].name for field in _ENDS),
        "is for spark.read: a stream has no end; for what there is now use "
        "trigger(availableNow=True)",
    ),
    **refusals(
        (o.name for o in READ_OPTIONS.values() if not o.tables >= MESSAGES),
        "is for tables, which spark.read gives",
    ),
}


def parse_stream(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming read; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    paths, suffix = named_paths(own)
    for table in (suffix, own.pop("table", None)):
        if table is not None and table.strip().lower() != "messages":
            raise InvalidOptionError(
                "table", table, "a stream reads messages; read tables by spark.read"
            )
    values, given = parse(own, _DECLARED, _REFUSED)
    mine = {field: values.pop(field) for field in OWN_OPTIONS}
    # What a stream has not is as a batch read has it when nobody says otherwise.
    rest = {f: getattr(_DEFAULTS, f) for f in READ_OPTIONS if f not in values}
    found = ReadOptions(paths=paths, given=given, **rest, **values)
    check_together(found)
    _check_limits(mine)
    return StreamOptions(read=found, **mine)


_DEFAULTS: Final = parse_read({})


def _check_limits(mine: Mapping[str, int | None]) -> None:
    least, most = mine["min_offsets"], mine["max_offsets"]
    if least is not None and most is not None and least > most:
        raise InvalidOptionError(
            "minOffsetsPerTrigger", least, f"is more than maxOffsetsPerTrigger={most}"
        )


def names_stream(options: Mapping[str, str]) -> bool:
    """Tell whether an option is set that only a stream has."""
    return not {name.lower() for name in STREAM_OPTIONS}.isdisjoint(own_options(options))

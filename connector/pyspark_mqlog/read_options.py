"""The options of reads, each declared once: name, grammar, tables that it is for, default.

The fields of ReadOptions are the options of a batch read; a streaming read has most of them and
those of StreamOptions.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar, store_paths
from mqstore.options.option import Option, any_text, declared, one_of
from mqstore.read.admission import Admission
from mqstore.read.tags import parse_tags

MESSAGES: Final = frozenset({"messages"})
TABLES: Final = (
    "messages",
    "backlog",
    "lagcompare",
    "queues",
    "topics",
    "offsets",
    "tags",
    "scheduled",
    "halfmessages",
    "retries",
    "commits",
    "files",
    "index",
    "verify",
)
BACKLOG: Final = frozenset({"backlog"})
GROUPS: Final = frozenset({"backlog", "lagcompare", "retries"})
SUBSCRIPTIONS: Final = frozenset({"backlog", "lagcompare"})
KEYS: Final = frozenset({"messages", "index"})
RANGES: Final = frozenset({"messages", "tags"})
TIMES: Final = RANGES | {"scheduled", "retries", "index"}
ANY_TABLE: Final = frozenset(TABLES)
TOPICS: Final = ANY_TABLE - {"commits", "files", "verify"}
QUEUES: Final = TOPICS - {"retries", "index"}
MAX_BATCH_ROWS: Final = 1_000_000
# A column of a batch must stay below 2 GiB: the bodies stored plain, the decompressed ones and
# one more body.
MAX_BATCH_BYTES: Final = 256 << 20
MAX_BODY_BYTES: Final = 1 << 30
MAX_PARTITIONS: Final = 100_000


def _regex(name: str, text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        raise InvalidOptionError(name, text, f"is no regular expression: {error}") from None
    return text


def _folders(name: str, text: str) -> tuple[str, ...]:
    return tuple(store_paths.absolute(name, folder) for folder in grammar.names(name, text))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _tags(name: str, text: str) -> str:
    parse_tags(text, option=name)
    return text


def _timestamp(name: str, text: str) -> int:
    return grammar.timestamp(name, text, now_ms=_now_ms())


def _timestamps(name: str, text: str) -> dict[grammar.QueueKey, int]:
    return grammar.timestamps(name, text, now_ms=_now_ms())


@dataclass(frozen=True, slots=True)
class ReadOption(Option):
    """An option of reads, and the tables that it is for."""

    tables: frozenset[str] = MESSAGES


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Where queues start or end: a word, the last ``last_count``, or a position for each.

    ``word`` is grammar.EARLIEST or grammar.LATEST and holds for queues that ``each`` does not
    name, unless ``last_count`` is set.
    """

    word: int
    last_count: int | None = None
    each: Mapping[grammar.QueueKey, int] | None = None


def _starting_offsets(name: str, text: str) -> QueueRange:
    found = queue_range(name, text, grammar.EARLIEST)
    if grammar.LATEST in (found.word, *(found.each or {}).values()):
        raise InvalidOptionError(
            name,
            text,
            "a batch read cannot start at latest, there is nothing after it (spark.readStream "
            "can): use earliest, -N for the last N of each queue, or offsets",
        )
    return found


def _ending_offsets(name: str, text: str) -> QueueRange:
    found = queue_range(name, text, grammar.LATEST)
    if grammar.EARLIEST in (found.word, *(found.each or {}).values()):
        raise InvalidOptionError(
            name, text, "a read cannot end at earliest, there is nothing before it: use latest"
        )
    return found


def queue_range(name: str, text: str, otherwise: int) -> QueueRange:
    """Return the range of ``text``; ``otherwise`` is the word for queues that its JSON omits."""
    stripped = text.strip().lower()
    words = {"earliest": grammar.EARLIEST, "latest": grammar.LATEST}
    if stripped in words:
        return QueueRange(words[stripped])
    if re.fullmatch(r"-[1-9][0-9]{0,17}", stripped):
        return QueueRange(otherwise, last_count=-int(stripped))
    if not stripped.startswith("{"):
        raise InvalidOptionError(
            name,
            text,
            "must be earliest, latest, -N for the last N of each queue, or JSON such as "
            '{"TopicA":{"0":23,"1":-2}} (-2 earliest, -1 latest)',
        )
    return QueueRange(otherwise, each=grammar.positions(name, text))


_batch_bytes = partial(grammar.size, high=MAX_BATCH_BYTES)
_body_bytes = partial(grammar.size, high=MAX_BODY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a batch read.

    ``paths`` are as typed, without ``#table``; ``given`` has those that the user set, as typed.
    """

    paths: tuple[str, ...]
    given: Mapping[str, str]
    broker_names: Annotated[
        tuple[str, ...] | None, ReadOption("brokerName", grammar.names, tables=ANY_TABLE)
    ] = None
    table: Annotated[str, ReadOption("table", one_of(*TABLES), tables=ANY_TABLE)] = "messages"
    subscribe: Annotated[
        tuple[str, ...] | None, ReadOption("subscribe", grammar.names, tables=TOPICS)
    ] = None
    subscribe_pattern: Annotated[
        str | None, ReadOption("subscribePattern", _regex, tables=TOPICS)
    ] = None
    assign: Annotated[
        Mapping[str, tuple[int, ...]] | None, ReadOption("assign", grammar.queues, tables=QUEUES)
    ] = None
    commit_log: Annotated[
        tuple[str, ...] | None, ReadOption("storePathCommitLog", _folders, tables=ANY_TABLE)
    ] = None
    include_system_topics: Annotated[
        bool, ReadOption("includeSystemTopics", grammar.boolean, tables=TOPICS)
    ] = False
    columns: Annotated[str, ReadOption("columns", any_text, tables=ANY_TABLE)] = "standard"
    starting_offsets: Annotated[
        QueueRange, ReadOption("startingOffsets", _starting_offsets, tables=RANGES)
    ] = QueueRange(grammar.EARLIEST)
    ending_offsets: Annotated[
        QueueRange, ReadOption("endingOffsets", _ending_offsets, tables=RANGES)
    ] = QueueRange(grammar.LATEST)
    starting_timestamp: Annotated[
        int | None, ReadOption("startingTimestamp", _timestamp, tables=TIMES)
    ] = None
    ending_timestamp: Annotated[
        int | None, ReadOption("endingTimestamp", _timestamp, tables=TIMES)
    ] = None
    starting_by_timestamp: Annotated[
        Mapping[grammar.QueueKey, int] | None,
        ReadOption("startingOffsetsByTimestamp", _timestamps, tables=RANGES),
    ] = None
    ending_by_timestamp: Annotated[
        Mapping[grammar.QueueKey, int] | None,
        ReadOption("endingOffsetsByTimestamp", _timestamps, tables=RANGES),
    ] = None
    strategy: Annotated[
        str,
        ReadOption("startingOffsetsByTimestampStrategy", one_of("error", "latest"), tables=RANGES),
    ] = "error"
    starting_group: Annotated[str | None, ReadOption("startingGroup", any_text, tables=RANGES)] = (
        None
    )
    tags: Annotated[str, ReadOption("tags", _tags, alias="subExpression", tables=RANGES)] = "*"
    keys: Annotated[tuple[str, ...] | None, ReadOption("keys", grammar.names, tables=KEYS)] = None
    msg_ids: Annotated[tuple[str, ...] | None, ReadOption("msgIds", grammar.names)] = None
    fail_on_data_loss: Annotated[
        bool, ReadOption("failOnDataLoss", grammar.boolean, tables=RANGES)
    ] = True
    on_corrupt: Annotated[
        str, ReadOption("onCorrupt", one_of("fail", "skip", "rescue"), tables=ANY_TABLE)
    ] = "fail"
    verify_crc: Annotated[bool, ReadOption("verifyCrc", grammar.boolean)] = True
    decompress: Annotated[bool, ReadOption("decompress", grammar.boolean)] = True
    max_decompressed_bytes: Annotated[int, ReadOption("maxDecompressedBytes", _body_bytes)] = (
        64 << 20
    )
    read_mode: Annotated[str, ReadOption("readMode", one_of("mmap", "pread"))] = "pread"
    min_partitions: Annotated[
        int | None, ReadOption("minPartitions", partial(grammar.count, high=MAX_PARTITIONS))
    ] = None
    max_records_per_partition: Annotated[
        int | None, ReadOption("maxRecordsPerPartition", grammar.count)
    ] = None
    max_bytes_per_partition: Annotated[int, ReadOption("maxBytesPerPartition", grammar.size)] = (
        128 << 20
    )
    batch_rows: Annotated[
        int, ReadOption("batchRows", partial(grammar.count, high=MAX_BATCH_ROWS))
    ] = 50_000
    batch_bytes: Annotated[int, ReadOption("batchBytes", _batch_bytes)] = 8 << 20
    groups: Annotated[str | None, ReadOption("groups", any_text, tables=GROUPS)] = None
    subscriptions: Annotated[
        Mapping[str, Mapping[str, str]],
        ReadOption("subscriptions", grammar.expressions, tables=SUBSCRIPTIONS),
    ] = field(default_factory=dict)
    lag_mode: Annotated[
        str, ReadOption("lagMode", one_of("exact", "hash", "offset"), tables=BACKLOG)
    ] = "exact"
    by_tag: Annotated[bool, ReadOption("byTag", grammar.boolean, tables=BACKLOG)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a streaming read; ``read`` has those that a batch read has too."""

    read: ReadOptions
    max_offsets: Annotated[int | None, Option("maxOffsetsPerTrigger", grammar.count)] = None
    min_offsets: Annotated[int | None, Option("minOffsetsPerTrigger", grammar.count)] = None
    max_bytes: Annotated[int | None, Option("maxBytesPerTrigger", grammar.size)] = None
    max_delay_ms: Annotated[int, Option("maxTriggerDelay", grammar.duration)] = 15 * 60_000
    commit_group: Annotated[str | None, Option("commitGroup", any_text)] = None

    @property
    def admission(self) -> Admission:
        """The limits of a micro-batch."""
        return Admission(self.max_offsets, self.max_bytes, self.min_offsets, self.max_delay_ms)

    @property
    def has_fixed_start(self) -> bool:
        """Tell whether a start that is computed again later is the same one."""
        read, start = self.read, self.read.starting_offsets
        if {"startingTimestamp", "startingOffsetsByTimestamp", "startingGroup"} & set(read.given):
            return False
        return start.last_count is None and start.word == grammar.EARLIEST


READ_OPTIONS: Final = {
    name: option for name, option in declared(ReadOptions).items() if isinstance(option, ReadOption)
}
STREAM_OPTIONS: Final = declared(StreamOptions)

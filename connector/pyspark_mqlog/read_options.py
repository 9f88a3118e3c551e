"""The options of reads, each declared once: name, grammar, tables that it is for, default.

The fields of ReadOptions are the options of a batch read; a streaming read has most of them and
those of StreamOptions.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar, store_paths
from mqstore.options.option import any_text, one_of, option, options_of
from mqstore.read.admission import Admission
from mqstore.read.log_directory import BY_LOG_WORD, CACHE_DIR, QUEUES
from mqstore.read.plan import MAX_PARTITION_BYTES
from mqstore.read.sql.filter import parse_sql
from mqstore.read.tags import check_tags
from mqstore.tables.places import Places

MESSAGES: Final = frozenset({"messages"})
TABLES: Final = (
    "messages",
    "backlog",
    "lagcompare",
    "queues",
    "topics",
    "offsets",
    "groups",
    "subscriptions",
    "brokers",
    "tags",
    "scheduled",
    "halfmessages",
    "retries",
    "commits",
    "files",
    "index",
    "verify",
)
OF_FILES: Final = {
    "commits": "commits are kept beside a store that mqlog writes, and not by a broker",
    "files": "a broker does not report its files",
    "index": "a broker lists no entries of its IndexFiles, and nothing else tells their files and "
    "numbers; to find messages by key, read the table messages with the option keys, and its "
    "columns keys, storeTimestamp and physicalOffset",
    "verify": "rules of files cannot be checked from a running broker",
}
"""The tables that only the directory of a store has, with the reason."""
BACKLOG: Final = frozenset({"backlog"})
GROUPS: Final = frozenset({"backlog", "lagcompare", "retries", "groups", "subscriptions"})
SUBSCRIPTIONS: Final = frozenset({"backlog", "lagcompare"})
WITH_KEYS: Final = frozenset({"messages", "index"})
RANGES: Final = frozenset({"messages", "tags"})
TIMES: Final = RANGES | {"scheduled", "retries", "index"}
ANY_TABLE: Final = frozenset(TABLES)
WITH_TOPIC: Final = ANY_TABLE - {"commits", "files", "verify", "groups", "brokers"}
WITH_QUEUE: Final = WITH_TOPIC - {"retries", "index", "subscriptions"}
FROM_LOG: Final = TIMES - {"index"} | {"backlog", "queues", "topics", "offsets", "halfmessages"}
"""The tables that can be read by the CommitLog alone."""
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
    check_tags(text, option=name)
    return text


def _sql(name: str, text: str) -> str:
    parse_sql(text, option=name)
    return text


def _timestamp(name: str, text: str) -> int:
    return grammar.timestamp(name, text, now_ms=_now_ms())


def _timestamps(name: str, text: str) -> dict[grammar.QueueKey, int]:
    return grammar.timestamps(name, text, now_ms=_now_ms())


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


FROM_EARLIEST: Final = QueueRange(grammar.EARLIEST)
TO_LATEST: Final = QueueRange(grammar.LATEST)
_of_read = partial(option, tables=MESSAGES)
_batch_bytes = partial(grammar.size, high=MAX_BATCH_BYTES)
_body_bytes = partial(grammar.size, high=MAX_BODY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a batch read.

    ``places`` are those of the paths, without ``#table``; ``given`` has the options that the user
    set, as typed, but ``***`` for a secret.
    """

    places: Places
    given: Mapping[str, str]
    broker_names: tuple[str, ...] | None = _of_read("brokerName", grammar.names, tables=ANY_TABLE)
    table: str = _of_read("table", one_of(*TABLES), "messages", tables=ANY_TABLE)
    subscribe: tuple[str, ...] | None = _of_read("subscribe", grammar.names, tables=WITH_TOPIC)
    subscribe_pattern: str | None = _of_read("subscribePattern", _regex, tables=WITH_TOPIC)
    assign: Mapping[str, tuple[int, ...]] | None = _of_read(
        "assign", grammar.queues, tables=WITH_QUEUE
    )
    commit_log: tuple[str, ...] | None = _of_read("storePathCommitLog", _folders, tables=ANY_TABLE)
    queues: str = _of_read(QUEUES, one_of("files", BY_LOG_WORD), "files", tables=FROM_LOG)
    cache_dir: str | None = _of_read(CACHE_DIR, store_paths.absolute, tables=FROM_LOG)
    include_system_topics: bool = _of_read(
        "includeSystemTopics", grammar.boolean, False, tables=WITH_TOPIC
    )
    columns: str = _of_read("columns", any_text, "standard", tables=ANY_TABLE)
    starting_offsets: QueueRange = _of_read(  # noqa: RUF009 - a field, and QueueRange is frozen
        "startingOffsets", _starting_offsets, FROM_EARLIEST, tables=RANGES
    )
    ending_offsets: QueueRange = _of_read(  # noqa: RUF009 - a field, and QueueRange is frozen
        "endingOffsets", _ending_offsets, TO_LATEST, tables=RANGES
    )
    starting_timestamp: int | None = _of_read("startingTimestamp", _timestamp, tables=TIMES)
    ending_timestamp: int | None = _of_read("endingTimestamp", _timestamp, tables=TIMES)
    starting_by_timestamp: Mapping[grammar.QueueKey, int] | None = _of_read(
        "startingOffsetsByTimestamp", _timestamps, tables=RANGES
    )
    ending_by_timestamp: Mapping[grammar.QueueKey, int] | None = _of_read(
        "endingOffsetsByTimestamp", _timestamps, tables=RANGES
    )
    strategy: str = _of_read(
        "startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error", tables=RANGES
    )
    starting_group: str | None = _of_read("startingGroup", any_text, tables=RANGES)
    tags: str = _of_read("tags", _tags, "*", alias="subExpression", tables=RANGES)
    sql: str | None = _of_read("sql", _sql)
    keys: tuple[str, ...] | None = _of_read("keys", grammar.names, tables=WITH_KEYS)
    msg_ids: tuple[str, ...] | None = _of_read("msgIds", grammar.names)
    fail_on_data_loss: bool = _of_read("failOnDataLoss", grammar.boolean, True, tables=RANGES)
    on_corrupt: str = _of_read(
        "onCorrupt", one_of("fail", "skip", "rescue"), "fail", tables=ANY_TABLE
    )
    verify_crc: bool = _of_read("verifyCrc", grammar.boolean, True)
    decompress: bool = _of_read("decompress", grammar.boolean, True)
    max_decompressed_bytes: int = _of_read("maxDecompressedBytes", _body_bytes, 64 << 20)
    read_mode: str = _of_read("readMode", one_of("mmap", "pread"), "pread")
    min_partitions: int | None = _of_read(
        "minPartitions", partial(grammar.count, high=MAX_PARTITIONS)
    )
    max_records_per_partition: int | None = _of_read("maxRecordsPerPartition", grammar.count)
    max_bytes_per_partition: int = _of_read(
        "maxBytesPerPartition", grammar.size, MAX_PARTITION_BYTES
    )
    batch_rows: int = _of_read("batchRows", partial(grammar.count, high=MAX_BATCH_ROWS), 50_000)
    batch_bytes: int = _of_read("batchBytes", _batch_bytes, 8 << 20)
    groups: str | None = _of_read("groups", any_text, tables=GROUPS)
    subscriptions: Mapping[str, Mapping[str, str]] | None = _of_read(
        "subscriptions", grammar.expressions, tables=SUBSCRIPTIONS
    )
    lag_mode: str = _of_read("lagMode", one_of("exact", "hash", "offset"), "exact", tables=BACKLOG)
    by_tag: bool = _of_read("byTag", grammar.boolean, False, tables=BACKLOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a streaming read; ``read`` has those that a batch read has too."""

    read: ReadOptions
    max_offsets: int | None = option("maxOffsetsPerTrigger", grammar.count)
    min_offsets: int | None = option("minOffsetsPerTrigger", grammar.count)
    max_bytes: int | None = option("maxBytesPerTrigger", grammar.size)
    max_delay_ms: int = option("maxTriggerDelay", grammar.duration, 15 * 60_000)
    commit_group: str | None = option("commitGroup", any_text)

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


READ_OPTIONS: Final = options_of(ReadOptions)
STREAM_OPTIONS: Final = options_of(StreamOptions)

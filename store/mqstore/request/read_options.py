"""The options of reads, each declared once: name, grammar, default. Tables declare which they take.

The fields of ReadOptions are the options of a batch read; a streaming read has most of them and
those of StreamOptions.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mqstore.audit.query import AUDIT_OPTIONS, AuditOptions
from mqstore.audit.table_addresses import TableAddress
from mqstore.backlog.request import EXACT, LAG_MODES, LATE_AFTER_MS
from mqstore.errors import InvalidOptionError
from mqstore.files.queue.tier_queue import STORE_PATH_TIERED
from mqstore.options import grammar, store_paths
from mqstore.options.option import any_text, one_of, option, options_of
from mqstore.read.admission import Admission
from mqstore.read.by_log import BY_LOG_WORD, CACHE_DIR, QUEUES, READ_UNCOMMITTED
from mqstore.read.plan import MAX_PARTITION_BYTES
from mqstore.read.retention import RetentionPolicy, policy_of_file
from mqstore.read.settings import ScanOptions
from mqstore.request.places import Places
from mqstore.request.tier_option import tier_path
from mqstore.tables.catalog import CATALOG

MESSAGES: Final = "messages"
TABLES: Final = (MESSAGES, *CATALOG)
_OF_TABLES: Final = frozenset({
    "groups", "subscriptions", "lagMode", "byTag", "lateAfter", "traceTopic", "interval", "byQueue",
    "lookAgain", "fileReservedTime", "brokerConf", "samples", "against",
    *(one.name for one in AUDIT_OPTIONS.values()),
})  # fmt: skip
"""The options that a read of messages does not take."""
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


def _interval(name: str, text: str) -> int:
    found = grammar.duration(name, text)
    if found < 1:
        raise InvalidOptionError(name, text, "must be at least 1 ms")
    return found


FROM_EARLIEST: Final = QueueRange(grammar.EARLIEST)
TO_LATEST: Final = QueueRange(grammar.LATEST)
_partitions = partial(grammar.count, high=MAX_PARTITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ScanOptions):
    """The options of a batch read: which messages or which table, and those that a scan obeys.

    ``places`` are those of the paths, without ``#table``; ``given`` has the options that the user
    set, as typed, but ``***`` for a secret.
    """

    places: Places
    given: Mapping[str, str]
    broker_names: tuple[str, ...] | None = option("brokerName", grammar.names)
    table: str = option("table", one_of(*TABLES), MESSAGES)
    subscribe: tuple[str, ...] | None = option("subscribe", grammar.names)
    subscribe_pattern: str | None = option("subscribePattern", _regex)
    assign: Mapping[str, tuple[int, ...]] | None = option("assign", grammar.queues)
    commit_log: tuple[str, ...] | None = option("storePathCommitLog", _folders)
    tier: str | None = option(STORE_PATH_TIERED, tier_path)
    queues: str = option(QUEUES, one_of("files", BY_LOG_WORD), "files")
    cache_dir: str | None = option(CACHE_DIR, store_paths.absolute)
    read_uncommitted: bool = option(READ_UNCOMMITTED, grammar.boolean, False)
    include_system_topics: bool = option("includeSystemTopics", grammar.boolean, False)
    columns: str = option("columns", any_text, "standard")
    starting_offsets: QueueRange = option("startingOffsets", _starting_offsets, FROM_EARLIEST)
    ending_offsets: QueueRange = option("endingOffsets", _ending_offsets, TO_LATEST)
    starting_timestamp: int | None = option("startingTimestamp", _timestamp)
    ending_timestamp: int | None = option("endingTimestamp", _timestamp)
    starting_by_timestamp: Mapping[grammar.QueueKey, int] | None = option(
        "startingOffsetsByTimestamp", _timestamps
    )
    ending_by_timestamp: Mapping[grammar.QueueKey, int] | None = option(
        "endingOffsetsByTimestamp", _timestamps
    )
    strategy: str = option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error")
    starting_group: str | None = option("startingGroup", any_text)
    min_partitions: int | None = option("minPartitions", _partitions)
    max_records_per_partition: int | None = option("maxRecordsPerPartition", grammar.count)
    max_bytes_per_partition: int = option("maxBytesPerPartition", grammar.size, MAX_PARTITION_BYTES)
    groups: str | None = option("groups", any_text)
    subscriptions: Mapping[str, Mapping[str, str]] | None = option(
        "subscriptions", grammar.expressions
    )
    lag_mode: str = option("lagMode", one_of(*LAG_MODES), EXACT)
    by_tag: bool = option("byTag", grammar.boolean, False)
    trace_topic: str | None = option("traceTopic", any_text)
    by_queue: bool = option("byQueue", grammar.boolean, False)
    interval_ms: int | None = option("interval", _interval)
    late_after_ms: int = option("lateAfter", grammar.duration, LATE_AFTER_MS)
    look_again_ms: int | None = option("lookAgain", grammar.milliseconds)
    kept_ms: int | None = option("fileReservedTime", grammar.duration)
    retention: RetentionPolicy | None = option("brokerConf", policy_of_file)
    samples: str | None = option("samples", store_paths.absolute)
    against: str | None = option("against", any_text)
    other: Places | TableAddress | None = None
    """The place that ``against`` names."""
    audit: AuditOptions = field(default_factory=AuditOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(Admission):
    """The options of a streaming read; ``read`` has those that a batch read has too."""

    read: ReadOptions
    commit_group: str | None = option("commitGroup", any_text)

    @property
    def has_fixed_start(self) -> bool:
        """Tell whether a start that is computed again later is the same one."""
        read, start = self.read, self.read.starting_offsets
        if {"startingTimestamp", "startingOffsetsByTimestamp", "startingGroup"} & set(read.given):
            return False
        return start.last_count is None and start.word == grammar.EARLIEST


_OF_SCANS: Final = options_of(ScanOptions)
READ_OPTIONS: Final = {
    **{field: one for field, one in options_of(ReadOptions).items() if field not in _OF_SCANS},
    **AUDIT_OPTIONS,
    **_OF_SCANS,
}
"""The options by field: what is read, then how."""
STREAM_OPTIONS: Final = options_of(StreamOptions)


def takes(table: str, option: str) -> bool:
    """Tell whether a value of the option ``table`` takes an option, by its name."""
    return option not in _OF_TABLES if table == MESSAGES else CATALOG[table].takes(option)


def takers(option: str) -> list[str]:
    """Return the values of the option ``table`` that take an option, ``messages`` first."""
    return [table for table in TABLES if takes(table, option)]

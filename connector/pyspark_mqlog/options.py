"""Options: each declared once, parsed once on the driver; nobody else sees a string map.

A field of ReadOptions is an option, and so is an entry of WRITE_OPTIONS. An ``Option`` carries
the name as the user's guide spells it, the parser, the default as text (parsed like any other)
and which tables it is for. Spark hands keys over in lower case, so case is not significant.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateBatchOptions for what is
refused together.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar, store_paths
from mqstore.read.tags import parse_tags
from mqstore.stage.job import WriteSettings
from pyspark_mqlog.option import (
    Option,
    any_text,
    declared,
    named_paths,
    one_of,
    own_options,
    parse,
    refusals,
)
from pyspark_mqlog.write_options import TRANSACTION, WRITE_OPTIONS, check_transaction

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
# A column of a batch must stay below 2 GiB: what is stored plain, what is decompressed of the
# rest, and one more body.
MAX_BATCH_BYTES: Final = 256 << 20
MAX_BODY_BYTES: Final = 1 << 30
MAX_PARTITIONS: Final = 100_000

STREAM_OPTIONS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
)
_SHOWN_ROOTS: Final = 5
_MISSING_WRITE_PATH: Final = (
    "a write needs the path of one store: "
    'df.write.format("mqlog").mode("append").option("topic", "…").save("/data/broker-a/store")'
)


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
class QueueRange:
    """Where queues start or end: the last ``last_count``, a word, or a position each.

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
            "can): say earliest, -N for the last N of each queue, or offsets",
        )
    return found


def _ending_offsets(name: str, text: str) -> QueueRange:
    found = queue_range(name, text, grammar.LATEST)
    if grammar.EARLIEST in (found.word, *(found.each or {}).values()):
        raise InvalidOptionError(
            name, text, "a read cannot end at earliest, there is nothing before it: say latest"
        )
    return found


def queue_range(name: str, text: str, otherwise: int) -> QueueRange:
    """Return what the text says; ``otherwise`` is for queues that its JSON does not name."""
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
        tuple[str, ...] | None, Option("brokerName", grammar.names, tables=ANY_TABLE)
    ]
    table: Annotated[str, Option("table", one_of(*TABLES), "messages", tables=ANY_TABLE)]
    subscribe: Annotated[tuple[str, ...] | None, Option("subscribe", grammar.names, tables=TOPICS)]
    subscribe_pattern: Annotated[str | None, Option("subscribePattern", _regex, tables=TOPICS)]
    assign: Annotated[
        Mapping[str, tuple[int, ...]] | None, Option("assign", grammar.queues, tables=QUEUES)
    ]
    commit_log: Annotated[
        tuple[str, ...] | None, Option("storePathCommitLog", _folders, tables=ANY_TABLE)
    ]
    include_system_topics: Annotated[
        bool, Option("includeSystemTopics", grammar.boolean, "false", tables=TOPICS)
    ]
    columns: Annotated[str, Option("columns", any_text, "standard", tables=ANY_TABLE)]
    starting_offsets: Annotated[
        QueueRange, Option("startingOffsets", _starting_offsets, "earliest", tables=RANGES)
    ]
    ending_offsets: Annotated[
        QueueRange, Option("endingOffsets", _ending_offsets, "latest", tables=RANGES)
    ]
    starting_timestamp: Annotated[int | None, Option("startingTimestamp", _timestamp, tables=TIMES)]
    ending_timestamp: Annotated[int | None, Option("endingTimestamp", _timestamp, tables=TIMES)]
    starting_by_timestamp: Annotated[
        Mapping[grammar.QueueKey, int] | None,
        Option("startingOffsetsByTimestamp", _timestamps, tables=RANGES),
    ]
    ending_by_timestamp: Annotated[
        Mapping[grammar.QueueKey, int] | None,
        Option("endingOffsetsByTimestamp", _timestamps, tables=RANGES),
    ]
    strategy: Annotated[
        str,
        Option(
            "startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error", tables=RANGES
        ),
    ]
    starting_group: Annotated[str | None, Option("startingGroup", any_text, tables=RANGES)]
    tags: Annotated[str, Option("tags", _tags, "*", alias="subExpression", tables=RANGES)]
    keys: Annotated[tuple[str, ...] | None, Option("keys", grammar.names, tables=KEYS)]
    msg_ids: Annotated[tuple[str, ...] | None, Option("msgIds", grammar.names)]
    fail_on_data_loss: Annotated[
        bool, Option("failOnDataLoss", grammar.boolean, "true", tables=RANGES)
    ]
    on_corrupt: Annotated[
        str, Option("onCorrupt", one_of("fail", "skip", "rescue"), "fail", tables=ANY_TABLE)
    ]
    verify_crc: Annotated[bool, Option("verifyCrc", grammar.boolean, "true")]
    decompress: Annotated[bool, Option("decompress", grammar.boolean, "true")]
    max_decompressed_bytes: Annotated[int, Option("maxDecompressedBytes", _body_bytes, "64m")]
    read_mode: Annotated[str, Option("readMode", one_of("mmap", "pread"), "pread")]
    min_partitions: Annotated[
        int | None, Option("minPartitions", partial(grammar.count, high=MAX_PARTITIONS))
    ]
    max_records_per_partition: Annotated[
        int | None, Option("maxRecordsPerPartition", grammar.count)
    ]
    max_bytes_per_partition: Annotated[int, Option("maxBytesPerPartition", grammar.size, "128m")]
    batch_rows: Annotated[
        int, Option("batchRows", partial(grammar.count, high=MAX_BATCH_ROWS), "50000")
    ]
    batch_bytes: Annotated[int, Option("batchBytes", _batch_bytes, "8m")]
    groups: Annotated[str | None, Option("groups", any_text, tables=GROUPS)]
    subscriptions: Annotated[
        Mapping[str, Mapping[str, str]],
        Option("subscriptions", grammar.expressions, "{}", tables=SUBSCRIPTIONS),
    ]
    lag_mode: Annotated[
        str, Option("lagMode", one_of("exact", "hash", "offset"), "exact", tables=BACKLOG)
    ]
    by_tag: Annotated[bool, Option("byTag", grammar.boolean, "false", tables=BACKLOG)]


READ_OPTIONS: Final = declared(ReadOptions)


REFUSED_IN_READ: Final = (
    refusals(STREAM_OPTIONS, "is for streaming reads: remove it, or use spark.readStream")
    | refusals((o.name for o in WRITE_OPTIONS.values()), "is an option of writes")
    | refusals(["topic"], "is an option of writes; in a read say subscribe")
    | refusals(["checkpointLocation", "queryName"], "is for writeStream: a read has none")
)
_REFUSED_IN_WRITE: Final = (
    refusals(STREAM_OPTIONS, "is an option of streaming reads")
    | refusals((o.name for o in READ_OPTIONS.values()), "is an option of reads")
    | refusals(["subscribe"], "is an option of reads; in a write say topic")
)
STREAM_WRITE_OPTIONS: Final = {
    field: option for field, option in WRITE_OPTIONS.items() if field not in TRANSACTION
}
# Queries that write to one store wait for each other's commits: none should end for that.
STREAM_WRITE_OPTIONS["lock_timeout_ms"] = replace(WRITE_OPTIONS["lock_timeout_ms"], default="30s")
_REFUSED_IN_STREAM_WRITE: Final = _REFUSED_IN_WRITE | refusals(
    (WRITE_OPTIONS[field].name for field in TRANSACTION),
    "is for df.write: a stream is exactly once without it, its batches are known by the query's "
    "id and their number (in foreachBatch say txnAppId and the batch's number as txnVersion)",
)


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch read; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    paths, suffix = named_paths(own)
    if suffix is not None:
        if own.get("table", suffix).strip().lower() != suffix.lower():
            raise InvalidOptionError("table", own["table"], f"the path says #{suffix}")
        own["table"] = suffix
    values, given = parse(own, READ_OPTIONS, REFUSED_IN_READ)
    found = ReadOptions(paths=paths, given=given, **values)
    check_together(found)
    return found


def parse_write(options: Mapping[str, str]) -> WriteSettings:
    """Return the settings of a batch write; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    root = _write_root(own)
    values, given = parse(own, WRITE_OPTIONS, _REFUSED_IN_WRITE)
    check_transaction(given)
    return WriteSettings(root=root, **values)


def parse_stream_write(options: Mapping[str, str]) -> WriteSettings:
    """Return the settings of a streaming write; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    root = _write_root(own)
    values, _ = parse(own, STREAM_WRITE_OPTIONS, _REFUSED_IN_STREAM_WRITE)
    return WriteSettings(root=root, **values)


def stream_name(options: Mapping[str, str]) -> str | None:
    """Return what tells a streaming write from others, through restarts too, if anything does."""
    own = own_options(options)
    return own.get("checkpointlocation") or own.get("queryname")


def check_together(options: ReadOptions) -> None:
    """Refuse options that contradict each other, or are for another table."""
    for option in READ_OPTIONS.values():
        if option.name in options.given and options.table not in option.tables:
            raise InvalidOptionError(
                option.name,
                options.given[option.name],
                f"is for table={'|'.join(sorted(option.tables))}, not {options.table}",
            )
    if options.table == "index" and options.keys is None:
        for name in ("subscribe", "subscribePattern", "includeSystemTopics"):
            if name in options.given:
                expected = "needs keys here: an entry has the hash of topic#key, and no topic"
                raise InvalidOptionError(name, options.given[name], expected)
    _only_one(options, "subscribe", "subscribePattern", "assign")
    for other in ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"):
        _only_one(options, "startingGroup", other)


def _only_one(options: ReadOptions, *names: str) -> None:
    given = [name for name in names if name in options.given]
    if len(given) > 1:
        others = " and ".join(given[1:])
        raise InvalidOptionError(given[0], options.given[given[0]], f"cannot stand with {others}")


def _write_root(own: Mapping[str, str]) -> str:
    """Return the one directory that a write goes to."""
    paths, table = named_paths(own)
    if table is not None:
        raise InvalidOptionError("path", own["path"], "tables are read; write to the store's path")
    if len(paths) != 1:
        raise InvalidOptionError("path", ", ".join(paths), _MISSING_WRITE_PATH)
    roots = store_paths.expand(paths)
    if len(roots) > 1:
        named = ", ".join(map(shown, roots[:_SHOWN_ROOTS]))
        more = ", …" if len(roots) > _SHOWN_ROOTS else ""
        told = f"a write goes to one store, and this matches {len(roots)}: {named}{more}"
        raise InvalidOptionError("path", paths[0], told)
    return roots[0]


def is_create_table(options: Mapping[str, str]) -> bool:
    """Tell whether Spark asks for the schema of a table it creates, which names no store yet."""
    return "provider" in options

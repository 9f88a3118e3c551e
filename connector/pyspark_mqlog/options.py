"""The options of each operation: parsed once on the driver, into values that tasks can use.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateBatchOptions and
#validateStreamOptions for what is refused together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mqstore.deliver.settings import AT_LEAST_ONCE, EXACTLY_ONCE, SEND_OPTIONS, SendSettings
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar, store_paths
from mqstore.options.option import Option
from mqstore.options.texts import parse, refusals
from mqstore.request.places import (
    LIVE,
    OBJECTS,
    OF_READS,
    names_cluster,
    write_target,
)
from mqstore.request.read import IN_READ, check_together, named_places, read_options, without_places
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
from mqstore.write.stage.settings import WRITE_OPTIONS, WriteSettings
from pyspark_mqlog.option_map import named_paths, own_options, texts_of

_SHOWN_ROOTS: Final = 5
_MISSING_WRITE_PATH: Final = (
    "a write needs the path of one store: "
    'df.write.format("mqlog").mode("append").option("topic", "…").save("/data/broker-a/store")'
)
_ENDS: Final = ("ending_offsets", "ending_timestamp", "ending_by_timestamp")
_TRANSACTION: Final = ("txn_app_id", "txn_version")
_READING_GROUP: Final = "consumerGroup"  # In whose name exactly once reads what it wrote.
_STREAM_LOCK_TIMEOUT_MS: Final = 30_000  # Queries that write to one store wait for each other.


def _stream_start(name: str, text: str) -> QueueRange:
    return queue_range(name, text, grammar.LATEST)


def _names(options: Iterable[Option]) -> list[str]:
    return [option.name for option in options]


_OF_LOG_READS: Final = ("queues", "cache_dir")
_OF_MESSAGES: Final = {f: o for f, o in READ_OPTIONS.items() if MESSAGES in takers(o.name)}
_IN_STREAM: Final[dict[str, Option]] = {
    **{f: o for f, o in _OF_MESSAGES.items() if f not in {"table", *_ENDS, *_OF_LOG_READS}},
    "starting_offsets": replace(READ_OPTIONS["starting_offsets"], parse=_stream_start),
    **STREAM_OPTIONS,
    **LIVE,
    **OBJECTS,
}
_IN_STREAM_WRITE: Final = {f: o for f, o in WRITE_OPTIONS.items() if f not in _TRANSACTION}

_REFUSED_IN_READ: Final = (
    refusals(
        _names(STREAM_OPTIONS.values()),
        "is for streaming reads: remove it, or use spark.readStream",
    )
    | refusals(_names(WRITE_OPTIONS.values()), "is an option of writes")
    | refusals(["topic"], "is an option of writes; in a read use subscribe")
    | refusals(["checkpointLocation", "queryName"], "is for writeStream: a read has none")
)
_REFUSED_IN_STREAM: Final = (
    _REFUSED_IN_READ
    | refusals(
        (READ_OPTIONS[field].name for field in _ENDS),
        "is for spark.read: a stream has no end; to stop at the messages stored now use "
        "trigger(availableNow=True)",
    )
    | refusals(
        (READ_OPTIONS[field].name for field in _OF_LOG_READS),
        "is for spark.read: a stream follows the ConsumeQueues that a broker appends to",
    )
    | refusals(
        _names(o for f, o in READ_OPTIONS.items() if f not in _OF_MESSAGES),
        "is for tables, which only spark.read has",
    )
)
_IN_SEND: Final = {**SEND_OPTIONS, **{f: o for f, o in LIVE.items() if o.name not in OF_READS}}
_OF_READS: Final = (
    refusals(_names(STREAM_OPTIONS.values()), "is an option of streaming reads")
    | refusals(_names(IN_READ.values()), "is an option of reads")
    | refusals(["subscribe"], "is an option of reads; in a write use topic")
)
_REFUSED_IN_WRITE: Final = _OF_READS | refusals(
    _names(_IN_SEND.values()), "is for clusters: save to rocketmq://HOST:9876/TOPIC"
)
_REFUSED_IN_SEND: Final = _OF_READS | refusals(
    _names(WRITE_OPTIONS.values()), "is for the directories of stores, and this writes to a cluster"
)
_REFUSED_BY_STREAMS: Final = refusals(
    (WRITE_OPTIONS[field].name for field in _TRANSACTION),
    "is for df.write: a stream is exactly once without it, by the query's id and the number of the "
    "batch (in foreachBatch use txnAppId, and the batch's number as txnVersion)",
)
_REFUSED_IN_STREAM_WRITE: Final = _REFUSED_IN_WRITE | _REFUSED_BY_STREAMS
_REFUSED_IN_STREAM_SEND: Final = _REFUSED_IN_SEND | _REFUSED_BY_STREAMS


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a batch read; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    paths, suffix = named_paths(own)
    if suffix is not None:
        if own.get("table", suffix).strip().lower() != suffix.lower():
            raise InvalidOptionError("table", own["table"], f"the path has #{suffix}")
        own["table"] = suffix
    return read_options(paths, texts_of(own, _REFUSED_IN_READ), _REFUSED_IN_READ)


def parse_stream(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a streaming read; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    paths, suffix = named_paths(own)
    for table in (suffix, own.pop("table", None)):
        if table is not None and table.strip().lower() != "messages":
            raise InvalidOptionError(
                "table", table, "a stream reads messages; read tables with spark.read"
            )
    values, given = parse(texts_of(own, _REFUSED_IN_STREAM), _IN_STREAM, _REFUSED_IN_STREAM)
    limits = {field: values.pop(field) for field in STREAM_OPTIONS if field in values}
    values.setdefault("starting_offsets", QueueRange(grammar.LATEST))
    read = ReadOptions(
        places=named_places(paths, own, given), given=given, **without_places(values)
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


def parse_write(options: Mapping[str, str]) -> WriteSettings | SendSettings:
    """Return the settings of a batch write; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    if names_cluster(named_paths(own)[0], own):
        return _parse_send(own, AT_LEAST_ONCE)
    root = _write_root(own)
    values, _ = parse(texts_of(own, _REFUSED_IN_WRITE), WRITE_OPTIONS, _REFUSED_IN_WRITE)
    return WriteSettings(root=root, **values)


def parse_stream_write(options: Mapping[str, str]) -> WriteSettings | SendSettings:
    """Return the settings of a streaming write; raises InvalidOptionError, touches no store."""
    own = own_options(options)
    if names_cluster(named_paths(own)[0], own):
        return _parse_send(own, EXACTLY_ONCE, _REFUSED_IN_STREAM_SEND)
    root = _write_root(own)
    values, _ = parse(
        texts_of(own, _REFUSED_IN_STREAM_WRITE), _IN_STREAM_WRITE, _REFUSED_IN_STREAM_WRITE
    )
    values.setdefault("lock_timeout_ms", _STREAM_LOCK_TIMEOUT_MS)
    return WriteSettings(root=root, **values)


def _parse_send(
    own: dict[str, str],
    delivery: str,
    refused: Mapping[str, tuple[str, str]] | None = None,
) -> SendSettings:
    """Return the settings of a write to a cluster, with that delivery where none is set."""
    paths, table = named_paths(own)
    if table is not None:
        raise InvalidOptionError("path", own["path"], "no table can be written: give the cluster")
    taken = {f: o for f, o in _IN_SEND.items() if refused is None or f not in _TRANSACTION}
    refused = _REFUSED_IN_SEND if refused is None else refused
    values, given = parse(texts_of(own, refused), taken, refused)
    live = {option.name for option in LIVE.values()}
    texts = {name: own[name.lower()] for name in given if name in live}
    cluster, topic = write_target(paths, texts)
    if topic and "topic" in values:
        expected = f"the path names the topic {topic}"
        raise InvalidOptionError("topic", values["topic"], expected)
    if topic:
        values["topic"] = topic
    values.setdefault("delivery", delivery)
    if _READING_GROUP in given and values["delivery"] != EXACTLY_ONCE:
        raise InvalidOptionError(
            _READING_GROUP, given[_READING_GROUP], "is for reads and delivery=exactlyOnce"
        )
    return SendSettings(cluster=cluster, **without_places(values))


def stream_name(options: Mapping[str, str]) -> str | None:
    """Return the name that a streaming write keeps through restarts, if its options give one."""
    own = own_options(options)
    return own.get("checkpointlocation") or own.get("queryname")


def names_stream(options: Mapping[str, str]) -> bool:
    """Tell whether an option is set that only a streaming read has."""
    return not {o.name.lower() for o in STREAM_OPTIONS.values()}.isdisjoint(own_options(options))


def is_create_table(options: Mapping[str, str]) -> bool:
    """Tell whether the schema is for CREATE TABLE, which names no store yet."""
    return "provider" in options


def _write_root(own: Mapping[str, str]) -> str:
    """Return the one directory that a write goes to."""
    paths, table = named_paths(own)
    if table is not None:
        raise InvalidOptionError("path", own["path"], "no table can be written: give the store")
    if len(paths) != 1:
        raise InvalidOptionError("path", ", ".join(paths), _MISSING_WRITE_PATH)
    roots = store_paths.expand(paths)
    if len(roots) > 1:
        named = ", ".join(map(shown, roots[:_SHOWN_ROOTS]))
        more = ", …" if len(roots) > _SHOWN_ROOTS else ""
        expected = f"a write goes to one store, and this matches {len(roots)}: {named}{more}"
        raise InvalidOptionError("path", paths[0], expected)
    return roots[0]

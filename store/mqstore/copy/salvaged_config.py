"""Carries over what lies beside log and queues: config/, checkpoint, and the timer's files.

A file of config/ is carried over if it, or its .bak, can be parsed. Topics, groups and committed
offsets in RocksDB become files, which brokers with configuration in RocksDB take over. Topics that
have queues and no entry get one. No group goes on behind the end of a queue: those that were there
go on at the end.

Reference: RocksDBTopicConfigManager#merge, RocksDBSubscriptionGroupManager#merge,
RocksDBConsumerOffsetManager#merge.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from mqstore.copy.salvage_report import LOST, MOVED, Report, ReportEntry
from mqstore.errors import CorruptConfigError, StoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import checkpoint
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.config.config_write import add_topics, replace_checkpoint
from mqstore.files.config.rocksdb_config import (
    TABLE_OF,
    config_databases,
    counter_of,
    read_table,
    table_places,
)
from mqstore.files.copy_target import Copy
from mqstore.files.rocksdb.database import has_database
from mqstore.format import names
from mqstore.format.arrays import TopicQueue
from mqstore.format.config import (
    BACKUP_SUFFIX,
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    LMQ_CONSUMER_OFFSET,
    TIMER_CHECK,
    TOPICS,
    split_topic_group,
)

_UNPARSED: Final = "neither the file nor its .bak can be parsed"
_NO_FILE: Final = "a symbolic link or special file: it may lead out of the store"
_FROM_BACKUP: Final = "the file cannot be parsed: its .bak is taken"
_IN_ROCKSDB: Final = "this database is not carried over"
_BEHIND: Final = "the group goes on at the queue's new end"
_STATE_LOST: Final = (
    "it has the state of transactions or timers, and is left out: a broker started on the new "
    "store delivers due timers again, and asks no producer for the outcome of an open transaction"
)
_TIMER: Final = ("timerlog", "timerwheel", f"{names.CONFIG}/{TIMER_CHECK}")
_TIMER_LOST: Final = "it names places in the log, and all records were moved"


def carry_config(
    copy: Copy, place: StoreDir, ends: Mapping[TopicQueue, int], report: Report
) -> None:
    """Carry over the files of config/; ``ends`` has the end of each queue. Raises OSError."""
    copy.make_directory(names.CONFIG)
    config = BrokerConfig(place)
    tables = _tables_in_rocksdb(place, report)
    kinds = {name: kind for name, kind, _ in place.folder.survey(names.CONFIG)}
    found = [name for name, kind in kinds.items() if kind == "file"]
    for name, kind in kinds.items():
        if kind not in {"file", "directory"}:
            report.lose_file(f"{names.CONFIG}/{name}", _NO_FILE)
    documents = {name.removesuffix(BACKUP_SUFFIX) for name in found}
    for name in sorted(documents | set(tables)):
        if name.endswith(".json"):
            document = tables.get(name)
            if name in documents:
                document = _newer(_load(config, place, name, report), document)
            if document is not None:
                _limit(name, document, ends, report)
                text = json.dumps(document, ensure_ascii=False, indent="\t")
                copy.put(f"{names.CONFIG}/{name}", text.encode())
        elif name in found and name != TIMER_CHECK:
            with suppress(FileNotFoundError):
                copy.take(place.folder, f"{names.CONFIG}/{name}", f"{names.CONFIG}/{name}")


def _tables_in_rocksdb(place: StoreDir, report: Report) -> dict[str, dict[str, Any]]:
    """Return what the files would be whose tables are in RocksDB; report what cannot be read."""
    lost = dict.fromkeys(config_databases(place), _IN_ROCKSDB)
    tables: dict[str, dict[str, Any]] = {}
    broken = {}
    for name, table in TABLE_OF.items():
        for where in table_places(place, table):
            try:
                document = read_table(place, where).document(name)
            except (CorruptConfigError, StoreError, OSError) as error:
                broken[where.folder] = f"{_IN_ROCKSDB}: {error}"
                continue
            lost.pop(where.folder, None)
            tables[name] = _newer(tables.get(name), document) or document
    for folder, reason in (lost | broken).items():
        report.lose_file(f"{names.CONFIG}/{folder}", reason)
    return tables


def _newer(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the document that was changed more often, the second of equal ones."""
    if one is None or other is None:
        return other if one is None else one
    counts = [counter_of(document.get("dataVersion")) for document in (one, other)]
    return one if counts[0] > counts[1] else other


def carry_timer(copy: Copy, place: StoreDir, report: Report, *, is_moved: bool) -> None:
    """Carry over what the timer of 5.x keeps, unless all records have other places now."""
    for path in _TIMER:
        parent, _, name = path.rpartition("/")
        kinds = {entry: kind for entry, kind, _ in place.folder.survey(parent)}
        inner = [one for one, kind, _ in place.folder.survey(path) if kind == "file"]
        if name in kinds and is_moved:
            report.lose_file(path, _TIMER_LOST)
        elif kinds.get(name) == "file":
            copy.take(place.folder, path, path)
        elif kinds.get(name) == "directory":
            copy.make_directory(path)
            for one in inner:
                copy.take(place.folder, f"{path}/{one}", f"{path}/{one}")


def lose_database(place: StoreDir, ends: Mapping[TopicQueue, int], report: Report) -> None:
    """Report the database of transactions and timers, if there are any: nothing of it is kept.

    ``ends`` are the queues' ends. See ``beside_queues``.
    """
    if not has_database(place.folder, names.ROCKSDB_STORE):
        return
    entered = checkpoint.load_timer(place)
    by_wheel = 0 if entered is None else int(entered["last_timer_queue_offset"])
    has_timers = ends.get((names.TIMER_TOPIC, 0), 0) > max(by_wheel, 0)
    if has_timers or (names.ROCKSDB_HALF_TOPIC, 0) in ends:
        report.lose_file(names.ROCKSDB_STORE, _STATE_LOST)


def complete_topics(
    writer: StoreWriter, ends: Mapping[TopicQueue, int], with_batches: Collection[str]
) -> None:
    """Give each topic with queues an entry with so many queues.

    ``with_batches`` are the topics with batch ConsumeQueues.
    """
    counts: dict[str, int] = {}
    for topic, queue_id in ends:
        if not names.is_system_topic(topic) or topic.startswith(names.RETRY_PREFIX):
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    add_topics(writer, counts, with_batches)


def put_checkpoint(writer: StoreWriter, last_ms: int, last_physical_offset: int) -> None:
    """Note the last record as flushed and dispatched: it and all before it are."""
    fields = ("physic_msg_timestamp", "logics_msg_timestamp")
    values = dict.fromkeys(fields, last_ms) | {"logics_physical_offset": last_physical_offset}
    replace_checkpoint(writer, values)


def _load(
    config: BrokerConfig, place: StoreDir, name: str, report: Report
) -> dict[str, Any] | None:
    try:
        document, source = config.load_from(name)
    except (CorruptConfigError, StoreError):
        report.lose_file(f"{names.CONFIG}/{name}", _UNPARSED)
        return None
    if source.endswith(BACKUP_SUFFIX):
        report.add(ReportEntry(kind=LOST, reason=_FROM_BACKUP, file=f"{names.CONFIG}/{name}"))
    if name == TOPICS and not isinstance(document.get("topicConfigTable"), dict):
        document["topicConfigTable"] = {}
    return document or None


def _limit(
    name: str, document: dict[str, Any], ends: Mapping[TopicQueue, int], report: Report
) -> None:
    """Lower what goes on behind the end of a queue."""
    table = document.get("offsetTable")
    if not isinstance(table, dict):
        return
    if name in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET):
        for key, queues in table.items():
            topic, group = split_topic_group(str(key))
            for queue_id in queues if isinstance(queues, dict) else ():
                number = names.parse_queue_id(str(queue_id))
                queue = (topic, -1 if number is None else number)
                _lower(queues, queue_id, queue, (ends, report, group))
    elif name == DELAY_OFFSET:
        for level in table:
            number = names.parse_queue_id(str(level))
            queue = (names.SCHEDULE_TOPIC, -1 if number is None else number - 1)
            _lower(table, level, queue, (ends, report, f"level {level}"))


def _lower(
    table: dict[str, Any],
    key: str,
    queue: TopicQueue,
    into: tuple[Mapping[TopicQueue, int], Report, str],
) -> None:
    ends, report, group = into
    value, end = table[key], ends.get(queue, 0)
    if queue[1] < 0 or type(value) is not int or value <= end:
        return
    table[key] = end
    report.add(
        ReportEntry(
            kind=MOVED,
            reason=_BEHIND,
            topic=queue[0],
            queueId=queue[1],
            queueOffset=end,
            count=value - end if value < 2**62 else None,
            group=group,
        )
    )

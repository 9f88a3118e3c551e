"""The JSON files of config/, read as a broker reads them.

Reference: org.apache.rocketmq.common.ConfigManager#load (main file, then .bak), fastjson's
dialect (unquoted integer keys, trailing commas are not accepted).
"""

import logging
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Final

from mqstore.errors import CorruptConfigError, UnsupportedStoreError, shown
from mqstore.files.base import bounded_json
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config import stream_groups
from mqstore.files.config.config_text import parse_object
from mqstore.files.config.pop_files import PopFacts, pop_facts
from mqstore.files.config.rocksdb_config import (
    TABLE_KEY,
    TABLE_OF,
    TableContent,
    counter_of,
    newest_table,
)
from mqstore.format import config, names

_LOG = logging.getLogger(__name__)
_BY_SQL: Final = "SQL92"  # ExpressionType.SQL92


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One entry of topics.json: how many queues a topic has and what may be done with it."""

    read_queue_nums: int = config.DEFAULT_QUEUE_NUMS
    write_queue_nums: int = config.DEFAULT_QUEUE_NUMS
    perm: int = config.PERM_READ | config.PERM_WRITE
    order: bool | None = False  # None: a proxy does not tell.
    has_multi_tags: bool = False
    """Whether its messages may have several tags; they are stored with a flag that says so."""
    has_batches: bool = False  # It has batch ConsumeQueues.
    is_compacted: bool = False
    """Whether consumers get the newest message of each key alone (cleanup.policy=COMPACTION)."""


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """What a group committed of a topic: queueId → next queue offset; ``source`` is the file.

    Or ``mqlog``, for a stream of ours that publishes its progress (commitGroup).
    """

    queues: dict[int, int]
    source: str

    @property
    def is_brokers(self) -> bool:
        """Tell whether the broker keeps it, and no stream of ours."""
        return self.source != stream_groups.OWN_STREAM


@dataclass(frozen=True, slots=True)
class FilterExpression:
    """How a group filters a topic; ``kind`` is SQL92 or TAG, whatever its case."""

    kind: str
    expression: str


@dataclass(frozen=True, slots=True)
class ConfigFileState:
    """What a file of config/ is to its reader: ``state``, and why it is not read, if it is not."""

    state: str
    problem: str = ""


MISSING: Final = "missing"
EMPTY: Final = "empty"
SOUND: Final = "sound"
BROKEN: Final = "broken"
"""Neither we nor a broker can parse it."""
BEYOND_US: Final = "beyond us"
"""A broker may read it; it is beyond what we allow: see ``bounded_json``."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The files of one store's config/. Each call reads its file as it is now."""

    place: StoreDir
    lists_groups: ClassVar[bool] = True

    def topics(self) -> dict[str, TopicConfig]:
        """Return topics.json, or what is in RocksDB instead; empty if there is neither.

        Raises CorruptConfigError; UnsupportedStoreError for RocksDB that cannot be read.
        """
        table, _ = self._load_table(config.TOPICS)
        return {
            topic: TopicConfig(
                _queue_nums(fields.get("readQueueNums")),
                _queue_nums(fields.get("writeQueueNums")),
                _integer(fields.get("perm"), config.PERM_READ | config.PERM_WRITE),
                fields.get("order") is True,
                fields.get("topicFilterType") == config.MULTI_TAG,
                _table(fields, "attributes").get(config.QUEUE_TYPE) == config.BATCH_QUEUE_TYPE,
                _table(fields, "attributes").get(config.CLEANUP_POLICY) == config.COMPACTION_POLICY,
            )
            for topic, fields in table.items()
            if names.is_topic(topic) and isinstance(fields, dict)
        }

    def consumer_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return committed offsets: (topic, group) → {queueId: next queue offset to consume}."""
        return {key: found.queues for key, found in self.committed().items()}

    def committed(self) -> dict[tuple[str, str], CommittedOffsets]:
        """Return what groups committed, with the file that says so: the .bak where it had to do.

        A group may be ``group@broadcast``: the least of what its broadcasting clients through
        proxies of 5.x have read. A broker with enableLmq keeps lmqConsumerOffset.json instead of
        consumerOffset.json; where both are there, each key is taken from the former. Light queues
        are queue 0 of their topic. Streams that publish their progress are groups too, unless the
        broker knows a group of that name. Where they are in RocksDB, the
        source is consumerOffsets or metadata. Raises as ``topics``.
        Reference: LmqConsumerOffsetManager#configFilePath.
        """
        found: dict[tuple[str, str], CommittedOffsets] = {}
        for name in (config.CONSUMER_OFFSET, config.LMQ_CONSUMER_OFFSET):
            document, source = self._offset_tables(name)
            found |= {
                key: CommittedOffsets(queues, source)
                for key, queues in _by_group(_table(document, "offsetTable")).items()
            }
            light = {k: {"0": v} for k, v in _table(document, "lmqOffsetTable").items()}
            found |= {
                key: CommittedOffsets(queues, source) for key, queues in _by_group(light).items()
            }
        ours = stream_groups.published(self.place)
        return {
            key: CommittedOffsets(queues, stream_groups.OWN_STREAM) for key, queues in ours.items()
        } | found

    def offsets_now(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return the same: each call reads the files."""
        return self.consumer_offsets()

    def pull_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return how far groups had pulled, as ``consumer_offsets``; empty before 5.1.0.

        Written by accident (a getter is serialised), never read back by a broker.
        """
        document, _ = self._offset_tables(config.CONSUMER_OFFSET)
        return _by_group(_table(document, "pullOffsetTable"))

    def pulled(
        self, pairs: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], Mapping[int, int]]:
        """Return the same of those pairs; nothing where the broker writes no such table.

        As those of 4.9, 5.3 and 5.5.1.
        """
        document, _ = self._offset_tables(config.CONSUMER_OFFSET)
        if "pullOffsetTable" not in document:
            return {}
        table = _by_group(_table(document, "pullOffsetTable"))
        return {pair: table.get(pair, {}) for pair in pairs}

    def pop_facts(self) -> PopFacts:
        """Return what the broker keeps of POP groups. Raises UnsafePathError."""
        return pop_facts(self)

    def is_before_5(self) -> bool:
        """Tell whether a broker of 4.x wrote topics.json.

        Those of 5.x give its dataVersion a stateVersion, and every topic attributes; mqlog adds
        topics with attributes and leaves the dataVersion's fields as they were. Without topics no
        version shows. Raises CorruptConfigError. Reference: DataVersion, TopicConfig of 5.0.0.
        """
        document = self.load(config.TOPICS)
        entries = _table(document, "topicConfigTable").values()
        named = "stateVersion" in _table(document, "dataVersion")
        return not named and any("attributes" not in e for e in entries if isinstance(e, dict))

    def delay_offsets(self) -> dict[int, int]:
        """Return delayOffset.json: delay level → next queue offset to deliver of its queue.

        Raises CorruptConfigError. Reference: ScheduleMessageService#decode.
        """
        return _queue_offsets(_table(self.load(config.DELAY_OFFSET), "offsetTable"))

    def filter_expressions(
        self, groups: Iterable[str] | None = None, left_out: object = None
    ) -> dict[tuple[str, str], FilterExpression]:
        """Return consumerFilter.json: (topic, group) → its expression; only SQL92 groups have one.

        ``groups`` None means all. Nothing is ``left_out``: there are no rights in files.

        Of groups that went offline too: ``deadTime`` tells when, not that they will not come back.
        Raises CorruptConfigError. Reference: ConsumerFilterManager#register.
        """
        del left_out
        found = {}
        chosen = None if groups is None else frozenset(groups)
        topics_ = _table(self.load(config.CONSUMER_FILTER), "filterDataByTopic")
        for topic, of_topic in topics_.items():
            groups_ = _table(of_topic, "groupFilterData") if isinstance(of_topic, dict) else {}
            for group, data in groups_.items():
                fields = data if isinstance(data, dict) else {}
                kind, expression = fields.get("expressionType"), fields.get("expression")
                if not (isinstance(kind, str) and isinstance(expression, str)):
                    continue
                is_chosen = chosen is None or group in chosen
                if is_chosen and names.is_topic(topic) and kind.upper() == _BY_SQL:
                    found[topic, group] = FilterExpression(kind, expression)
        return found

    def online(self, groups: Iterable[str], left_out: object = None) -> None:
        """Return None: no file tells which groups have consumers."""

    def hidden_consumers(self) -> str:
        """Return "": ``online`` is not known of any group."""
        return ""

    def groups(self) -> set[str]:
        """Return the names in subscriptionGroup.json, or in RocksDB. Raises as ``topics``."""
        return set(self._load_table(config.SUBSCRIPTION_GROUP)[0])

    def load(self, name: str) -> dict[str, Any]:
        """Return the JSON object of ``config/name``; {} if neither it nor its .bak is there.

        A missing, empty or unreadable main file gives way to the .bak, as in the broker. Raises
        CorruptConfigError if what is there cannot be parsed.
        """
        return self.load_from(name)[0]

    def load_from(self, name: str) -> tuple[dict[str, Any], str]:
        """As ``load``, with the name of the file that was read: ``name``, or its .bak."""
        problem: CorruptConfigError | None = None
        why = "is missing"
        for candidate in (name, name + config.BACKUP_SUFFIX):
            path = f"{names.CONFIG}/{candidate}"
            try:
                text = self._text(path)
                if text.strip():
                    found = parse_object(text, f"{self.place.root}/{path}")
                    if candidate != name:
                        _warn_of_backup(f"{self.place.root}/{path}", f"{name} {why}")
                    return found, candidate
                why = "is empty"
            except FileNotFoundError:
                continue
            except CorruptConfigError as error:
                problem, why = problem or error, "cannot be parsed"
        if problem:
            raise problem
        if why == "is empty":
            _warn_of_empty(f"{self.place.root}/{names.CONFIG}/{name}")
        return {}, name

    def look(self, name: str) -> ConfigFileState:
        """Return what ``config/name`` is, and nothing of its .bak. Raises UnsafePathError."""
        path, text = f"{names.CONFIG}/{name}", ""
        try:
            text = self._text(path)
            if not text.strip():
                return ConfigFileState(EMPTY)
            parse_object(text, path)
        except FileNotFoundError:
            return ConfigFileState(MISSING)
        except CorruptConfigError as error:
            ours = isinstance(error.__cause__, bounded_json.LimitError) and "\0" not in text
            return ConfigFileState(BEYOND_US if ours else BROKEN, error.reason)
        return ConfigFileState(SOUND)

    def _text(self, path: str) -> str:
        file = self.place.folder.open(path)
        try:
            size = file.size
            if size > config.MAX_CONFIG_BYTES:
                reason = f"{size} bytes, more than {config.MAX_CONFIG_BYTES}"
                limit = bounded_json.LimitError(reason)
                raise CorruptConfigError(f"{self.place.root}/{path}", 0, reason) from limit
            data = file.read(size, 0)
            # Both fastjsons skip it; blanks keep the places that errors name.
            data = b"   " + data[3:] if data.startswith(BOM_UTF8) else data
            return data.decode(errors="replace")
        finally:
            file.close()

    def _offset_tables(self, name: str) -> tuple[dict[str, Any], str]:
        """Return the tables of a file with offsets, and where they lie."""
        content = self._in_rocksdb(name) if name in TABLE_OF else None
        return self.load_from(name) if content is None else (content.document(name), content.folder)

    def _load_table(self, name: str) -> tuple[dict[str, Any], str]:
        """Return the table of ``config/name``, or the one in RocksDB, and where it lies."""
        content = self._in_rocksdb(name)
        if content is None:
            document, source = self.load_from(name)
            return _table(document, TABLE_KEY[name]), source
        return content.entries(), content.folder

    def _in_rocksdb(self, name: str) -> TableContent | None:
        """Return the table in RocksDB; None if there is none, or the JSON file counted further."""
        is_json = any(
            self.place.folder.exists(f"{names.CONFIG}/{name}{suffix}")
            for suffix in ("", config.BACKUP_SUFFIX)
        )
        try:
            found = newest_table(self.place, TABLE_OF[name])
        except UnsupportedStoreError as error:
            if not is_json:
                raise
            _warn_of_rocksdb(f"{self.place.root}/{names.CONFIG}/{name}", str(error))
            return None
        if found is None or not is_json:
            return found
        counter = counter_of(self.load(name).get("dataVersion"))
        return None if counter > found.counter else found


@lru_cache(maxsize=1024)
def _warn_of_backup(path: str, why: str) -> None:
    """Warn once in a process and for a file: what its readers find may be older."""
    _LOG.warning("%s was read instead, and may be older: %s", shown(path), why)


@lru_cache(maxsize=1024)
def _warn_of_empty(path: str) -> None:
    _LOG.warning(
        "%s is empty, and so is its .bak or it is not there: what it had is in no answer, and a "
        "broker that starts now begins without it",
        shown(path),
    )


@lru_cache(maxsize=1024)
def _warn_of_rocksdb(path: str, why: str) -> None:
    _LOG.warning("%s was read, and may be older than what is in RocksDB: %s", shown(path), why)


def broker_name(topic_table: Mapping[str, TopicConfig]) -> str | None:
    """Return the broker's name as its own topics tell it, or None.

    Every broker has a topic of its own name with one queue and the inherit permission; a 5.x
    broker also one that carries the name in its own.
    Reference: TopicConfigManager#init.
    """
    prefix = names.SYNC_MEMBER_PREFIX
    for topic in topic_table:
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic.removeprefix(prefix)
    own = [
        topic
        for topic, entry in topic_table.items()
        if entry.perm & config.PERM_INHERIT
        and (entry.read_queue_nums, entry.write_queue_nums) == (1, 1)
        and not names.is_system_topic(topic)
    ]
    return own[0] if len(own) == 1 else None


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key)
    return table if isinstance(table, dict) else {}


def _by_group(table: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    found = {}
    # A topic is named for each of its groups, a queue for each of both.
    is_topic, queue_id = cache(names.is_topic), cache(names.parse_queue_id)
    for key, queues in table.items():
        topic, group = config.split_topic_group(key)
        if is_topic(topic) and isinstance(queues, dict):
            found[topic, group] = _queue_offsets(queues, queue_id)
    return found


def _queue_offsets(
    queues: Mapping[str, Any], queue_id: Callable[[str], int | None] = names.parse_queue_id
) -> dict[int, int]:
    return {
        number: value
        for key, value in queues.items()
        if type(value) is int
        and -(2**63) <= value < 2**63
        and (number := queue_id(key)) is not None
    }


def _queue_nums(value: object) -> int:
    return max(0, min(_integer(value, config.DEFAULT_QUEUE_NUMS), names.MAX_QUEUE_ID + 1))


def _integer(value: object, default: int) -> int:
    return value if type(value) is int and abs(value) < 2**31 else default

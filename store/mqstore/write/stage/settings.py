"""The options of a write, each declared once: name, grammar, bounds, default.

Reference: Delta Lake's txnAppId and txnVersion (DeltaOptions, idempotent writes).
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files.base.store_writer import MMAP, PWRITE
from mqstore.files.txn.ledger import STREAM_PREFIX
from mqstore.format.message import HARD_RECORD_BYTES, MAX_MESSAGE_SIZE, RECORD_ROOM_BYTES
from mqstore.format.names import MAX_QUEUE_ID
from mqstore.options import grammar, store_paths
from mqstore.options.option import any_text, one_of, option, options_of

QUEUE_NUMS: Final = 4  # DefaultMQProducer#defaultTopicQueueNums
COMPRESS_OVER: Final = 4096  # DefaultMQProducer#compressMsgBodyOverHowmuch
PARTITIONERS: Final = ("roundrobin", "hash", "single", "random", "machineRoom")
_SIDE_PREFIX: Final = "side:"
_MAX_APP_ID: Final = 1024
_NOT_IN_A_PROPERTY: Final = {"\0", "\1", "\2"}  # MessageDecoder's separators among them


def _on_invalid(name: str, text: str) -> str:
    kind, path = text.strip()[: len(_SIDE_PREFIX)].lower(), text.strip()[len(_SIDE_PREFIX) :]
    if kind == _SIDE_PREFIX and path.strip():
        return _SIDE_PREFIX + store_paths.absolute(name, path.strip())
    if kind not in {"fail", "skip"} or path:
        raise InvalidOptionError(name, text, "must be fail, skip or side:PATH")
    return kind


def _app_id(name: str, text: str) -> str:
    if not text.strip() or len(text) > _MAX_APP_ID or not text.isprintable():
        raise InvalidOptionError(name, text, f"must be 1 to {_MAX_APP_ID} printable characters")
    if text.startswith(STREAM_PREFIX):
        expected = f"must not start with {STREAM_PREFIX!r}, the prefix of streaming queries"
        raise InvalidOptionError(name, text, expected)
    return text


def _producer_group(name: str, text: str) -> str:
    if not _NOT_IN_A_PROPERTY.isdisjoint(text):
        raise InvalidOptionError(name, text, "must not hold U+0000, U+0001 or U+0002")
    return text


def _cluster_name(name: str, text: str) -> str:
    if not text:
        raise InvalidOptionError(name, text, "must be the name of a cluster")
    return _producer_group(name, text)


def _machine_rooms(name: str, text: str) -> str:
    rooms = [room.strip() for room in text.split(",")]
    if "" in rooms or len({*rooms}) < len(rooms):
        raise InvalidOptionError(name, text, "must be names that differ, separated by commas")
    return ",".join(rooms)


_count = partial(grammar.count, high=2**31 - 1)
_queue_count = partial(grammar.count, high=MAX_QUEUE_ID + 1)
_version = partial(grammar.count, low=0)
_client_batch = partial(grammar.size, high=4 * 1024 * 1024)
_message_bytes = partial(grammar.size, high=HARD_RECORD_BYTES - RECORD_ROOM_BYTES)
_compress_over = partial(grammar.size, low=0, high=2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSettings:
    """The options that say what messages rows become, of every target; None where one is not set.

    Sizes are bytes, durations milliseconds, directories absolute paths. What prepares a job
    checks the values by their options, and raises InvalidOptionError with the option's name.
    """

    topic: str | None = option("topic", any_text)
    create_topic: bool = option("createTopic", grammar.boolean, True)
    queue_nums: int | None = option("queueNums", _queue_count)
    partitioner: str = option("partitioner", one_of(*PARTITIONERS), "roundrobin")
    machine_rooms: str | None = option("machineRooms", _machine_rooms)
    machine_room: str | None = option("machineRoom", any_text)
    batch_max_bytes: int = option("batchMaxBytes", _client_batch, 1_000_000)
    batch_max_messages: int | None = option("batchMaxMessages", _count)
    batch_builder: str = option("batchBuilder", one_of("default", "keyBased"), "default")
    max_message_size: int = option("maxMessageSize", _message_bytes, MAX_MESSAGE_SIZE)
    on_invalid: str = option("onInvalid", _on_invalid, "fail")
    compression: str = option("compression", one_of("none", "zlib", "lz4", "zstd"), "none")
    compress_over: int | None = option("compressOver", _compress_over)
    timestamps: str = option("timestamps", one_of("now", "preserve"), "now")
    uniq_key: str | None = option("uniqKey", one_of("deterministic", "random", "none"))
    producer_group: str | None = option("producerGroup", _producer_group)
    allow_system_topics: bool = option("allowSystemTopics", grammar.boolean, False)
    txn_app_id: str | None = option("txnAppId", _app_id)
    txn_version: int | None = option("txnVersion", _version)

    @property
    def new_topic_queues(self) -> int:
        """Return how many queues a topic gets that the target does not have."""
        return QUEUE_NUMS if self.queue_nums is None else self.queue_nums

    @property
    def side_path(self) -> str | None:
        """Return the directory that bad rows go to, or None."""
        if self.on_invalid.startswith(_SIDE_PREFIX):
            return self.on_invalid.removeprefix(_SIDE_PREFIX)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings(MessageSettings):
    """The options of a write to a store directory."""

    root: str
    create_store: bool = option("createStore", grammar.boolean, False)
    mapped_file_size_commit_log: int | None = option("mappedFileSizeCommitLog", grammar.size)
    mapped_file_size_consume_queue: int | None = option("mappedFileSizeConsumeQueue", grammar.size)
    max_hash_slot_num: int | None = option("maxHashSlotNum", _count)
    max_index_num: int | None = option("maxIndexNum", _count)
    born_host: str | None = option("bornHost", any_text)
    store_host: str | None = option("storeHost", any_text)
    broker_cluster_name: str | None = option("brokerClusterName", _cluster_name)
    build_index: bool = option("buildIndex", grammar.boolean, True)
    fsync: str = option("fsync", one_of("commit", "none"), "commit")
    write_mode: str = option("writeMode", one_of(PWRITE, MMAP), PWRITE)
    lock_timeout_ms: int = option("lockTimeout", grammar.duration, 0)
    allow_no_lease: bool = option("allowNoLease", grammar.boolean, False)
    recover_unclean: bool = option("recoverUnclean", grammar.boolean, False)
    interlock: bool = option("interlock", grammar.boolean, False)
    staging_dir: str | None = option("stagingDir", store_paths.absolute)


def rooms_of(settings: MessageSettings) -> list[str]:
    """Return the names of ``machineRooms``."""
    return settings.machine_rooms.split(",") if settings.machine_rooms else []


WRITE_OPTIONS: Final = options_of(WriteSettings)

"""The options of a write, each declared once: name, grammar, bounds, default.

Reference: Delta Lake's txnAppId and txnVersion (DeltaOptions, idempotent writes).
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from mqstore.errors import InvalidOptionError
from mqstore.format.message import HARD_RECORD_BYTES, MAX_MESSAGE_SIZE, RECORD_ROOM_BYTES
from mqstore.format.names import MAX_QUEUE_ID
from mqstore.options import grammar, store_paths
from mqstore.options.option import Option, any_text, declared, one_of
from mqstore.txn.ledger import STREAM_PREFIX

COMPRESS_OVER: Final = 4096  # DefaultMQProducer#compressMsgBodyOverHowmuch
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


_count = partial(grammar.count, high=2**31 - 1)
_queue_count = partial(grammar.count, high=MAX_QUEUE_ID + 1)
_version = partial(grammar.count, low=0)
_batch_bytes = partial(grammar.size, high=4 * 1024 * 1024)
_message_bytes = partial(grammar.size, high=HARD_RECORD_BYTES - RECORD_ROOM_BYTES)
_body_bytes = partial(grammar.size, low=0, high=2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """The options of a write; None where an option is not set.

    Sizes are bytes, durations milliseconds, directories absolute paths. ``prepare`` checks the
    values by their options, and raises InvalidOptionError with the option's name.
    """

    root: str
    topic: Annotated[str | None, Option("topic", any_text)] = None
    create_store: Annotated[bool, Option("createStore", grammar.boolean)] = False
    mapped_file_size_commit_log: Annotated[
        int | None, Option("mappedFileSizeCommitLog", grammar.size)
    ] = None
    mapped_file_size_consume_queue: Annotated[
        int | None, Option("mappedFileSizeConsumeQueue", grammar.size)
    ] = None
    max_hash_slot_num: Annotated[int | None, Option("maxHashSlotNum", _count)] = None
    max_index_num: Annotated[int | None, Option("maxIndexNum", _count)] = None
    create_topic: Annotated[bool, Option("createTopic", grammar.boolean)] = True
    queue_nums: Annotated[int, Option("queueNums", _queue_count)] = 4
    partitioner: Annotated[str, Option("partitioner", one_of("roundrobin", "hash", "single"))] = (
        "roundrobin"
    )
    batch_max_bytes: Annotated[int, Option("batchMaxBytes", _batch_bytes)] = 1_000_000
    batch_max_messages: Annotated[int | None, Option("batchMaxMessages", _count)] = None
    batch_builder: Annotated[str, Option("batchBuilder", one_of("default", "keyBased"))] = "default"
    max_message_size: Annotated[int, Option("maxMessageSize", _message_bytes)] = MAX_MESSAGE_SIZE
    on_invalid: Annotated[str, Option("onInvalid", _on_invalid)] = "fail"
    compression: Annotated[str, Option("compression", one_of("none", "zlib", "lz4", "zstd"))] = (
        "none"
    )
    compress_over: Annotated[int | None, Option("compressOver", _body_bytes)] = None
    timestamps: Annotated[str, Option("timestamps", one_of("now", "preserve"))] = "now"
    uniq_key: Annotated[
        str | None, Option("uniqKey", one_of("deterministic", "random", "none"))
    ] = None
    born_host: Annotated[str | None, Option("bornHost", any_text)] = None
    store_host: Annotated[str | None, Option("storeHost", any_text)] = None
    producer_group: Annotated[str | None, Option("producerGroup", _producer_group)] = None
    build_index: Annotated[bool, Option("buildIndex", grammar.boolean)] = True
    fsync: Annotated[str, Option("fsync", one_of("commit", "none"))] = "commit"
    lock_timeout_ms: Annotated[int, Option("lockTimeout", grammar.duration)] = 0
    allow_system_topics: Annotated[bool, Option("allowSystemTopics", grammar.boolean)] = False
    txn_app_id: Annotated[str | None, Option("txnAppId", _app_id)] = None
    txn_version: Annotated[int | None, Option("txnVersion", _version)] = None
    allow_no_lease: Annotated[bool, Option("allowNoLease", grammar.boolean)] = False
    recover_unclean: Annotated[bool, Option("recoverUnclean", grammar.boolean)] = False
    interlock: Annotated[bool, Option("interlock", grammar.boolean)] = False
    staging_dir: Annotated[str | None, Option("stagingDir", store_paths.absolute)] = None

    @property
    def side_path(self) -> str | None:
        """Return the directory that bad rows go to, or None."""
        if self.on_invalid.startswith(_SIDE_PREFIX):
            return self.on_invalid.removeprefix(_SIDE_PREFIX)
        return None


WRITE_OPTIONS: Final = declared(WriteSettings)

"""The options of writes. The keys of WRITE_OPTIONS are the fields of mqstore.write's WriteSettings.

Reference: Delta Lake's txnAppId and txnVersion (DeltaOptions, idempotent writes).
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar, store_paths
from pyspark_mqlog.option import Option, any_text, one_of

MAX_QUEUES: Final = 65_536
TRANSACTION: Final = ("txn_app_id", "txn_version")
_MAX_APP_ID: Final = 1024
_STREAMS_APP_ID: Final = "s:"


def _on_invalid(name: str, text: str) -> str:
    if text.lower().startswith("side:") and text[5:].strip():
        return f"side:{store_paths.absolute(name, text[5:].strip())}"
    if text.strip().lower() not in {"fail", "skip"}:
        raise InvalidOptionError(name, text, "must be fail, skip or side:PATH")
    return text.strip().lower()


def _app_id(name: str, text: str) -> str:
    if not text.strip() or len(text) > _MAX_APP_ID or not text.isprintable():
        raise InvalidOptionError(name, text, f"must be 1 to {_MAX_APP_ID} printable characters")
    if text.startswith(_STREAMS_APP_ID):
        raise InvalidOptionError(name, text, "names of streaming queries begin so; choose another")
    return text


_count_int = partial(grammar.count, high=2**31 - 1)
WRITE_OPTIONS: Final[dict[str, Option]] = {
    "topic": Option("topic", any_text),
    "create_store": Option("createStore", grammar.boolean, "false"),
    "mapped_file_size_commit_log": Option("mappedFileSizeCommitLog", grammar.size),
    "mapped_file_size_consume_queue": Option("mappedFileSizeConsumeQueue", grammar.size),
    "max_hash_slot_num": Option("maxHashSlotNum", _count_int),
    "max_index_num": Option("maxIndexNum", _count_int),
    "create_topic": Option("createTopic", grammar.boolean, "true"),
    "queue_nums": Option("queueNums", partial(grammar.count, high=MAX_QUEUES), "4"),
    "partitioner": Option("partitioner", one_of("roundrobin", "hash", "single"), "roundrobin"),
    "batch_max_bytes": Option(
        "batchMaxBytes", partial(grammar.size, high=4 * 1024 * 1024), "1000000"
    ),
    "batch_max_messages": Option("batchMaxMessages", _count_int),
    "batch_builder": Option("batchBuilder", one_of("default", "keyBased"), "default"),
    "max_message_size": Option("maxMessageSize", partial(grammar.size, high=2**31 - 1), "4m"),
    "on_invalid": Option("onInvalid", _on_invalid, "fail"),
    "compression": Option("compression", one_of("none", "zlib", "lz4", "zstd"), "none"),
    "compress_over": Option("compressOver", grammar.size),
    "timestamps": Option("timestamps", one_of("now", "preserve"), "now"),
    "uniq_key": Option("uniqKey", one_of("deterministic", "random", "none")),
    "born_host": Option("bornHost", any_text),
    "store_host": Option("storeHost", any_text),
    "producer_group": Option("producerGroup", any_text),
    "build_index": Option("buildIndex", grammar.boolean, "true"),
    "fsync": Option("fsync", one_of("commit", "none"), "commit"),
    "lock_timeout_ms": Option("lockTimeout", grammar.duration, "0s"),
    "allow_system_topics": Option("allowSystemTopics", grammar.boolean, "false"),
    "txn_app_id": Option("txnAppId", _app_id),
    "txn_version": Option("txnVersion", partial(grammar.count, low=0)),
    "allow_no_lease": Option("allowNoLease", grammar.boolean, "false"),
    "recover_unclean": Option("recoverUnclean", grammar.boolean, "false"),
    "interlock": Option("interlock", grammar.boolean, "false"),
    "staging_dir": Option("stagingDir", store_paths.absolute),
}


def check_transaction(given: Mapping[str, str]) -> None:
    """Refuse one of txnAppId and txnVersion without the other; ``given`` is as typed."""
    app_id, version = (WRITE_OPTIONS[field].name for field in TRANSACTION)
    for name, other in ((app_id, version), (version, app_id)):
        if name in given and other not in given:
            raise InvalidOptionError(
                name,
                given[name],
                f"needs {other} too: together they are what a write is known by, so that it "
                "happens once",
            )

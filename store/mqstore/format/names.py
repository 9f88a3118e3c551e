"""Names: directories, files, topics and groups; which are legal, which are the broker's own.

Reference: MixAll (prefixes), UtilAll#offset2FileName, TopicValidator, StorePathConfigHelper,
TopicConfigManager#init, Validators#checkGroup.
"""

import re
from typing import Final

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
COMPACTION: Final = "compaction"
ROCKSDB_STORE: Final = "rocksdbstore"
COMPACTION_LOG: Final = "compaction/compactionLog"
COMPACTION_QUEUE: Final = "compaction/compactionCq"
INDEX: Final = "index"
CONFIG: Final = "config"
KV_STORE: Final = "kvStore"  # RocksDB of the KV service of POP
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"
OURS: Final = ".mqlog"  # everything of ours lives below it; brokers never list the root
STAGING: Final = "staging"
COPY_MARK: Final = "mqlog-copy-in-progress"
REPOSITORY_MARK: Final = "mqlog-repository"  # a file: the folder is a repository of points
# A file of one byte in commitlog/ that keeps every broker from starting; it must sort last.
INTERLOCK: Final = "99999999999999999999.mqlog-commit-in-progress"

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_TOPICS: Final = frozenset(
    {
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
    }
)
"""The topics in which brokers keep half messages and how they ended."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SYNC_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Of a topic of each 5.x broker that has no messages and no permission to read (TopicValidator)."""
DEFAULT_TOPIC: Final = "TBW102"
BROADCAST_SUFFIX: Final = "@broadcast"
HEARTBEAT_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
"""By which proxies tell each other of their clients: ProxyConfig#heartbeatSyncerTopicName."""
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_PREDEFINED_GROUPS: Final = frozenset({
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_PULL",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "SELF_TEST_P_GROUP",
    "TOOLS_CONSUMER",
})  # fmt: skip

_SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        CHECK_MAX_TIME_TOPIC,
        HEARTBEAT_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Behind a cluster's name, the topic of replies: MixAll.REPLY_TOPIC_POSTFIX."""
_SYSTEM_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX, "RMQ_SYS_", "rmq_sys_")

MAX_TOPIC_LENGTH: Final = 127
MAX_FOLDER_BYTES: Final = 255
MAX_QUEUE_ID: Final = 65_535
# What cannot be the name of a folder, or text: half a surrogate pair is a byte that is no UTF-8.
_IN_NO_NAME: Final = re.compile(r"[/\0\ud800-\udfff]")
_WRITABLE_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MAPPED_FILE: Final = re.compile(r"[0-9]{20}")
_INDEX_FILE: Final = re.compile(r"[0-9]{17}")
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,4}")


def as_text(file_name: str) -> str:
    """Return a file's name or path as text that can be encoded: on disk it need not be UTF-8."""
    return file_name.encode(errors="surrogateescape").decode(errors="replace")


def mapped_file_name(start: int) -> str:
    """Return the name of the mapped file whose first byte is byte ``start`` of its sequence."""
    return f"{start:020d}"


def parse_mapped_file_name(name: str) -> int | None:
    """Return where the file of that name starts, or None if it is no mapped file's name."""
    start = int(name) if _MAPPED_FILE.fullmatch(name) else 2**63
    return start if start < 2**63 else None


def is_index_file_name(name: str) -> bool:
    """Tell whether ``name`` is ``yyyyMMddHHmmssSSS``."""
    return _INDEX_FILE.fullmatch(name) is not None


def parse_queue_id(name: str) -> int | None:
    """Return the queue id a directory name stands for, or None."""
    queue_id = int(name) if _QUEUE_ID.fullmatch(name) else MAX_QUEUE_ID + 1
    return queue_id if queue_id <= MAX_QUEUE_ID else None


def is_topic(name: str) -> bool:
    """Tell whether ``name`` can be a topic on disk: the only names ever joined to a path.

    Whatever can be the name of a folder can: brokers before 4.6 check no name, later ones not
    those of retry topics (of a group ``com.shop.app``) nor of light queues, and all of them serve
    each folder of ``consumequeue``. Reference: ConsumeQueueStore#loadConsumeQueues.
    """
    if name in {"", ".", ".."} or _IN_NO_NAME.search(name):
        return False
    return len(name.encode()) <= MAX_FOLDER_BYTES


def is_writable_topic(name: str) -> bool:
    """Tell whether a producer may send to ``name``: TopicValidator#validateTopic."""
    return len(name) <= MAX_TOPIC_LENGTH and _WRITABLE_TOPIC.fullmatch(name) is not None


def is_system_group(name: str) -> bool:
    """Tell whether a group is RocketMQ's own: MixAll#isSysConsumerGroup, #isPredefinedGroup."""
    return name in _PREDEFINED_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def is_broadcast_group(name: str) -> bool:
    """Tell whether a group is how a 5.x broker notes offsets of a broadcasting one.

    They are of clients that are gone too: members keep theirs at home.
    Source: BroadcastOffsetManager#broadcastGroupId.
    """
    return name.endswith(BROADCAST_SUFFIX)


def is_system_topic(name: str) -> bool:
    """Tell whether a topic is RocketMQ's own by its name alone.

    A broker has more, under names of its own: see ``read.system_topics``.
    """
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)

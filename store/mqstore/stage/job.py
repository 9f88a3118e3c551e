"""A write job: what the user asked for, and what the driver found before any task ran.

Both cross from driver to tasks and back, so they are frozen values that pickle.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from mqstore.codec.encode import Hosts
from mqstore.files.file_sizes import FileSizes
from mqstore.format.message import MAX_MESSAGE_SIZE
from mqstore.txn.ledger import Key
from mqstore.txn.segment import Segment

PARTITIONERS: Final = ("roundrobin", "hash", "single")
BATCH_BUILDERS: Final = ("default", "keyBased")
COMPRESSIONS: Final = ("none", "zlib", "lz4", "zstd")
TIMESTAMPS: Final = ("now", "preserve")
UNIQ_KEYS: Final = ("deterministic", "random", "none")
FSYNCS: Final = ("commit", "none")
ON_INVALID: Final = ("fail", "skip")
SIDE_PREFIX: Final = "side:"
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
COMPRESS_OVER: Final = 4096  # DefaultMQProducer#compressMsgBodyOverHowmuch


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """One field for each write option; None means the user did not say.

    Sizes are bytes, durations milliseconds, directories paths and no URIs. Values are checked by
    ``prepare``, which raises InvalidOptionError with the option's name.
    """

    root: str
    topic: str | None = None
    create_store: bool = False
    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    create_topic: bool = True
    queue_nums: int = 4
    partitioner: str = "roundrobin"
    batch_max_bytes: int = 1_000_000
    batch_max_messages: int | None = None
    batch_builder: str = "default"
    max_message_size: int = MAX_MESSAGE_SIZE
    on_invalid: str = "fail"
    compression: str = "none"
    compress_over: int | None = None
    timestamps: str = "now"
    uniq_key: str | None = None
    born_host: str | None = None
    store_host: str | None = None
    producer_group: str | None = None
    build_index: bool = True
    fsync: str = "commit"
    lock_timeout_ms: int = 0
    allow_system_topics: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    allow_no_lease: bool = False
    recover_unclean: bool = False
    interlock: bool = False
    staging_dir: str | None = None

    @property
    def side_path(self) -> str | None:
        """Where bad rows go, or None."""
        if self.on_invalid.startswith(SIDE_PREFIX):
            return self.on_invalid.removeprefix(SIDE_PREFIX)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """A job that may run: made by ``prepare`` on the driver, read by every task."""

    settings: WriteSettings
    job_id: str
    """32 hex digits, new for each write."""
    root: str
    """The store's root, as an absolute path."""
    staging: str
    """The job's own directory for staged files."""
    nonce: str
    """What the file NONCE in it holds."""
    hosts: Hosts
    sizes: FileSizes
    topics: dict[str, int] = field(default_factory=dict)
    """Queues a producer may send to, for each topic the store knows."""
    carries_read: bool = False
    """The DataFrame has columns that only a read produces: its rows were messages before."""
    makes_store: bool = False
    """There is no store yet: the commit makes one."""
    key: Key | None = None
    """What the commit is known by, so that it happens once however often it is tried."""
    is_repeated: bool = False
    """The key was committed before: tasks count their rows, and stage none."""
    made: tuple[str, ...] = ()
    """Directories that ``prepare`` made, outermost first; removed again if the job fails."""

    def with_made(self, made: Iterable[str]) -> "WriteJob":
        """Return the job with the directories that were made for it."""
        return replace(self, made=tuple(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one task staged."""

    partition: int
    attempt: int
    segment: Segment | None = None
    """None if the task had no valid row."""
    skipped: int = 0
    passed_over: int = 0
    """Rows of a job that is repeated: counted, neither looked at nor staged."""
    side: str = ""
    """Temporary name of the Parquet file with the bad rows, in the side directory."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit appended. Physical offsets are −1 if there was nothing to append.

    ``is_repeated`` tells that its key was committed before, so that nothing was appended now;
    ``another`` says of what, where what came now is something else.
    """

    messages: int
    bytes: int
    first_physical_offset: int
    last_physical_offset: int
    skipped: int
    is_repeated: bool = False
    another: str = ""

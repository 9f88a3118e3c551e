"""A write job and its manifests: what crosses from the driver to tasks and back.

They are frozen values that pickle.
"""

from dataclasses import dataclass, field

from mqstore.codec.encode import Hosts
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn.ledger import Key
from mqstore.files.txn.segment import Segment
from mqstore.format.message import RECORD_ROOM_BYTES
from mqstore.write.stage.settings import MessageSettings, WriteSettings


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues of a topic: how many a producer chooses from, and how many a queueId may name.

    Both are 0 for a topic that takes no messages. Reference: TopicPublishInfo has the write queues
    alone; AbstractSendMessageProcessor#msgCheck takes ids below the larger of the two numbers.
    """

    write: int
    named: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTarget:
    """The store directory that a job writes to, and the folder in which its tasks stage records."""

    place: StoreDir
    staging: str
    """The job's own directory for staged files."""
    nonce: str
    """Content of the file NONCE in it."""
    hosts: Hosts
    sizes: FileSizes
    record_room: int = RECORD_ROOM_BYTES
    """Bytes by which a record may exceed maxMessageSize."""
    makes_store: bool = False
    """There is no store yet: the commit makes one."""
    made: tuple[str, ...] = ()
    """Directories that ``prepare`` made, outermost first; removed again if the job fails."""

    @property
    def root(self) -> str:
        """The store's root, as an absolute path."""
        return self.place.root


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """What a task needs to make messages of rows, whatever they are for."""

    settings: MessageSettings
    job_id: str
    """32 hex digits, new for each write, or of what a write that may run again is known by."""
    carries_read: bool = False
    """The DataFrame has columns that only a read produces: its rows were messages before."""
    schedules: bool = True
    """Delayed messages are stored under SCHEDULE_TOPIC_XXXX. False: a broker will do that."""
    group_property: str | None = None
    """Property PGROUP of each message."""
    mark: tuple[str, str] | None = None
    """Name and value of a property that each message gets."""
    cluster_property: str | None = None
    """Property CLUSTER of each message that was none before; None: a broker adds its own."""
    multi_tag_topics: frozenset[str] = frozenset()
    """Topics whose messages get the flag MULTI_TAGS; a broker sets it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob(RowJob):
    """A job that may run: made by ``prepare`` on the driver, read by every task."""

    settings: WriteSettings
    target: StoreTarget
    topics: dict[str, TopicQueues] = field(default_factory=dict)
    """Queues a producer may send to, for each topic the target knows."""
    key: Key | None = None
    """Identifies the commit, so that it happens once however often it is tried."""
    is_repeated: bool = False
    """The key was committed before: tasks count their rows, and stage none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a task did with its rows."""

    partition: int
    attempt: int
    skipped: int = 0
    side: str = ""
    """Temporary name of the Parquet file with the bad rows, in the side directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(TaskReport):
    """What one task staged."""

    segment: Segment | None = None
    """None if the task had no valid row."""
    passed_over: int = 0
    """Rows of a job that is repeated: counted, neither checked nor staged."""
    digest: int = 0
    """Of all rows of a job with a key, bad ones too: see ``row_digest``."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit appended. Physical offsets are −1 if there was nothing to append.

    ``is_repeated`` tells that its key was committed before, so that nothing was appended now.
    """

    messages: int
    bytes: int
    first_physical_offset: int
    last_physical_offset: int
    skipped: int
    is_repeated: bool = False

"""The fixed sizes of a store's files, as values.

Reference: MessageStoreConfig#mappedFileSizeCommitLog, #mappedFileSizeConsumeQueue,
#maxHashSlotNum, #maxIndexNum.
"""

from dataclasses import dataclass

from mqstore.format import consume_queue, index_file, message


@dataclass(frozen=True, slots=True)
class Layout:
    """S slots and N units: maxHashSlotNum and maxIndexNum of the broker that made the file."""

    slots: int
    units: int


@dataclass(frozen=True, slots=True)
class KnownFileSizes:
    """Bytes of a CommitLog and of a ConsumeQueue file, layout of an IndexFile; None: unknown."""

    commit_log: int | None = None
    consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None

    def or_defaults(self) -> "FileSizes":
        """Return the sizes, with RocketMQ's defaults for those that are unknown."""
        return FileSizes(
            commit_log=self.commit_log or message.FILE_SIZE,
            consume_queue=self.consume_queue
            or consume_queue.UNITS_PER_FILE * consume_queue.UNIT.itemsize,
            max_hash_slot_num=self.max_hash_slot_num or index_file.MAX_HASH_SLOT_NUM,
            max_index_num=self.max_index_num or index_file.MAX_INDEX_NUM,
        )


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of files that a write makes, in bytes; slots and units of its IndexFiles."""

    commit_log: int
    consume_queue: int
    max_hash_slot_num: int
    max_index_num: int

    @property
    def index(self) -> Layout:
        """Slots and units of an IndexFile."""
        return Layout(self.max_hash_slot_num, self.max_index_num)

"""A new, empty store, as a broker that was never written to would leave it."""

from mqstore.errors import InvalidOptionError
from mqstore.files.config.config_write import replace_file, replace_json
from mqstore.files.file_sizes import NOTE, FileSizes, KnownFileSizes, note
from mqstore.files.undo import Undo, make_directories
from mqstore.format import checkpoint, consume_queue, index_file, message, names
from mqstore.format.config import TOPICS
from mqstore.stage.settings import WriteSettings


def sizes_of_new(settings: WriteSettings) -> FileSizes:
    """Return the sizes for a store we create: RocketMQ's defaults where nothing is said."""
    asked = KnownFileSizes(
        settings.mapped_file_size_commit_log,
        settings.mapped_file_size_consume_queue,
        settings.max_hash_slot_num,
        settings.max_index_num,
    )
    return sizes_found(asked)


def sizes_found(found: KnownFileSizes) -> FileSizes:
    """Return what a store's files tell of their sizes; RocketMQ's defaults for what they do not."""
    return FileSizes(
        commit_log=found.commit_log or message.FILE_SIZE,
        consume_queue=found.consume_queue
        or consume_queue.UNITS_PER_FILE * consume_queue.UNIT.itemsize,
        max_hash_slot_num=found.max_hash_slot_num or index_file.MAX_HASH_SLOT_NUM,
        max_index_num=found.max_index_num or index_file.MAX_INDEX_NUM,
    )


def check_sizes(sizes: FileSizes) -> None:
    """Raise InvalidOptionError for a size that no broker could use."""
    least = message.MIN_RECORD_BYTES + message.MIN_BLANK_BYTES + 1
    for option, value, low, high in (
        ("mappedFileSizeCommitLog", sizes.commit_log, least, 2**31 - 1),
        ("mappedFileSizeConsumeQueue", sizes.consume_queue, 20, 2**31 - 20),
        ("maxHashSlotNum", sizes.max_hash_slot_num, 1, 2**29 - 1),
        ("maxIndexNum", sizes.max_index_num, 2, 2**31 - 1),
    ):
        if not low <= value <= high:
            raise InvalidOptionError(option, value, f"must be from {low} to {high}")
    if sizes.consume_queue % consume_queue.UNIT.itemsize:
        expected = f"must be a multiple of {consume_queue.UNIT.itemsize}, the size of a unit"
        raise InvalidOptionError("mappedFileSizeConsumeQueue", sizes.consume_queue, expected)
    size = index_file.file_size(sizes.max_hash_slot_num, sizes.max_index_num)
    if size >= 2**31:
        expected = f"an IndexFile of {size} bytes cannot be mapped by a broker: use fewer"
        raise InvalidOptionError("maxIndexNum", sizes.max_index_num, expected)


def create(root: str, sizes: FileSizes, temp_dir: str, undo: Undo) -> None:
    """Fill the directory ``root``, which is held, with an empty store. ``aside`` lies in it."""
    for folder in (names.COMMIT_LOG, names.CONSUME_QUEUE, names.INDEX, names.CONFIG):
        make_directories(root, folder, undo)
    kept = KnownFileSizes(
        commit_log=sizes.commit_log,
        consume_queue=sizes.consume_queue,
        max_hash_slot_num=sizes.max_hash_slot_num,
        max_index_num=sizes.max_index_num,
    )
    replace_file(root, NOTE, note(kept), temp_dir, undo)
    empty = {"dataVersion": {"counter": 0, "timestamp": 0}, "topicConfigTable": {}}
    replace_json(root, TOPICS, empty, temp_dir, undo)
    replace_file(root, names.CHECKPOINT, bytes(checkpoint.FILE_SIZE), temp_dir, undo)

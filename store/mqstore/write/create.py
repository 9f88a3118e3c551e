"""A new, empty store, as a broker that was never written to would leave it."""

from mqstore.errors import InvalidOptionError
from mqstore.files.base.file_sizes import FileSizes, KnownFileSizes
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config.config_write import replace_file, replace_json
from mqstore.files.known_sizes import NOTE, note
from mqstore.format import checkpoint, consume_queue, index_file, message, names
from mqstore.format.config import TOPICS
from mqstore.write.stage.settings import WriteSettings


def sizes_of_new(settings: WriteSettings) -> FileSizes:
    """Return the sizes for a new store: the options', and RocketMQ's defaults for the others."""
    return KnownFileSizes(
        settings.mapped_file_size_commit_log,
        settings.mapped_file_size_consume_queue,
        settings.max_hash_slot_num,
        settings.max_index_num,
    ).or_defaults()


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


def create(writer: StoreWriter) -> None:
    """Fill the directory, which is locked, with an empty store."""
    for folder in (names.COMMIT_LOG, names.CONSUME_QUEUE, names.INDEX, names.CONFIG):
        writer.make_directories(folder)
    replace_file(writer, NOTE, note(writer.sizes))
    empty = {"dataVersion": {"counter": 0, "timestamp": 0}, "topicConfigTable": {}}
    replace_json(writer, TOPICS, empty)
    replace_file(writer, names.CHECKPOINT, bytes(checkpoint.FILE_SIZE))

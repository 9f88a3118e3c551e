"""What a broker derives from the CommitLog, made to agree with it again after a crash.

The CommitLog is the truth and is only read. Nothing needs to be taken back: a rebuild that was
interrupted is run again, and what agrees already is left alone.

Reference: CommitLog#recoverAbnormally (which doDispatch everything from one file on).
"""

from dataclasses import dataclass

from mqstore.files.commit_log import CommitLog
from mqstore.files.store_dir import StoreDir
from mqstore.write.job import StoreSizes
from mqstore.write.log_walk import LogWalk
from mqstore.write.rebuild_queues import EarlierUnitsLostError, QueueRebuild


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild found and did. Where all agreed already, all but three counts are 0."""

    records: int
    """Records from where the walk began to the end of the log."""
    units_written: int
    units_zeroed: int
    files_removed: int
    """ConsumeQueue files without a unit of a record; and short ones, which are whole now."""
    keys_put: int
    tail: int
    """Physical offset where the next record may lie."""
    last_store_timestamp_ms: int
    """Of the last record walked; 0 if there was none."""


def rebuild(
    store: StoreDir,
    start: int,
    *,
    sizes: StoreSizes,
    aside: str,
    fsync: bool,
    with_index: bool = True,
) -> Rebuilt:
    """Make ConsumeQueues and IndexFiles agree with the CommitLog from ``start`` to its end.

    ``start`` is where a record or a file starts; where more than that is lost, all of the log is
    gone through. New files are made in the folder ``aside``. A store without a CommitLog file is
    left as it is. Raises CorruptStoreError, NoSpaceError, OSError; run it again then.
    """
    with CommitLog(store.commit_log) as log:
        if not log.files.files:
            return Rebuilt(0, 0, 0, 0, 0, log.low, 0)
        start = max(start, log.low)
        try:
            return _rebuild(store, log, start, sizes=sizes, aside=aside, fsync=fsync)
        except EarlierUnitsLostError:
            return _rebuild(store, log, log.low, sizes=sizes, aside=aside, fsync=fsync)


def _rebuild(
    store: StoreDir, log: CommitLog, start: int, *, sizes: StoreSizes, aside: str, fsync: bool
) -> Rebuilt:
    walk = LogWalk(log, start)
    queues = QueueRebuild(
        store.root, log, start, file_size=sizes.consume_queue, aside=aside, fsync=fsync
    )
    for records in walk.records():
        queues.feed(records)
    queues.finish()
    return Rebuilt(
        records=walk.count,
        units_written=queues.written,
        units_zeroed=queues.zeroed,
        files_removed=queues.removed,
        keys_put=0,
        tail=walk.tail,
        last_store_timestamp_ms=walk.last_ms,
    )

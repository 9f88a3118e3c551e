"""What a broker derives from the CommitLog, made to agree with it again after a crash.

The CommitLog is the truth and is only read. Nothing needs to be taken back: a rebuild that was
interrupted is run again, and what agrees already is left alone.

Reference: CommitLog#recoverAbnormally (which doDispatch everything from one file on).
"""

import time
from dataclasses import dataclass
from typing import Final

from mqstore.derive.damage import BeyondLogEnd, refuse_damage
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.repair_index import IndexRebuild
from mqstore.derive.repair_queues import EarlierUnitsLostError, QueueRebuild
from mqstore.derive.sound_record import read_record
from mqstore.files.config import checkpoint
from mqstore.files.file_sizes import FileSizes
from mqstore.files.index.index_file import Layout
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.store_dir import StoreDir

_BEFORE_CHECKPOINT_MS: Final = 3000  # StoreCheckpoint#getMinTimestamp


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild found and did. Where all agreed already, all but three counts are 0."""

    records: int
    """Records from where the walk began to the end of the log."""
    units_written: int
    units_zeroed: int
    units_left: int
    """Units whose record says that it is another queue's, between two of their own: damage."""
    files_removed: int
    """ConsumeQueue files without a unit of a record; and short ones, which are whole now."""
    keys_put: int
    tail: int
    """Physical offset where the next record may lie."""
    last_store_timestamp_ms: int
    """Of the last record walked; 0 if there was none."""
    last_physical_offset: int
    """Where the last record that was walked starts; -1 if there was none."""


def rebuild(
    store: StoreDir,
    start: int,
    *,
    sizes: FileSizes,
    temp_dir: str,
    behind: BeyondLogEnd,
    with_index: bool = True,
) -> Rebuilt:
    """Make ConsumeQueues and IndexFiles agree with the CommitLog from ``start`` to its end.

    ``start`` is where a record or a file starts; where more than that is lost, all of the log is
    gone through. New files are made in the folder ``aside``. A store without a CommitLog file is
    left as it is. Raises CorruptStoreError, and then nothing was changed if it is for sound
    records that lie behind the end and are not to be (``behind``); NoSpaceError, OSError: run it
    again then.
    """
    with CommitLog(store.commit_log) as log:
        if not log.files.files:
            return Rebuilt(0, 0, 0, 0, 0, 0, log.low, 0, -1)
        run = _Run(store, log, sizes=sizes, temp_dir=temp_dir, behind=behind, with_index=with_index)
        try:
            return run.from_place(max(start, log.low))
        except EarlierUnitsLostError:
            return run.from_place(log.low)


def recovery_start(store: StoreDir, *, with_index: bool = True) -> int:
    """Return where a broker would begin to dispatch again after a crash: where a file starts.

    That is the newest file whose first record is not newer than the checkpoint, which is what
    was surely dispatched; with ``with_index``, also into the index (messageIndexSafe). Where the
    log starts if there is no such file, no checkpoint, or one that runs ahead of the clock.
    Reference: CommitLog#isMmapFileMatchedRecover, StoreCheckpoint#getMinTimestampIndex.
    """
    with CommitLog(store.commit_log) as log:
        found = checkpoint.load(store.root)
        if found is None:
            return log.low
        dispatched = [int(found["physic_msg_timestamp"]), int(found["logics_msg_timestamp"])]
        safe = min(dispatched) - _BEFORE_CHECKPOINT_MS
        if with_index:
            safe = min(safe, int(found["index_msg_timestamp"]))
        if max(dispatched) > time.time_ns() // 1_000_000:
            return log.low
        for file in reversed(log.files.files):
            record = read_record(log, file.start)
            if record is not None and 0 < record.store_timestamp_ms <= safe:
                return file.start
        return log.low


class _Run:
    """One walk, or a second one from further back."""

    def __init__(
        self,
        store: StoreDir,
        log: CommitLog,
        *,
        sizes: FileSizes,
        temp_dir: str,
        behind: BeyondLogEnd,
        with_index: bool,
    ) -> None:
        self._store = store
        self._log = log
        self._sizes = sizes
        self._temp_dir = temp_dir
        self._behind = behind
        self._with_index = with_index

    def from_place(self, start: int) -> Rebuilt:
        """Walk from ``start``. Raises EarlierUnitsLostError."""
        index = self._index(start) if self._with_index else None
        if index:
            start = index.start
        refuse_damage(self._store.root, self._log, start, self._behind)
        walk = LogWalk(self._log, start)
        queues = QueueRebuild(
            self._store.root,
            self._log,
            start,
            file_size=self._sizes.consume_queue,
            temp_dir=self._temp_dir,
            fsync=True,
        )
        for records in walk.records():
            queues.feed(records)
            if index:
                index.feed(records)
        queues.finish()
        if index:
            index.finish(walk.tail)
        return Rebuilt(
            records=walk.count,
            units_written=queues.written,
            units_zeroed=queues.zeroed,
            units_left=queues.left,
            files_removed=queues.removed,
            keys_put=index.keys_put if index else 0,
            tail=walk.tail,
            last_store_timestamp_ms=walk.last_store_timestamp_ms,
            last_physical_offset=walk.last_physical_offset,
        )

    def _index(self, start: int) -> IndexRebuild:
        layout = Layout(self._sizes.max_hash_slot_num, self._sizes.max_index_num)
        return IndexRebuild(
            self._store.root, self._log, start, layout, temp_dir=self._temp_dir, fsync=True
        )

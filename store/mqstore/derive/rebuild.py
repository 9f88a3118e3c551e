"""Makes ConsumeQueues and IndexFiles agree with the CommitLog again after a crash.

The CommitLog is the truth and is only read. Nothing needs to be taken back: a rebuild that was
interrupted is run again, and what agrees already is left alone.

Reference: CommitLog#recoverAbnormally (which doDispatch everything from one file on).
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mqstore.derive.damage import BeyondLogEnd, refuse_damage
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.repair_index import IndexRebuild
from mqstore.derive.repair_queues import EarlierUnitsLostError, QueueRebuild
from mqstore.derive.sound_record import read_record
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.store import Store

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


@dataclass(frozen=True, slots=True)
class _RebuildSettings:
    behind: BeyondLogEnd
    with_index: bool
    to_end: bool


def rebuild(
    writer: StoreWriter,
    start: int,
    *,
    behind: BeyondLogEnd,
    with_index: bool = True,
    to_end: bool = False,
) -> Rebuilt:
    """Make ConsumeQueues and IndexFiles agree with the CommitLog from ``start`` to its end.

    ``start`` is where a record or a file starts; where more than that is lost, the walk goes
    through all of the log. A store without a CommitLog file is left as it is. Raises
    CorruptStoreError, with nothing changed, for sound records that lie behind the end and may not
    (``behind``), for files of another size, and with ``to_end`` for records at the log's end that
    no queue can have; NoSpaceError, OSError: run it again then.
    """
    settings = _RebuildSettings(behind, with_index=with_index, to_end=to_end)
    with Store(writer.place) as store:
        low = store.log.low
        if not store.log.files.files:
            return Rebuilt(0, 0, 0, 0, 0, 0, low, 0, -1)
        with suppress(EarlierUnitsLostError):
            return _rebuild_from(writer, store, max(start, low), settings)
    with Store(writer.place) as store:
        return _rebuild_from(writer, store, low, settings)


def recovery_start(store: Store, *, with_index: bool = True) -> int:
    """Return where a broker would begin to dispatch again after a crash: where a file starts.

    That is the newest file whose first record is not newer than the checkpoint, which is what
    was surely dispatched; with ``with_index``, also into the index (messageIndexSafe). Where the
    log starts if there is no such file, no checkpoint, or one that runs ahead of the clock.
    Reference: CommitLog#isMappedFileMatchedRecover, StoreCheckpoint#getMinTimestampIndex.
    """
    log, checkpoint = store.log, store.checkpoint()
    if checkpoint is None:
        return log.low
    dispatched = [int(checkpoint[f"{name}_msg_timestamp"]) for name in ("physic", "logics")]
    safe = min(dispatched) - _BEFORE_CHECKPOINT_MS
    if with_index:
        safe = min(safe, int(checkpoint["index_msg_timestamp"]))
    if max(dispatched) > time.time_ns() // 1_000_000:
        return log.low
    for file in reversed(log.files.files):
        record = read_record(log, file.start)
        if record is not None and 0 < record.store_timestamp_ms <= safe:
            return file.start
    return log.low


def _rebuild_from(
    writer: StoreWriter, store: Store, start: int, settings: _RebuildSettings
) -> Rebuilt:
    """Walk from ``start`` twice: what cannot be done is found by the first walk, which only reads.

    Raises EarlierUnitsLostError.
    """
    log = store.log
    index = IndexRebuild(writer, log, start) if settings.with_index else None
    if index:
        start = index.start
    queues = QueueRebuild(writer, log, start)
    first = LogWalk(log, start)
    foreseen = queues.foresee(first.records())
    refuse_damage(store, first.tail, settings.behind)
    if settings.to_end:
        foreseen.refuse_rest(log)
    queues.begin()
    if index:
        index.begin()
    walk = LogWalk(log, start)
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

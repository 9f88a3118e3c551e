"""Make a new, whole store from a damaged one. The damaged one is only read."""

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from mqstore.copy.copy_store import check_apart
from mqstore.copy.damaged_log import find_sources
from mqstore.copy.new_log import CopyProgress
from mqstore.copy.salvage_report import DOUBTED, Report
from mqstore.copy.salvaged_batches import BatchQueues
from mqstore.copy.salvaged_config import (
    carry_config,
    carry_timer,
    complete_topics,
    lose_database,
    put_checkpoint,
)
from mqstore.copy.salvaged_entries import PackedLog
from mqstore.copy.salvaged_log import SalvagedLog
from mqstore.copy.salvaged_queues import SalvagedQueues
from mqstore.copy.salvaged_sizes import sizes_of
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.repair_index import IndexRebuild
from mqstore.derive.walked_log import open_log_queues
from mqstore.errors import NoSpaceError, StoreError
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.new_file import TEMP_FOLDER
from mqstore.files.base.store_dir import StoreDir, open_dir, refuse_compaction
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config.config_write import replace_file
from mqstore.files.config.rocksdb_config import config_databases
from mqstore.files.copy_target import Copy, remove_tree
from mqstore.files.known_sizes import NOTE, note
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.replica_log import ReplicaLog
from mqstore.format import names

_LOG: Final = logging.getLogger(__name__)
_TEMP: Final = f"{names.OURS}/{TEMP_FOLDER}"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SECTIONS: Final = "sections"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result of a salvage."""

    records: int
    """Whole records in the new store."""
    messages: int
    """Those in its queues."""
    queues: int
    lost_bytes: int
    """Bytes of the CommitLog without a whole record."""
    lost_messages: int
    """Queue offsets between whole records that no record has."""
    lost_files: int
    """Files and databases, of configuration and of timers, of which nothing is carried over."""
    doubted: int
    """Records that are in the report and not in the new store."""
    moved: int
    """Records that lay elsewhere than they say."""
    moved_by: int
    """By how much all physical offsets, and so the message ids made of them, are higher."""
    is_packed: bool
    """Whether each record has another physical offset, and so another message id made of it."""
    low: int
    """Physical offset of the first byte of the new log."""
    tail: int
    """Physical offset where the next record goes."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be lost, and no record in doubt."""
        lost = self.lost_bytes or self.lost_messages or self.lost_files
        return not (lost or self.doubted)


def salvage(
    root: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    commit_log: Sequence[str] = (),
    file_size: int | None = None,
    takes_unconfirmed: bool = False,
    progress: CopyProgress | None = None,
) -> Salvaged:
    """Make the new directory ``target`` a whole store of all whole records at ``root``.

    Of a replica of a controller's group what lies behind its agreed end goes into the report only,
    unless ``takes_unconfirmed``.
    ``file_size`` is mappedFileSizeCommitLog; None: what names and sizes of the files say.
    ``progress`` is called with the bytes of the CommitLog that were read, and all there are.
    Where a salvage to ``target`` was killed, what it left is removed first. Raises
    InvalidOptionError for a target that is there, lies in the store, or is being made by another
    process; CorruptStoreError if there is no whole record; StoreNotFoundError, NotAStoreError,
    UnsupportedStoreError, NoSpaceError, OSError. ``target`` is then not there.
    """
    place = open_dir(root, commit_log, by_log=True)
    refuse_compaction(place)
    config_databases(place)
    check_apart(os.fspath(target), [place.root, *commit_log])
    sources = find_sources(place, file_size)
    try:
        with Copy(os.fspath(target)) as copy, Report(copy) as report:
            confirmed = None if takes_unconfirmed else _confirmed(place)
            log = (
                PackedLog(copy, sources, report)
                if place.dledger
                else SalvagedLog(copy, sources, report, confirmed)
            )
            log.take(progress)
            log.fill()
            sizes = sizes_of(place, sources.file_size)
            return _Store(copy, place, sizes, report).make(log)
    except (NoSpaceError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _FULL:
            raise
        reason = "no room for the new store; nothing was left"
        raise NoSpaceError(f"{os.fspath(target)}: {reason} ({error})") from error


def _confirmed(place: StoreDir) -> int | None:
    """Return the physical offset up to which a replica's group agreed; None where all counts.

    Also where it cannot be known, as the disk is damaged: that is a warning.
    """
    if not place.is_replica:
        return None
    reason = "neither its checkpoint nor a ConsumeQueue tells"
    try:
        log = ReplicaLog(place)
        with log:
            confirmed = max(log.confirmed or 0, log.entered)
    except StoreError as error:
        confirmed, reason = 0, error.message()
    if confirmed:
        return confirmed
    _LOG.warning(
        "%s: how far its group agreed on this replica's log cannot be known, so all records are "
        "taken: %s",
        place.root,
        reason,
    )
    return None


class _Store:
    """All of the new store but its log."""

    def __init__(self, copy: Copy, place: StoreDir, sizes: FileSizes, report: Report) -> None:
        self._copy = copy
        self._source = place
        self._report = report
        for folder in (names.CONSUME_QUEUE, names.INDEX, names.CONFIG, _TEMP):
            copy.make_directory(folder)
        temporary = f"{copy.root}/{_TEMP}"
        self._writer = StoreWriter(StoreDir.at(copy.root), temporary, sizes)

    def make(self, log: SalvagedLog | PackedLog) -> Salvaged:
        """Derive queues and index from the log, and carry over what lies beside them."""
        cache = f"{self._copy.root}/{_TEMP}/{_SECTIONS}"
        with closing(open_log_queues(self._writer.place, cache)) as found:
            batches = BatchQueues(self._source, found, self._writer.place.commit_log)
            queues = SalvagedQueues(found, self._writer, self._report, batches)
            queues.plan(log)
            moved_by, blank = queues.shift(log.low)
            if moved_by:
                log.move_up(moved_by)
            if blank is not None:
                log.put_blank_file(blank)
            queues.write(log.low, moved_by)
        remove_tree(f"{self._copy.root}/{_TEMP}", _SECTIONS)
        walk = self._put_keys()
        ends = {queue: plan.high for queue, plan in queues.plans.items()}
        carry_config(self._copy, self._source, ends, self._report)
        carry_timer(self._copy, self._source, self._report, is_moved=moved_by > 0 or log.is_packed)
        lose_database(self._source, ends, self._report)
        complete_topics(self._writer, ends, batches.topics)
        put_checkpoint(self._writer, walk.last_store_timestamp_ms, walk.last_physical_offset)
        replace_file(self._writer, NOTE, note(self._writer.sizes))
        made = Salvaged(
            records=log.records,
            messages=queues.messages,
            queues=len(queues.plans),
            lost_bytes=self._report.lost_bytes,
            lost_messages=self._report.lost_messages,
            lost_files=self._report.lost_files,
            doubted=self._report.counts[DOUBTED],
            moved=log.moved,
            moved_by=moved_by,
            is_packed=log.is_packed,
            low=log.low,
            tail=walk.tail,
        )
        self._report.summary({name: getattr(made, name) for name in made.__dataclass_fields__})
        return made

    def _put_keys(self) -> LogWalk:
        """Write the IndexFiles; return the walk over the log."""
        with CommitLog(self._writer.place.commit_log) as log:
            index = IndexRebuild(self._writer, log, log.low)
            index.begin()
            walk = LogWalk(log, log.low)
            for records in walk.records():
                index.feed(records)
            index.finish(walk.tail)
        return walk

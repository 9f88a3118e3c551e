"""A copy of a store in seconds, also while a broker writes to it: links, and the tails' bytes.

The copy ends at one place of the CommitLog, E, of which ``copy_end`` tells. A broker dispatches
records in the log's order and by one thread (DefaultMessageStore.ReputMessageService#doReput), so
every record before E has its unit by then.
Whatever is copied later is cut there: units that point behind E, keys of records behind E, the
log itself. So no unit points behind the log, and no record of the log is without its unit.

Brokers delete the first files of a queue and of the log. So those are copied last, and what is gone
then is left out together with all before it.

What tells of progress (offsets, checkpoint) is read before E is chosen: it can only be behind.
Files are full, and get a second name, once E lies behind all that they hold; they are the
source's own bytes, so a disk error there is one here too. ``abort`` and ``lock`` belong to the
process that has the source open, and are not copied.

Reference: MessageStoreConfig, StorePathConfigHelper for what lies in a store.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mqstore.copy.beside_queues import take_beside
from mqstore.copy.copy_end import CopyEnd, find_copy_end
from mqstore.derive.unconfirmed import unconfirmed
from mqstore.errors import (
    InvalidOptionError,
    StoreLockedError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import StoreDir, open_dir, rocksdb_queues
from mqstore.files.config import checkpoint, stream_groups
from mqstore.files.config.epochs import COPIED, epoch_data
from mqstore.files.copy_target import Copy, CopyTarget, workplace
from mqstore.files.index import index_cut
from mqstore.files.known_sizes import NOTE
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.files.txn import intent, ledger
from mqstore.format import names
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.format.consume_queue import UNIT
from mqstore.read.directory import open_store, take
from mqstore.read.source import Snapshot
from mqstore.read.tier_bounds import warn_of_living_tier

_LOG: Final = logging.getLogger(__name__)
_BY_SALVAGE: Final = "mqlog salvage --read-uncommitted takes all that the log has"
_LISTINGS: Final = 10
_FILLS: Final = 10
# Kept beside the queues by brokers that are set up so; a broker recovers them at its start.
_BESIDE: Final = ("consumequeue_ext", "timerlog", "timerwheel")


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy has: its bounds, the bytes linked and copied, and files that are left out."""

    snapshot: Snapshot
    linked_bytes: int
    copied_bytes: int
    left_out: tuple[str, ...]


def copy_store(
    root: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    commit_log: Sequence[str] = (),
) -> Copied:
    """Copy the store at ``root`` to the new directory ``target``. The source is only read.

    Several CommitLog folders become one. What a copy to ``target`` that was killed has left is
    removed first. Raises InvalidOptionError for a target that is there, lies in the store, or is
    being made by another process, StoreLockedError if a write began or ended meanwhile, what
    ``mqstore.read.directory.take`` raises, NoSpaceError, OSError; ``target`` is then not there.
    """
    place = open_dir(root, commit_log)  # Before a copy is begun: it may be no store.
    check_apart(os.fspath(target), [os.fspath(root), *commit_log])
    _refuse_databases(place)
    with Copy(os.fspath(target)) as copy:
        filled = filled_again(copy, lambda: fill(copy, place), place.root)
        take(copy.root)  # Raises if the copy cannot be read.
    warn_of_living_tier(place.folder, os.fspath(target))
    return Copied(take(target), copy.linked_bytes, copy.copied_bytes, filled.left_out)


@dataclass(frozen=True, slots=True)
class Filled:
    """The name of the source's broker, and the files that were left out."""

    broker_name: str
    left_out: tuple[str, ...]


def filled_again(copy: CopyTarget, filled: Callable[[], Filled], root: str) -> Filled:
    """Return what ``filled`` took; again from the start where the copy's last file was deleted.

    Raises StoreLockedError where it always is.
    """
    lost: FileNotFoundError | None = None
    for _ in range(_FILLS):
        try:
            return filled()
        except FileNotFoundError as error:
            lost = error
            copy.drop()
    reason = "its broker deletes the files that a copy would end in; try again"
    raise StoreLockedError(f"{root}: {reason}") from lost


def fill(copy: CopyTarget, place: StoreDir) -> Filled:
    """Take the files of the store at ``place``, as of one moment.

    Raises StoreLockedError if a write began or ended meanwhile, FileNotFoundError if the broker
    deleted the file that the copy would end in, and as ``copy_store``.
    """
    _refuse_dledger(place)
    fence = intent.CommitFence(place)
    progress = _progress(place)
    found = take(place.root, commit_log=place.commit_log)
    has_queues = rocksdb_queues(place) is None
    with open_store(place.root, place.commit_log) as store:
        end = find_copy_end(found, store)
        behind = unconfirmed(place, store.log)
        if behind is not None:
            _LOG.warning("%s", behind.left_out(_BY_SALVAGE))
        if has_queues:
            with Store(place) as now:  # With the files that queues got since the look.
                _copy_queues(copy, now, end)
        _copy_log(copy, store.log, end)
        left_out = _copy_index(copy, store, end)
        left_out += take_beside(copy, store, is_unclean=found.is_unclean)
        _copy_config(copy, place, progress)
        _copy_checkpoint(copy, progress.get(names.CHECKPOINT), store.log, end)
    for name in (*_BESIDE, NOTE):
        _copy_files(copy, place, name, deep=True)
    epochs = epoch_data(place)
    if epochs is not None:
        copy.put(COPIED, epochs)
    _copy_ledger(copy, place, is_hidden=fence.cap() is not None)
    ended = fence.cap() is not None and intent.load(place) is None
    if fence.is_over() or ended:
        reason = "a write to the store began or ended meanwhile; copy it again"
        raise StoreLockedError(f"{place.root}: {reason}")
    return Filled(found.broker_name, left_out)


def check_apart(target: str, sources: Sequence[str]) -> None:
    """Raise InvalidOptionError if the copy would lie in its source, or be made over it."""
    made_in = workplace(target)
    for source in sources:
        if _is_in(source, target):
            raise InvalidOptionError("DEST", target, "lies in the store itself")
        if _is_in(made_in, source):
            reason = f"the store lies in {made_in}, where the copy would be made; name another"
            raise InvalidOptionError("DEST", target, reason)


def _is_in(folder: str, path: str) -> bool:
    outer = os.path.realpath(folder)
    return os.path.commonpath([outer, os.path.realpath(path)]) == outer


def _copy_queues(copy: CopyTarget, store: Store, end: CopyEnd) -> None:
    copy.make_directory(names.CONSUME_QUEUE)
    # Listed again: a queue may have been made between the first look and the last.
    for name in store.queues:
        queue = store.queue(*name)
        for tries_left in reversed(range(_LISTINGS)):
            try:
                _copy_queue(copy, queue, end)
                break
            except FileNotFoundError:  # What is needed of it expired since it was listed.
                if not tries_left:
                    raise
                queue = Store(store.place).queue(*name)


def _copy_queue(copy: CopyTarget, queue: Units, end: CopyEnd) -> None:
    cut = _queue_cut(queue, end)
    # Others have nothing from before the end; a first one still tells of what expired.
    wanted = [
        file
        for number, file in enumerate(queue.files.files)
        if file.start < cut or (not number and file.start)
    ]
    _copy_mapped_files(copy, wanted, queue.path, cut)


def _queue_cut(queue: Units, end: CopyEnd) -> int:
    """Return the byte of a queue behind the unit of the last record before the end."""
    low, high = queue.files.low // UNIT.itemsize, queue.bounds(0)[1]
    return queue.first_behind(low, high, end.physical_offset) * UNIT.itemsize


def _copy_log(copy: CopyTarget, log: CommitLog, end: CopyEnd) -> None:
    copy.make_directory(names.COMMIT_LOG)
    wanted = [
        file
        for number, file in enumerate(log.files.files)
        if not number or file.start < end.physical_offset
    ]
    _copy_mapped_files(copy, wanted, names.COMMIT_LOG, end.physical_offset)


def _copy_mapped_files(
    copy: CopyTarget, files: Sequence[MappedFile], folder: str, cut: int
) -> None:
    """Copy files, the last one first, as far as they are there: brokers delete the first ones.

    So none is missing between two others. Raises FileNotFoundError if the last one is not there.
    """
    for file in reversed(files):
        try:
            _copy_mapped(copy, file, f"{folder}/{file.path}", cut)
        except FileNotFoundError:
            if file is files[-1]:
                raise
            break


def _copy_mapped(copy: CopyTarget, file: MappedFile, path: str, cut: int) -> None:
    if file.end <= cut:
        copy.link(file.folder, file.path, path)
    else:
        copy.take(file.folder, file.path, path, end=max(cut - file.start, 0))


def _copy_index(copy: CopyTarget, store: Store, end: CopyEnd) -> tuple[str, ...]:
    copy.make_directory(names.INDEX)
    left_out = []
    files = store.index_files
    for file in files:
        with suppress(FileNotFoundError):  # Expired meanwhile.
            path = f"{names.INDEX}/{file.name}"
            if file is not files[-1] and file.end_physical_offset < end.physical_offset:
                copy.link(store.place.folder, path, path)
            elif not index_cut.copy_before(copy, file, store.log, end.physical_offset):
                left_out.append(path)
    return tuple(left_out)


def _progress(place: StoreDir) -> dict[str, bytes]:
    """Return the files with the progress of consumers, timers and flushes, by path."""
    sizes = {
        f"{names.CONFIG}/{name}": size
        for name, kind, size in place.folder.survey(names.CONFIG)
        if kind == "file" and ("offset" in name.lower() or name.startswith("timercheck"))
    }
    for path, size in sizes.items():
        if size > MAX_CONFIG_BYTES:
            reason = f"{path}: {size} bytes, more than {MAX_CONFIG_BYTES}"
            raise UnsupportedStoreError(place.root, "TOO_LARGE", reason)
    paths = [names.CHECKPOINT, *sizes]
    found = {path: place.folder.read_small(path) for path in paths}
    return {path: data for path, data in found.items() if data is not None}


def _copy_config(copy: CopyTarget, place: StoreDir, progress: dict[str, bytes]) -> None:
    copy.make_directory(names.CONFIG)
    for path, data in progress.items():
        if path != names.CHECKPOINT:
            copy.put(path, data)
    for name, kind, _ in place.folder.survey(names.CONFIG):
        path = f"{names.CONFIG}/{name}"
        # A broker replaces these files; one that is missing now is about to be there again.
        _check_is_here(place, path, kind)
        if kind == "file" and path not in progress:
            _copy_files(copy, place, path, deep=False)


def _copy_checkpoint(copy: CopyTarget, data: bytes | None, log: CommitLog, end: CopyEnd) -> None:
    """Write the checkpoint, not ahead of the copy: a record is flushed before it has its unit."""
    if data is None:
        return
    record = end.last_record
    last_ms = int(record["store_timestamp_ms"]) if record is not None else 0
    last = int(record["physical_offset"]) if record is not None else log.low
    limited = checkpoint.not_ahead(data, last_ms=last_ms, last=last, end=end.physical_offset)
    copy.put(names.CHECKPOINT, limited)


def _check_is_here(place: StoreDir, path: str, kind: str | None) -> None:
    """Raise UnsafePathError for a link: a broker follows it, and a copy without it lacks a part."""
    if kind in {"link", "special"}:
        raise UnsafePathError(f"{place.root}/{path}", "a symbolic link or special file")


def _copy_files(copy: CopyTarget, place: StoreDir, path: str, *, deep: bool) -> None:
    """Copy a file, or a directory's files and, if ``deep``, those below."""
    parent, _, name = path.rpartition("/")
    kind = next((k for n, k, _ in place.folder.survey(parent) if n == name), None)
    _check_is_here(place, path, kind)
    if kind == "file":
        with suppress(FileNotFoundError):
            copy.take(place.folder, path, path)
    elif kind == "directory":
        copy.make_directory(path)
        for child, its_kind, _ in place.folder.survey(path):
            if deep or its_kind == "file":
                _copy_files(copy, place, f"{path}/{child}", deep=deep)


def _copy_ledger(copy: CopyTarget, place: StoreDir, *, is_hidden: bool) -> None:
    """Copy the ledger of commits, and the progress of streams.

    An intent is left out. If it ``is_hidden``, the messages of its commit are left out as well, and
    the ledger must not have it as done; if it is published and a broker entered its messages, the
    ledger must have it.
    """
    left = intent.load(place)
    its_path, its_data = "", b""
    if left is not None and (is_hidden or left.state == intent.PUBLISHED):
        its_path = ledger.path_of(left.key.app_id if left.key else None)
        now_ms = time.time_ns() // 1_000_000
        done = ledger.with_entry(place, left.entry(ledger.DONE, now_ms))
        its_data = ledger.without(place, its_path, left.job_id) if is_hidden else done
        copy.put(its_path, its_data)
    for folder in (ledger.LEDGER_FOLDER, stream_groups.GROUPS_FOLDER):
        for name, kind, _ in place.folder.survey(folder):
            path = f"{folder}/{name}"
            if kind == "file" and name not in intent.INTENT_FILES and path != its_path:
                _copy_files(copy, place, path, deep=False)


def _refuse_dledger(store: StoreDir) -> None:
    if store.dledger:
        reason = (
            f"{store.dledger}: a DLedger log is not copied; copy the directory of a stopped broker"
        )
        raise UnsupportedStoreError(store.root, "DLEDGER", reason)


def _refuse_databases(store: StoreDir) -> None:
    for name, kind, _ in store.folder.survey(names.CONFIG):
        path = f"{names.CONFIG}/{name}"
        if kind == "directory" and any(n == "CURRENT" for n, _, _ in store.folder.survey(path)):
            reason = f"{path} is a RocksDB, which cannot be copied while it is open"
            raise UnsupportedStoreError(store.root, "ROCKSDB_CONFIG", reason)

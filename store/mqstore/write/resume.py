"""Finish what an earlier commit left, before anything else is written to a store.

Called with the store held. What is left is told by the intent and by the log itself, never by
how far a process said it had come:

    the first record stands in the log     published: enter what queues and index lack
    the log still ends where it was        not published: the same steps again
    a broker wrote there                   plan anew, behind it, what did not come back to life

A broker may have been started on the store in between, written, and been killed, many times.

Reference: commit protocol, section ROLL; CommitLog#recoverAbnormally.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.log_end import find_log_end
from mqstore.derive.rebuild import Rebuilt, rebuild, recovery_start
from mqstore.derive.sound_record import read_record
from mqstore.errors import (
    CommitInDoubtError,
    CorruptStagingError,
    UncleanStoreError,
    UnsafePathError,
)
from mqstore.files import durable
from mqstore.files.config import checkpoint, config_write
from mqstore.files.file_sizes import FileSizes, find_sizes
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.files.new_file import FOLDER
from mqstore.files.safe_open import list_names, open_file
from mqstore.files.store_dir import StoreDir
from mqstore.files.undo import Undo, make_directories
from mqstore.format import names
from mqstore.stage.settings import WriteSettings
from mqstore.txn import intent, ledger, staging
from mqstore.txn.intent import Intent
from mqstore.write.apply import (
    Application,
    Check,
    carry_out,
    finish,
    patched,
    remove_abort,
    stamped,
)
from mqstore.write.create import sizes_found
from mqstore.write.log_tail import clear_tail, placed
from mqstore.write.plan import plan
from mqstore.write.revived_records import settle
from mqstore.write.staged_messages import StagedMessages


@contextmanager
def hold(root: str, settings: WriteSettings, job_id: str = "") -> Iterator[Check]:
    """Hold the store for writing; the value raises if it is not ours alone any more.

    Raises StoreLockedError, UnsupportedStoreError.
    """
    held = StoreHold(
        root,
        timeout_ms=settings.lock_timeout_ms,
        allow_no_lease=settings.allow_no_lease,
        job=job_id,
    )
    with held:
        yield held.check


def fresh_temp_dir(root: str, name: str) -> str:
    """Return a folder for files on their way, and remove what earlier commits left of theirs.

    The store is held: nobody else's files are under way.
    """
    folder = f"{names.OURS}/{FOLDER}"
    for left in list_names(root, folder):
        # A new file that has its place already keeps its name there, and that one only.
        staging.remove(f"{root}/{folder}/{left}")
    with durable.synced(wanted=False):  # What is lost with it had no other name yet.
        make_directories(root, f"{folder}/{name}", Undo())
    make_directories(root, ledger.FOLDER, Undo())
    # Ours that were found may be in memory only: whoever made them was killed, perhaps. So may
    # be an intent, on which nothing is to be published before it is durable.
    for holding in (root, f"{root}/{names.OURS}", f"{root}/{ledger.FOLDER}"):
        durable.fsync_directory(holding)
    return f"{root}/{folder}/{name}"


def roll(
    store: StoreDir, settings: WriteSettings, check: Check, behind: BeyondLogEnd | None = None
) -> Intent | None:
    """Leave the store without an intent and without our ``abort``; return what was finished.

    Raises UncleanStoreError if a broker was killed on the store and ``recover_unclean`` is
    not set, CommitInDoubtError if what was staged is not there any more, CorruptStoreError if the
    log is damaged: then nothing was changed, unless ``behind`` says what may be given up.
    """
    left = intent.load(store.root)
    ours = intent.abort_is_ours(store.root)
    before = left is not None and left.abort_was_there
    if store.is_unclean and not ours and not settings.recover_unclean and not before:
        raise UncleanStoreError(_UNCLEAN.format(f"{store.root}/{names.ABORT}"))
    with durable.synced(wanted=True):  # It was promised to whoever began.
        if left is not None:
            temp_dir = fresh_temp_dir(store.root, left.job_id)
            given = behind or BeyondLogEnd.TORN
            _Roll(store, left, temp_dir, check, settings.staging_dir, given).run()
        elif store.is_unclean:
            start, temp_dir = (
                recovery_start(store),
                fresh_temp_dir(store.root, secrets.token_hex(16)),
            )
            given = behind or (BeyondLogEnd.TORN if settings.recover_unclean else BeyondLogEnd.NONE)
            repair(store, start, sizes_of(store), temp_dir, behind=given)
            if ours:
                remove_abort(store.root)
    return left


_UNCLEAN = (
    "{} exists: a broker is running on this store, or it was killed. Stop it cleanly; after a "
    "crash start and stop the broker once, or set recoverUnclean=true to enter its last messages "
    "into their queues here"
)


def repair(
    store: StoreDir,
    start: int,
    sizes: FileSizes,
    temp_dir: str,
    *,
    behind: BeyondLogEnd,
    with_index: bool = True,
) -> Rebuilt:
    """Let queues, index and checkpoint agree with the log from ``start`` on, all durable.

    Raises CorruptStoreError, with nothing changed, for records ``behind`` its end.
    """
    _sync_log(store, start)
    done = rebuild(
        store, start, sizes=sizes, temp_dir=temp_dir, behind=behind, with_index=with_index
    )
    moment = done.last_store_timestamp_ms
    if moment > 0:
        fields = {"physic_msg_timestamp": moment, "logics_msg_timestamp": moment}
        noted = checkpoint.load(store.root)
        if noted is not None and int(noted["logics_physical_offset"]) > done.last_physical_offset:
            fields["logics_physical_offset"] = done.last_physical_offset
        if with_index:
            fields["index_msg_timestamp"] = moment
        config_write.replace_checkpoint(store.root, fields, temp_dir, Undo())
    return done


def sizes_of(store: StoreDir) -> FileSizes:
    """Return the sizes of a store's files; RocketMQ's defaults where nothing tells."""
    return sizes_found(find_sizes(store))


class _Roll:
    """One intent on its way to its end."""

    def __init__(
        self,
        store: StoreDir,
        left: Intent,
        temp_dir: str,
        check: Check,
        staging_dir: str | None,
        behind: BeyondLogEnd,
    ) -> None:
        self._behind = behind
        self._store = store
        self._left = left
        self._temp_dir = temp_dir
        self._check = check
        self._staging_dir = os.path.abspath(staging_dir) if staging_dir else None  # noqa: PTH100

    def run(self) -> None:
        store, left = self._store, self._left
        intent.raise_sequence(store.root, left.tail)
        if ledger.has(store.root, left.key.app_id if left.key else None, left.job_id):
            self._finish(left)
        elif left.state == intent.PUBLISHED:
            self._complete()
        else:
            self._take_up(self._source())

    def _complete(self) -> None:
        """Enter published records into queues and index, and finish."""
        store, left = self._store, self._left
        with CommitLog(store.commit_log) as log:
            low = log.low
        if left.state != intent.PUBLISHED:
            left = intent.published(left)
            intent.store(store.root, left, self._temp_dir)
        # What expired since, a broker had entered: only a broker lets messages expire.
        if low <= left.tail:
            self._repair(with_index=left.key_count > 0)
        self._finish(left)

    def _take_up(self, source: StagedMessages) -> None:
        store, left = self._store, self._left
        with CommitLog(store.commit_log) as log:
            if log.files.files and left.tail < log.low:
                raise self._in_doubt("the files it was to be written to have expired")
            start = after_blank(log, left.tail)
            untouched = start == left.tail and read_record(log, left.tail) is None
            published = start == left.first and self._begins(log, source)
        if published:
            self._write_again(source)
            self._complete()
        elif untouched:
            self._repair()
            self._apply(self._as_it_stands(left), source)
        else:
            self._plan_anew(source)

    def _write_again(self, source: StagedMessages) -> None:
        """Write the same bytes to the same places: they may have been read from memory only."""
        undo = Undo()
        undo.end()
        with suppress(UnsafePathError):  # A copy of the store has linked a full file since.
            Application(self._store, self._left, source, self._temp_dir, undo).write(self._check)

    def _repair(self, *, with_index: bool = True) -> None:
        left = self._left
        sizes = FileSizes(
            left.commit_log_size,
            left.consume_queue_size,
            left.max_hash_slot_num,
            left.max_index_num,
        )
        repair(
            self._store,
            left.tail,
            sizes,
            self._temp_dir,
            behind=self._behind,
            with_index=with_index,
        )

    def _as_it_stands(self, left: Intent) -> Intent:
        """Let the intent know of an ``abort`` that a broker left or removed since."""
        store = self._store
        theirs = store.is_unclean and not intent.abort_is_ours(store.root)
        if theirs != left.abort_was_there:
            left = replace(left, abort_was_there=theirs)
            intent.store(store.root, left, self._temp_dir)
        return left

    def _begins(self, log: CommitLog, source: StagedMessages) -> bool:
        """Tell whether the first record stands where it was planned, byte for byte."""
        left = self._left
        one = next(stamped(left, source, with_records=True))
        size = int(one.frame.messages["size"][0])
        return log.read(left.first, size) == patched(left, one)[:size].tobytes()

    def _plan_anew(self, source: StagedMessages) -> None:
        """Write behind what a broker wrote what it did not bring back to life."""
        store, left = self._store, self._left
        revived, first = settle(store, left, source)
        self._repair()
        before = left.present_mask(source.count)
        total = np.zeros(source.count, np.bool_) if before is None else before.copy()
        total[~total] = revived
        if total.all():
            self._complete()
            return
        rest = source.without(total)
        found = find_log_end(store, known_to=left.end)
        least_ms = found.last_store_timestamp_ms
        what = plan(rest, left.commit_log_size, found, left.store_timestamp_ms, least_ms)
        clear_tail(store, found, Undo(), known_to=left.end)
        changed = replace(
            left,
            state=intent.DECIDED,
            generation=left.generation + 1,
            present=intent.pack(total) if total.any() else "",
            earlier=first if left.earlier is None else left.earlier,
            least_store_timestamp_ms=least_ms,
            **placed(what, store),
        )
        intent.store(store.root, changed, self._temp_dir)
        self._apply(self._as_it_stands(changed), rest)

    def _apply(self, planned: Intent, source: StagedMessages) -> None:
        store = self._store
        undo = Undo()
        undo.end()
        found = find_log_end(store, known_to=planned.end)
        if found.tail != planned.tail:
            raise self._in_doubt(f"the log ends at {found.tail}, not at {planned.tail}")
        try:
            clear_tail(store, found, undo, known_to=planned.end)
            application = Application(store, planned, source, self._temp_dir, undo)
            application.reserve()
            application.settle_index()
        except Exception as error:
            raise self._in_doubt(f"{type(error).__name__}: {error}") from error
        carry_out(store, planned, application, self._temp_dir, self._check)
        self._remove_staged()

    def _finish(self, left: Intent) -> None:
        finish(self._store, left, self._temp_dir)
        self._remove_staged()

    def _remove_staged(self) -> None:
        if self._may_touch():
            staging.remove(self._left.directory(self._store.root))

    def _may_touch(self) -> bool:
        """Tell whether the staged files are in the store, or where our caller says they may be."""
        folder = self._left.staging
        return not folder or os.path.dirname(folder) == self._staging_dir  # noqa: PTH120

    def _source(self) -> StagedMessages:
        left = self._left
        if not self._may_touch():
            raise self._in_doubt(
                "its messages are staged outside the store: give as stagingDir the parent of "
                f"{left.staging}"
            )
        source = StagedMessages(
            directory=left.directory(self._store.root),
            job_id=left.job_id,
            host_variant=left.host_variant,
            segments=left.segments,
        )
        try:
            source = source.without(left.present_mask(source.count))
            for _ in source.verified(bodies=True):
                self._check()
        except (CorruptStagingError, ValueError, OSError) as error:
            raise self._in_doubt(f"what was staged for it cannot be read: {error}") from error
        return source

    def _in_doubt(self, reason: str) -> CommitInDoubtError:
        return CommitInDoubtError(self._store.root, str(self._left), self._left.state, reason)


def _sync_log(store: StoreDir, start: int) -> None:
    """Make the CommitLog durable from ``start`` on, with its files' names, whoever wrote it."""
    with CommitLog(store.commit_log) as log:
        behind = [file for file in log.files.files if file.end > start]
    for file in behind:
        fd = open_file(file.folder, file.path)
        try:
            durable.fsync(fd)
        finally:
            durable.close(fd)
    for folder in sorted({file.folder for file in behind}):
        durable.fsync_directory(folder)

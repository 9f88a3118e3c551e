"""Finish what an earlier commit left, before anything else is written to a store.

What is left is found from the intent and from the log itself, never from how far a process noted
that it had come:

    the first record stands in the log     published: enter what queues and index lack
    the log still ends where it was        not published: the same steps again
    a broker wrote there                   plan anew, behind it, what did not come back to life

In between a broker may have been started on the store, written, and been killed, many times.

Reference: commit protocol, section ROLL; CommitLog#recoverAbnormally.
"""

import os
from contextlib import suppress
from dataclasses import replace

import numpy as np

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.log_end import find_log_end
from mqstore.derive.rebuild import Rebuilt, rebuild, recovery_start
from mqstore.derive.sound_record import read_record
from mqstore.errors import UncleanStoreError, UnsafePathError
from mqstore.files.base import durable
from mqstore.files.base.directory import descriptor
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import checkpoint, config_write
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.files.store import Store
from mqstore.files.txn import intent, ledger, staging
from mqstore.files.txn.errors import CorruptStagingError
from mqstore.files.txn.intent import Intent
from mqstore.format import names
from mqstore.write.apply import Application, assigned_frames, clear_tail, finish, remove_abort
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.locked import LockedStore
from mqstore.write.plan import plan
from mqstore.write.revived_records import settle
from mqstore.write.staged_messages import StagedMessages


def resume(locked: LockedStore, behind: BeyondLogEnd | None = None) -> Intent | None:
    """Leave the store without an intent and without our ``abort``; return what was finished.

    Raises UncleanStoreError if a broker was killed on the store and ``recover_unclean`` is
    not set, CommitInDoubtError if the staged files are not there any more, CorruptStoreError if
    the log is damaged: then nothing was changed, unless ``behind`` says what may be given up.
    """
    place, settings = locked.place, locked.settings
    left = intent.load(place)
    ours = intent.abort_is_ours(place)
    before = left is not None and left.abort_was_there
    if place.is_unclean and not ours and not settings.recover_unclean and not before:
        raise UncleanStoreError(_UNCLEAN.format(f"{place.root}/{names.ABORT}"))
    with durable.synced(wanted=True):  # The commit that is left may have promised it.
        if left is not None:
            _Resumption(locked, left, behind or BeyondLogEnd.TORN).run()
        elif place.is_unclean:
            given_up = BeyondLogEnd.TORN if settings.recover_unclean else BeyondLogEnd.NONE
            writer = locked.writer(locked.known_sizes())
            with Store(place) as store:
                start = recovery_start(store)
            repair(writer, start, behind=behind or given_up)
            if ours:
                remove_abort(writer)
    return left


_UNCLEAN = (
    "{} exists: a broker is running on this store, or it was killed. Stop it cleanly; after a "
    "crash start and stop the broker once, or set recoverUnclean=true to enter its last messages "
    "into their queues here"
)


def repair(
    writer: StoreWriter,
    start: int,
    *,
    behind: BeyondLogEnd,
    with_index: bool = True,
    to_end: bool = False,
) -> Rebuilt:
    """Let queues, index and checkpoint agree with the log from ``start`` on, all durable.

    Raises CorruptStoreError, with nothing changed, for records ``behind`` its end, and with
    ``to_end`` for those at its end that no queue can have.
    """
    _sync_log(writer.place, start)
    done = rebuild(writer, start, behind=behind, with_index=with_index, to_end=to_end)
    moment = done.last_store_timestamp_ms
    if moment > 0:
        fields = {"physic_msg_timestamp": moment, "logics_msg_timestamp": moment}
        noted = checkpoint.load(writer.place)
        if noted is not None and int(noted["logics_physical_offset"]) > done.last_physical_offset:
            fields["logics_physical_offset"] = done.last_physical_offset
        if with_index:
            fields["index_msg_timestamp"] = moment
        config_write.replace_checkpoint(writer, fields)
    return done


class _Resumption:
    """Takes one intent to its end."""

    def __init__(self, locked: LockedStore, left: Intent, behind: BeyondLogEnd) -> None:
        self._writer = locked.writer(left.sizes)
        self._left = left
        self._behind = behind
        given = locked.settings.staging_dir
        self._staging_dir = os.path.abspath(given) if given else None  # noqa: PTH100

    def run(self) -> None:
        writer, left = self._writer, self._left
        intent.raise_sequence(writer, left.tail)
        if ledger.has(writer.place, left.key.app_id if left.key else None, left.job_id):
            self._finish(left)
        elif left.state == intent.PUBLISHED:
            self._complete()
        else:
            self._go_on(self._source())

    def _complete(self) -> None:
        """Enter published records into queues and index, and finish."""
        writer, left = self._writer, self._left
        with CommitLog(writer.place.commit_log) as log:
            low = log.low
        if left.state != intent.PUBLISHED:
            left = intent.published(left)
            intent.store(writer, left)
        # Of records that expired since, a broker had made the units: only a broker expires files.
        if low <= left.tail:
            repair(writer, left.tail, behind=self._behind, with_index=left.key_count > 0)
        self._finish(left)

    def _go_on(self, source: StagedMessages) -> None:
        left = self._left
        with CommitLog(self._writer.place.commit_log) as log:
            if log.files.files and left.tail < log.low:
                raise self._in_doubt("the files it was to be written to have expired")
            start = after_blank(log, left.tail)
            untouched = start == left.tail and read_record(log, left.tail) is None
            published = start == left.first and self._begins(log, source)
        if published:
            self._write_again(source)
            self._complete()
        elif untouched:
            repair(self._writer, left.tail, behind=self._behind)
            self._apply(self._with_abort_as_found(left), source)
        else:
            self._plan_anew(source)

    def _write_again(self, source: StagedMessages) -> None:
        """Write the same bytes to the same places: they may have been read from memory only."""
        with suppress(UnsafePathError):  # A copy of the store has linked a full file since.
            Application(self._writer, self._left, source).write()

    def _with_abort_as_found(self, left: Intent) -> Intent:
        """Store in the intent whether there is an ``abort`` of a broker's now, and return it."""
        theirs = self._writer.place.is_unclean and not intent.abort_is_ours(self._writer.place)
        if theirs != left.abort_was_there:
            left = replace(left, abort_was_there=theirs)
            intent.store(self._writer, left)
        return left

    def _begins(self, log: CommitLog, source: StagedMessages) -> bool:
        """Tell whether the first record stands where it was planned, byte for byte."""
        left = self._left
        first = next(assigned_frames(left, source, with_records=True))
        size = int(first.frame.messages["size"][0])
        return (
            log.read(left.first, size) == first.stored_records(left.host_variant)[:size].tobytes()
        )

    def _plan_anew(self, source: StagedMessages) -> None:
        """Write behind what a broker wrote what it did not bring back to life."""
        writer, left = self._writer, self._left
        revived, first = settle(writer, left, source)
        repair(writer, left.tail, behind=self._behind)
        before = left.present_mask(source.count)
        total = np.zeros(source.count, np.bool_) if before is None else before.copy()
        total[~total] = revived
        if total.all():
            self._complete()
            return
        rest = source.without(total)
        with Store(writer.place) as store:
            found = find_log_end(store, known_to=left.end)
        least_ms = found.last_store_timestamp_ms
        what = plan(rest, left.sizes.commit_log, found, left.store_timestamp_ms, least_ms)
        clear_tail(writer, found, known_to=left.end)
        changed = replace(
            left,
            state=intent.DECIDED,
            generation=left.generation + 1,
            present=intent.pack(total) if total.any() else "",
            earlier=first if left.earlier is None else left.earlier,
            least_store_timestamp_ms=least_ms,
            **what.intent_fields(writer.place),
        )
        intent.store(writer, changed)
        self._apply(self._with_abort_as_found(changed), rest)

    def _apply(self, planned: Intent, source: StagedMessages) -> None:
        with Store(self._writer.place) as store:
            found = find_log_end(store, known_to=planned.end)
        if found.tail != planned.tail:
            raise self._in_doubt(f"the log ends at {found.tail}, not at {planned.tail}")
        try:
            clear_tail(self._writer, found, known_to=planned.end)
            application = Application(self._writer, planned, source)
            application.reserve()
            application.settle_index()
        except Exception as error:
            raise self._in_doubt(f"{type(error).__name__}: {error}") from error
        application.carry_out()
        self._remove_staged()

    def _finish(self, left: Intent) -> None:
        finish(self._writer, left)
        self._remove_staged()

    def _remove_staged(self) -> None:
        if self._may_touch():
            staging.remove(self._left.directory(self._writer.place))

    def _may_touch(self) -> bool:
        """Tell whether the staged files are in the store, or in the option's staging folder."""
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
            directory=left.directory(self._writer.place),
            job_id=left.job_id,
            host_variant=left.host_variant,
            segments=left.segments,
        )
        try:
            source = source.without(left.present_mask(source.count))
            for _ in source.verified(bodies=True):
                self._writer.check()
        except (CorruptStagingError, ValueError, OSError) as error:
            raise self._in_doubt(f"its staged files cannot be read: {error}") from error
        return source

    def _in_doubt(self, reason: str) -> CommitInDoubtError:
        left = self._left
        return CommitInDoubtError(self._writer.root, str(left), left.state, reason)


def _sync_log(store: StoreDir, start: int) -> None:
    """Make the CommitLog durable from ``start`` on, with its files' names."""
    with CommitLog(store.commit_log) as log:
        behind = [file for file in log.files.files if file.end > start]
    for file in behind:
        fd = descriptor(file.folder, file.path)
        try:
            durable.fsync(fd)
        finally:
            durable.close(fd)
    for folder in sorted({file.folder.name for file in behind}):
        durable.fsync_directory(folder)

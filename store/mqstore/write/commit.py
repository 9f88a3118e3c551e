"""The driver's side of a write: staged files become messages, all of them or none.

Space first, then topics.json, then the decision (files/txn/intent.py). Until the decision any error
takes every change back; from then on the commit happens, here or when the store is next opened
for writing.

Memory is bounded by one frame of a staged file and one count for each queue, not by the job.

Reference: commit protocol; DefaultMessageStore (the order in which a broker flushes).
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from mqstore.derive.log_end import find_log_end
from mqstore.errors import CorruptStoreError, NondeterministicWriteError, NoSpaceError, StoreError
from mqstore.files.base import durable
from mqstore.files.base.store_dir import check_writable, open_dir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.base.undo import Undo
from mqstore.files.config import config_write
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.freed_later import freed_later
from mqstore.files.lock.processes import openers
from mqstore.files.lock.store_lock import writers_only
from mqstore.files.store import Store
from mqstore.files.txn import intent, ledger, staging
from mqstore.files.txn.intent import Intent
from mqstore.format import names
from mqstore.write.apply import Application, clear_tail
from mqstore.write.create import create
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.locked import LockedStore
from mqstore.write.merge import in_order
from mqstore.write.plan import Plan, plan, segments_of
from mqstore.write.prepare import is_committed, is_empty
from mqstore.write.resume import resume
from mqstore.write.stage import bad_rows
from mqstore.write.stage.job import CommitResult, Manifest, WriteJob
from mqstore.write.stage.row_digest import as_text, joined
from mqstore.write.staged_messages import StagedMessages

_SCHEDULE_QUEUES = 18
_MARGIN_BYTES = 1 << 20  # of disk, for the small files and directories that come last


def commit(job: WriteJob, manifests: Sequence[Manifest]) -> CommitResult:
    """Append what the tasks staged, in the order of their partitions, once for each key.

    Raises StoreLockedError, UncleanStoreError, UnsupportedStoreError, CorruptStoreError,
    CorruptStagingError, InvalidMessageError (a preserved store timestamp goes back),
    NondeterministicWriteError (the key was committed with other rows),
    NoSpaceError, StoreError (a job of too many queues), OSError: then nothing was changed and
    nothing staged is left. Raises CommitInDoubtError after the decision: then the messages will
    be there.
    """
    with freed_later(job.target.staging):
        try:
            return _commit(job, manifests)
        except CommitInDoubtError:
            raise
        except BaseException:
            abort(job, manifests)
            raise


def _commit(job: WriteJob, manifests: Sequence[Manifest]) -> CommitResult:
    settings = job.settings
    with (
        durable.synced(wanted=settings.fsync == "commit"),
        LockedStore(job.target.place, settings, job.job_id) as locked,
    ):
        committed = _Commit(job, manifests, locked).run()
        staging.remove(job.target.staging)
        staging.collect(f"{job.target.root}/{names.OURS}/{names.STAGING}")
    return committed


def abort(job: WriteJob, manifests: Sequence[Manifest | None]) -> None:
    """Remove what the job staged, and the directories made for it, unless it was decided.

    Spark calls it, in another process than the commit, whenever the commit did not return. A
    commit that still runs may yet decide: then its staged files are left to it, and to ``collect``.
    """
    target = job.target
    with writers_only(target.root, timeout_ms=job.settings.lock_timeout_ms) as alone:
        if _is_decided(job) or (target.place.folder.exists() and not alone):
            return
        with suppress(OSError):
            bad_rows.withdraw(job, [m for m in manifests if m])
        staging.remove(target.staging)
        # There was no store, and there is none; nor does another writer or a broker make one now.
        lock = f"{target.root}/{names.LOCK}"
        is_bare = target.makes_store and set(target.place.folder.names()) <= {
            names.LOCK,
            names.OURS,
        }
        if alone and is_bare and not openers(lock):
            durable.unlink(lock)
    staging.remove_directories(target.made)


def _is_decided(job: WriteJob) -> bool:
    place = job.target.place
    try:
        decided = intent.load(place) if place.folder.exists(ledger.LEDGER_FOLDER) else None
    except (OSError, StoreError):
        return True  # Not known: the staged files may be the only copy of the messages.
    return decided is not None and decided.job_id == job.job_id


class _Commit:
    """The steps of one job on a store that is locked."""

    def __init__(self, job: WriteJob, manifests: Sequence[Manifest], locked: LockedStore) -> None:
        self._job = job
        self._manifests = manifests
        self._locked = locked
        self._place = locked.place
        self._undo = Undo()

    def run(self) -> CommitResult:
        """Commit; take every change back if anything is raised before the decision."""
        try:
            return self._run()
        except BaseException as error:
            for problem in self._undo.run():
                error.add_note(f"and could not be taken back completely: {problem}")
            raise

    def _run(self) -> CommitResult:
        job = self._job
        if job.target.makes_store and is_empty(self._place):
            create(self._locked.writer(job.target.sizes, self._undo))
        check_writable(open_dir(self._place.root))
        resume(self._locked)
        if is_committed(self._place, job.key):
            return self._repeated()
        if job.is_repeated:
            raise StoreError(
                f"{self._place.root}: {job.key} was committed when this write began, and is not "
                "any more: the store was replaced. Nothing was written; write again"
            )
        return self._append(self._locked.writer(job.target.sizes, self._undo))

    def _repeated(self) -> CommitResult:
        """Return the result of a job whose key was committed before."""
        bad_rows.withdraw(self._job, self._manifests)
        self._check_same_rows()
        return CommitResult(0, 0, -1, -1, self._skipped, is_repeated=True)

    def _check_same_rows(self) -> None:
        """Raise NondeterministicWriteError if other rows were committed with the job's key.

        Nothing is known of a commit that is not among the newest of its application. One by an
        older mqlog has a number of rows and no digest.
        """
        job = self._job
        now = sum(segment.message_count for segment in segments_of(self._manifests))
        now += sum(manifest.passed_over for manifest in self._manifests)
        known = ledger.find(self._place, job.key) if job.key else None
        # Rows that were counted and not checked may include bad rows, which were not committed.
        may_be_more = job.is_repeated and job.settings.on_invalid != "fail"
        if known is None or known.digest == self._digest:
            return
        if known.digest is None and (known.rows == now or (may_be_more and known.rows < now)):
            return
        those = "others" if known.rows == now else f"{now} rows"
        difference = f"{known.rows} rows were committed as this write, and now it has {those}"
        raise NondeterministicWriteError(f"{self._place.root}: {job.key}", difference)

    @property
    def _digest(self) -> str:
        total = 0
        for manifest in self._manifests:
            total = joined(total, manifest.digest)
        return as_text(total)

    @property
    def _skipped(self) -> int:
        return sum(manifest.skipped for manifest in self._manifests)

    def _append(self, writer: StoreWriter) -> CommitResult:
        self._check_sizes()
        with Store(self._place) as store:
            found = find_log_end(store)
        source = StagedMessages.of(self._job, in_order(self._job, segments_of(self._manifests)))
        what = plan(source, writer.sizes.commit_log, found, time.time_ns() // 1_000_000)
        planned = self._intent(what, source)
        intent.check_size(planned)
        if not what.messages:
            self._publish_bad_rows()
            self._note_empty(writer, planned)
            return CommitResult(0, 0, -1, -1, planned.skipped)
        application = Application(writer, planned, source)
        application.reserve()
        clear_tail(writer, found)
        config_write.add_topics(writer, self._queue_nums(what))
        application.settle_index()
        self._check_room()
        self._publish_bad_rows()
        intent.check_sequence(writer)
        writer.check()
        self._decide(writer, planned)
        application.carry_out()
        size = sum(segment.records_bytes for segment in source.segments)
        return CommitResult(what.messages, size, what.first, what.last, planned.skipped)

    def _intent(self, what: Plan, source: StagedMessages) -> Intent:
        job = self._job
        own = f"{job.target.root}/{names.OURS}/{names.STAGING}/{job.job_id}"
        return Intent(
            job_id=job.job_id,
            key=job.key,
            staging="" if job.target.staging == own else job.target.staging,
            segments=source.segments,
            host_variant=source.host_variant,
            skipped=self._skipped,
            sizes=job.target.sizes,
            interlock=job.settings.interlock,
            abort_was_there=self._place.is_unclean,
            digest=self._digest if job.key else None,
            **what.intent_fields(self._place),
        )

    def _decide(self, writer: StoreWriter, planned: Intent) -> None:
        """Make the decision durable, or take it back for certain."""
        try:
            intent.store(writer, planned)
            self._undo.end()  # In the try: an interrupt before it takes the decision back.
        except BaseException as error:
            try:
                intent.remove(writer)
            except OSError:
                self._undo.end()
                reason = f"{type(error).__name__}: {error}"
                raise CommitInDoubtError(
                    writer.root, str(planned), planned.state, reason
                ) from error
            raise

    def _check_sizes(self) -> None:
        found, planned = Store(self._place).sizes.commit_log, self._job.target.sizes.commit_log
        if found is not None and found != planned:
            reason = f"files are {found} bytes long; {planned} were planned for"
            raise CorruptStoreError(self._place.commit_log[0].name, 0, reason)

    def _check_room(self) -> None:
        disk = os.statvfs(self._place.root)
        if disk.f_bavail * disk.f_frsize < _MARGIN_BYTES:
            raise NoSpaceError(f"{self._place.root}: less than {_MARGIN_BYTES} bytes would be left")

    def _publish_bad_rows(self) -> None:
        self._undo.remember(lambda: bad_rows.withdraw(self._job, self._manifests))
        bad_rows.publish(self._job, self._manifests)

    def _note_empty(self, writer: StoreWriter, planned: Intent) -> None:
        """Let a batch without rows count as committed too; a stream notes its bad rows."""
        if planned.key is not None and (planned.key.query_id is None or planned.skipped):
            ledger.record(writer, planned.entry(ledger.DONE, time.time_ns() // 1_000_000))

    def _queue_nums(self, what: Plan) -> dict[str, int]:
        """Return how many queues each topic of the job must have in topics.json."""
        needed: dict[str, int] = {}
        listed = BrokerConfig(self._place).topics()
        for topic, queue_id in what.queue_counts:
            least = 0
            if topic == names.SCHEDULE_TOPIC:
                least = _SCHEDULE_QUEUES
            elif topic not in listed:
                # It may have queues all the same, which its entry must then reach.
                known = self._job.topics.get(topic)
                least = known.named if known else self._job.settings.new_topic_queues
            needed[topic] = max(needed.get(topic, least), queue_id + 1)
        return needed

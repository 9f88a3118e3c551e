"""The driver's side of a write: staged files become messages, all of them or none.

Space first, then topics.json, then the decision (txn/intent.py). Until the decision every
change can be taken back, and is, whatever is raised; from then on the commit happens, here or
when the store is next opened for writing.

Memory is bounded by one frame of a staged file and one count for each queue, not by the job.

Reference: commit protocol; DefaultMessageStore (the order in which a broker flushes).
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from mqstore.derive.log_end import find_log_end
from mqstore.errors import CommitInDoubtError, CorruptStoreError, NoSpaceError, StoreError
from mqstore.files import durable
from mqstore.files.config import broker_config, config_write
from mqstore.files.file_sizes import find_sizes
from mqstore.files.lock.processes import openers
from mqstore.files.lock.store_lock import writers_only
from mqstore.files.new_file import FOLDER
from mqstore.files.safe_open import exists, list_names
from mqstore.files.store_dir import StoreDir, check_writable, open_dir
from mqstore.files.undo import Undo
from mqstore.format import names
from mqstore.stage import bad_rows
from mqstore.stage.job import CommitResult, Manifest, WriteJob
from mqstore.txn import intent, ledger, staging
from mqstore.txn.intent import Intent
from mqstore.write.apply import Application, Check, carry_out
from mqstore.write.create import create
from mqstore.write.log_tail import clear_tail, placed
from mqstore.write.merge import in_order
from mqstore.write.plan import Plan, plan, segments_of
from mqstore.write.prepare import is_committed, is_empty
from mqstore.write.resume import fresh_temp_dir, hold, roll
from mqstore.write.staged_messages import StagedMessages

_SCHEDULE_QUEUES = 18
_MARGIN_BYTES = 1 << 20  # of disk, for the small files and directories that come last


def commit(job: WriteJob, manifests: Sequence[Manifest]) -> CommitResult:
    """Append what the tasks staged, in the order of their partitions, once for each key.

    Raises StoreLockedError, UncleanStoreError, UnsupportedStoreError, CorruptStoreError,
    CorruptStagingError, InvalidMessageError (a preserved store timestamp goes back),
    NoSpaceError, StoreError (a job of too many queues), OSError: then nothing was changed and
    nothing staged is left. Raises CommitInDoubtError after the decision: then the messages will
    be there.
    """
    try:
        with (
            durable.synced(wanted=job.settings.fsync == "commit"),
            hold(job.root, job.settings, job.job_id) as check,
        ):
            try:
                committed = _commit(job, manifests, check)
                staging.remove(job.staging)
                staging.collect(f"{job.root}/{names.OURS}/{names.STAGING}")
            finally:
                _tidy(job)
    except CommitInDoubtError:
        raise
    except BaseException:
        abort(job, manifests)
        raise
    return committed


def abort(job: WriteJob, manifests: Sequence[Manifest | None]) -> None:
    """Remove what the job staged, and the directories made for it, unless it was decided.

    Spark calls it, in another process than the commit, whenever the commit did not return: one
    that is still at work may yet decide, and then what it staged is left to it, and to ``collect``.
    """
    with writers_only(job.root, timeout_ms=job.settings.lock_timeout_ms) as alone:
        if _is_decided(job) or (exists(job.root, "") and not alone):
            return
        with suppress(OSError):
            bad_rows.withdraw(job, [m for m in manifests if m])
        staging.remove(job.staging)
        # There was no store, and there is none; nor does another writer or a broker make one now.
        lock = f"{job.root}/{names.LOCK}"
        is_bare = job.makes_store and set(list_names(job.root)) <= {names.LOCK, names.OURS}
        if alone and is_bare and not openers(lock):
            durable.unlink(lock)
    staging.remove_directories(job.made)


def _is_decided(job: WriteJob) -> bool:
    try:
        decided = intent.load(job.root) if exists(job.root, ledger.FOLDER) else None
    except (OSError, StoreError):
        return True  # Nobody can tell: what is staged may be all there is.
    return decided is not None and decided.job_id == job.job_id


def _commit(job: WriteJob, manifests: Sequence[Manifest], check: Check) -> CommitResult:
    root, settings = job.root, job.settings
    undo = Undo()
    with _taken_back(undo):
        if job.makes_store and is_empty(root):
            create(root, job.sizes, fresh_temp_dir(root, job.job_id), undo)
        store = open_dir(root)
        check_writable(store)
        roll(store, settings, check)
        if is_committed(root, job.key):
            bad_rows.withdraw(job, manifests)
            skipped = sum(manifest.skipped for manifest in manifests)
            another = _another(job, manifests)
            return CommitResult(0, 0, -1, -1, skipped, is_repeated=True, another=another)
        if job.is_repeated:
            raise StoreError(
                f"{root}: {job.key} was committed when this write began, and is not any more: the "
                "store was replaced. Nothing was written; write again"
            )
        temp_dir = fresh_temp_dir(root, job.job_id)
        return _Commit(job, store, temp_dir, undo).run(manifests, check)


def _tidy(job: WriteJob) -> None:
    """Remove folders of ours that are empty."""
    ours = f"{job.root}/{names.OURS}"
    folders = (names.STAGING, FOLDER, f"{FOLDER}/{job.job_id}")
    staging.remove_directories([f"{job.root}/{ledger.FOLDER}", *(f"{ours}/{f}" for f in folders)])


def _another(job: WriteJob, manifests: Sequence[Manifest]) -> str:
    """Tell what was committed with the job's key, if that were other rows: nobody writes these."""
    now = sum(segment.message_count for segment in segments_of(manifests))
    now += sum(manifest.passed_over for manifest in manifests)
    known = ledger.find(job.root, job.key) if job.key else None
    # Rows that nobody looked at may be bad ones more than those that were committed.
    may_be_more = job.is_repeated and job.settings.on_invalid != "fail"
    if known is None or known.rows == now or (may_be_more and known.rows < now):
        return ""
    return f"{known.rows} rows were committed as {job.key}, the {now} of now are not written"


@contextmanager
def _taken_back(undo: Undo) -> Iterator[None]:
    """Take every change back if the block raises, whatever it raises."""
    try:
        yield
    except BaseException as error:
        for problem in undo.run():
            error.add_note(f"and could not be taken back completely: {problem}")
        raise


class _Commit:
    """The steps of one job, on a store that is held and in order."""

    def __init__(self, job: WriteJob, store: StoreDir, temp_dir: str, undo: Undo) -> None:
        self._job = job
        self._store = store
        self._temp_dir = temp_dir
        self._undo = undo

    def run(self, manifests: Sequence[Manifest], check: Check) -> CommitResult:
        self._check_sizes()
        found = find_log_end(self._store)
        source = StagedMessages.of(self._job, in_order(self._job, segments_of(manifests)))
        what = plan(source, self._job.sizes.commit_log, found, time.time_ns() // 1_000_000)
        planned = self._intent(what, source, sum(manifest.skipped for manifest in manifests))
        intent.check_size(planned)
        if not what.messages:
            self._publish_side(manifests)
            self._note_empty(planned)
            return CommitResult(0, 0, -1, -1, planned.skipped)
        application = Application(self._store, planned, source, self._temp_dir, self._undo)
        application.reserve()
        clear_tail(self._store, found, self._undo)
        config_write.add_topics(
            self._store.root, self._queue_nums(what), self._temp_dir, self._undo
        )
        application.settle_index()
        self._check_room()
        self._publish_side(manifests)
        intent.check_sequence(self._store.root)
        check()
        self._decide(planned)
        carry_out(self._store, planned, application, self._temp_dir, check)
        size = sum(segment.records_bytes for segment in source.segments)
        return CommitResult(what.messages, size, what.first, what.last, planned.skipped)

    def _intent(self, what: Plan, source: StagedMessages, skipped: int) -> Intent:
        job = self._job
        own = f"{job.root}/{names.OURS}/{names.STAGING}/{job.job_id}"
        return Intent(
            job_id=job.job_id,
            key=job.key,
            staging="" if job.staging == own else job.staging,
            segments=source.segments,
            host_variant=source.host_variant,
            skipped=skipped,
            commit_log_size=job.sizes.commit_log,
            consume_queue_size=job.sizes.consume_queue,
            max_hash_slot_num=job.sizes.max_hash_slot_num,
            max_index_num=job.sizes.max_index_num,
            fsync=job.settings.fsync == "commit",
            interlock=job.settings.interlock,
            abort_was_there=self._store.is_unclean,
            **placed(what, self._store),
        )

    def _decide(self, planned: Intent) -> None:
        """Make the decision durable, or take it back for certain."""
        try:
            intent.store(self._store.root, planned, self._temp_dir)
            self._undo.end()  # In here: who is interrupted before it takes the decision back.
        except BaseException as error:
            try:
                intent.remove(self._store.root)
            except OSError:
                self._undo.end()
                reason = f"{type(error).__name__}: {error}"
                raise CommitInDoubtError(
                    self._store.root, str(planned), planned.state, reason
                ) from error
            raise

    def _check_sizes(self) -> None:
        found = find_sizes(self._store).commit_log
        if found is not None and found != self._job.sizes.commit_log:
            reason = f"files are {found} bytes long; {self._job.sizes.commit_log} were planned for"
            raise CorruptStoreError(self._store.commit_log[0], 0, reason)

    def _check_room(self) -> None:
        told = os.statvfs(self._store.root)
        if told.f_bavail * told.f_frsize < _MARGIN_BYTES:
            raise NoSpaceError(f"{self._store.root}: less than {_MARGIN_BYTES} bytes would be left")

    def _publish_side(self, manifests: Sequence[Manifest]) -> None:
        self._undo.remember(lambda: bad_rows.withdraw(self._job, manifests))
        bad_rows.publish(self._job, manifests)

    def _note_empty(self, planned: Intent) -> None:
        """Let a batch without rows count as committed too; a stream notes its bad rows."""
        if planned.key is not None and (planned.key.query_id is None or planned.skipped):
            now_ms = time.time_ns() // 1_000_000
            ledger.record(self._store.root, planned.entry(ledger.DONE, now_ms), self._temp_dir)

    def _queue_nums(self, what: Plan) -> dict[str, int]:
        """Return how many queues each topic of the job must have in topics.json."""
        needed: dict[str, int] = {}
        listed = broker_config.topics(self._store.root)
        for topic, queue_id in what.queue_counts:
            least = 0
            if topic == names.SCHEDULE_TOPIC:
                least = _SCHEDULE_QUEUES
            elif topic not in listed:
                # It may have queues all the same, which its entry must then reach.
                least = self._job.topics.get(topic, self._job.settings.queue_nums)
            needed[topic] = max(needed.get(topic, least), queue_id + 1)
        return needed

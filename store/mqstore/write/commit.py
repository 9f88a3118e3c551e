"""The driver's side of a write: staged files become messages, all of them or none.

The order of the steps is that of the store's own crash safety: space first, then topics.json,
CommitLog, ConsumeQueue, IndexFile, checkpoint, each durable before the next. Until the last one
every change can be taken back, and is, whatever is raised: then the store is as it was.

Memory is bounded by one frame of a staged file and one count for each queue, not by the job.

Reference: DefaultMessageStore (the order in which a broker flushes); format.md §5.8.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

import numpy as np

from mqstore.codec.patch import patch
from mqstore.errors import CorruptStoreError
from mqstore.files import config, config_write, durable, staging
from mqstore.files.append import CommitLogAppender
from mqstore.files.append_index import IndexAppender
from mqstore.files.append_queue import QueueAppender
from mqstore.files.aside import FOLDER
from mqstore.files.commit_log import CommitLog
from mqstore.files.hold import StoreHold
from mqstore.files.index_file import Layout
from mqstore.files.log_end import next_record
from mqstore.files.safe_open import exists
from mqstore.files.scrub import scrub
from mqstore.files.segment import Segment, read_frames
from mqstore.files.sizes import find_sizes
from mqstore.files.store_dir import StoreDir, open_dir
from mqstore.files.undo import Undo, make_directories
from mqstore.files.writable import check_writable
from mqstore.format import names
from mqstore.write import side
from mqstore.write.create import create
from mqstore.write.dispatch import Queue, Stamped, Stamper, write_units
from mqstore.write.job import Committed, Manifest, WriteJob
from mqstore.write.merge import in_order
from mqstore.write.place import Placement
from mqstore.write.plan import Plan, plan, segments_of
from mqstore.write.prepare import check_clean, is_empty
from mqstore.write.survey import Survey, next_queue_offset, survey

_SCHEDULE_QUEUES = 18


def commit(job: WriteJob, manifests: Sequence[Manifest]) -> Committed:
    """Append what the tasks staged, in the order of their partitions.

    Raises StoreLockedError, UncleanStoreError, UnsupportedStoreError, CorruptStoreError,
    CorruptStagingError, InvalidMessageError (a preserved store timestamp goes back),
    NoSpaceError, OSError. Then nothing was changed and nothing staged is left.
    """
    try:
        committed = _commit(job, manifests)
    except BaseException:
        abort(job, manifests)
        raise
    _tidy(job)
    return committed


def abort(job: WriteJob, manifests: Sequence[Manifest | None]) -> None:
    """Remove what the job staged, and the directories made for it. The store is not touched."""
    with suppress(OSError):
        side.withdraw(side.directory_of(job.settings), [m for m in manifests if m])
    staging.remove(job.staging)
    staging.remove_directories(job.made)


def _commit(job: WriteJob, manifests: Sequence[Manifest]) -> Committed:
    undo = Undo()
    aside = f"{names.OURS}/{FOLDER}/{job.job_id}"
    lock = f"{job.root}/{names.LOCK}"
    with _taken_back(undo):
        make_directories(job.root, aside, undo)
        if job.makes_store and is_empty(job.root):
            create(job.root, job.sizes, f"{job.root}/{aside}", undo)
        store = open_dir(job.root)
        check_writable(store)
        if not exists(store.root, names.LOCK):
            undo.remember(lambda: durable.unlink(lock))
        with (
            StoreHold(
                job.root,
                timeout_ms=job.settings.lock_timeout_ms,
                allow_no_lease=job.settings.allow_no_lease,
                job=job.job_id,
            ),
            _taken_back(undo),
        ):
            check_clean(store)
            committed = _Commit(job, store, f"{job.root}/{aside}", undo).run(manifests)
            undo.remember(lambda: side.withdraw(side.directory_of(job.settings), manifests))
            side.publish(side.directory_of(job.settings), manifests)
    return committed


@contextmanager
def _taken_back(undo: Undo) -> Iterator[None]:
    """Take every change back if the block raises, whatever it raises."""
    try:
        yield
    except BaseException as error:
        for problem in undo.run():
            error.add_note(f"and could not be taken back completely: {problem}")
        raise


def _tidy(job: WriteJob) -> None:
    """Remove what a committed job does not need any more, as far as it can be removed."""
    staging.remove(job.staging)
    ours = f"{job.root}/{names.OURS}"
    folders = (f"{ours}/{names.STAGING}", f"{ours}/{FOLDER}", f"{ours}/{FOLDER}/{job.job_id}")
    staging.remove_directories([ours, *folders])


class _Commit:
    """The steps, under the store's lock."""

    def __init__(self, job: WriteJob, store: StoreDir, aside: str, undo: Undo) -> None:
        self._job = job
        self._store = store
        self._aside = aside
        self._undo = undo
        self._fsync = job.settings.fsync == "commit"

    def run(self, manifests: Sequence[Manifest]) -> Committed:
        skipped = sum(manifest.skipped for manifest in manifests)
        self._check_sizes()
        found = survey(self._store)
        segments = in_order(self._job, segments_of(manifests))
        what = plan(self._job, segments, found, time.time_ns() // 1_000_000)
        if not what.messages:
            return Committed(0, 0, -1, -1, skipped)
        starts = {
            queue: next_queue_offset(self._store, *queue, found.tail)
            for queue, count in what.queue_counts.items()
            if count
        }
        log, queues, index = self._reserve(what, starts)
        self._clear_tail(found)
        config_write.add_topics(self._store.root, self._queue_nums(what), self._aside, self._undo)
        log.make_files()
        first, last, moment = self._append(log, segments, what, starts)
        write_units(self._stamped(segments, what, starts), queues)
        for queue in queues.values():
            queue.close()
        self._put_keys(index, self._stamped(segments, what, starts))
        self._set_checkpoint(index, last, moment)
        size = sum(segment.records_bytes for segment in segments)
        return Committed(what.messages, size, first, last, skipped)

    def _check_sizes(self) -> None:
        found = find_sizes(self._store).commit_log
        if found is not None and found != self._job.sizes.commit_log:
            reason = f"files are {found} bytes long; {self._job.sizes.commit_log} were planned for"
            raise CorruptStoreError(self._store.commit_log[0], 0, reason)

    def _reserve(
        self, what: Plan, starts: Mapping[Queue, int]
    ) -> tuple[CommitLogAppender, dict[Queue, QueueAppender], IndexAppender | None]:
        """Set all space aside that the commit needs, before anything visible changes."""
        sizes, root = self._job.sizes, self._store.root
        log = CommitLogAppender(
            self._store.commit_log[0],
            self._aside,
            file_size=sizes.commit_log,
            log_start=what.log_start,
            fsync=self._fsync,
            undo=self._undo,
        )
        log.reserve(what.tail, what.end)
        queues = {}
        for queue, start in starts.items():
            queues[queue] = QueueAppender(
                root, *queue, file_size=sizes.consume_queue, fsync=self._fsync, undo=self._undo
            )
            queues[queue].reserve(start, start + what.queue_counts[queue], self._aside)
        index = None
        if what.key_count:
            layout = Layout(sizes.max_hash_slot_num, sizes.max_index_num)
            index = IndexAppender(root, self._aside, layout, fsync=self._fsync, undo=self._undo)
            self._begin_file_behind_gap(index, what.tail)
            index.reserve(what.key_count)
        return log, queues, index

    def _begin_file_behind_gap(self, index: IndexAppender, tail: int) -> None:
        """Begin a new IndexFile if the last one lacks records before ``tail``.

        An IndexFile is taken to have all keys between its first record and its last.
        """
        last = index.last_physical_offset
        if last is None:
            return
        with CommitLog(self._store.commit_log) as log:
            if next_record(log, last) < tail:
                index.end_file()

    def _clear_tail(self, found: Survey) -> None:
        if found.garbage:
            low, high = found.garbage
            scrub(self._store, low, high, self._undo)

    def _queue_nums(self, what: Plan) -> dict[str, int]:
        """Return how many queues each topic of the job must have in topics.json."""
        needed: dict[str, int] = {}
        listed = config.topics(self._store.root)
        for topic, queue_id in what.queue_counts:
            least = 0
            if topic == names.SCHEDULE_TOPIC:
                least = _SCHEDULE_QUEUES
            elif topic not in listed:
                # It may have queues all the same, which its entry must then reach.
                least = self._job.topics.get(topic, self._job.settings.queue_nums)
            needed[topic] = max(needed.get(topic, least), queue_id + 1)
        return needed

    def _stamped(
        self,
        segments: Sequence[Segment],
        what: Plan,
        starts: Mapping[Queue, int],
        *,
        with_records: bool = False,
    ) -> Iterator[Stamped]:
        """Yield all frames in the order of the commit, with the same stamps each time."""
        placement = Placement(what.tail, self._job.sizes.commit_log, what.log_start)
        stamper = Stamper(placement, starts, what.store_timestamp_ms)
        for segment in segments:
            for frame in read_frames(self._job.staging, segment, with_records=with_records):
                yield stamper.stamp(frame)

    def _append(
        self,
        log: CommitLogAppender,
        segments: Sequence[Segment],
        what: Plan,
        starts: Mapping[Queue, int],
    ) -> tuple[int, int, int]:
        """Write all records; return the places of the first and the last, and its time."""
        first = last = moment = -1
        try:
            for stamped in self._stamped(segments, what, starts, with_records=True):
                places = stamped.placed.physical_offsets
                first = int(places[0]) if first < 0 else first
                last, moment = int(places[-1]), int(stamped.store_timestamps_ms[-1])
                self._write(log, stamped)
        finally:
            log.close()
        return first, last, moment

    def _write(self, log: CommitLogAppender, stamped: Stamped) -> None:
        sizes = stamped.frame.messages["size"].astype(np.int64)
        places = stamped.placed.physical_offsets
        starts = np.cumsum(sizes) - sizes
        records = stamped.frame.records
        patch(
            records,
            starts,
            queue_offsets=stamped.queue_offsets,
            physical_offsets=places,
            store_timestamps_ms=stamped.store_timestamps_ms,
            host_variant=self._job.hosts.variant,
        )
        gaps = np.flatnonzero(places[1:] != places[:-1] + sizes[:-1]) + 1
        edges = [0, *gaps.tolist(), len(places)]
        runs = {
            int(places[a]): records[int(starts[a]) : int(starts[b - 1] + sizes[b - 1])]
            for a, b in pairwise(edges)
        }
        for place in sorted({*runs, *stamped.placed.blanks}):
            if place in runs:
                log.write(place, runs[place].data)
            else:
                log.blank(place)

    def _put_keys(self, index: IndexAppender | None, stamped: Iterator[Stamped]) -> None:
        if index is None:
            return
        for one in stamped:
            index.append(one.index_keys(), lambda: _index_name(index.last_name))
        index.close()

    def _set_checkpoint(self, index: IndexAppender | None, last: int, moment: int) -> None:
        fields = {
            "physic_msg_timestamp": moment,
            "logics_msg_timestamp": moment,
            "confirm_phy_offset": 0,
            "logics_physical_offset": last,
        }
        if index is not None:
            # Abnormal recovery deletes an IndexFile that ends later than this says, and rebuilds
            # it from the last CommitLog files alone: older keys would be gone. Differs from the
            # broker, which tells of full files only; ours is durable, full or not.
            fields["index_msg_timestamp"] = moment
        config_write.replace_checkpoint(self._store.root, fields, self._aside, self._undo)


def _index_name(last: str) -> str:
    """Return a name for an IndexFile made now, later than the ``last`` one's.

    Like a broker's it is in local time: the clock that the names of its other files tell.
    """
    now = time.time_ns() // 1_000_000
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
    return max(name, f"{int(last) + 1:017d}") if last else name

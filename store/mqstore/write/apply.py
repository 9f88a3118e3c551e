"""The steps that append one decided commit, in the order that no crash can tear.

Everything is a function of the intent and the staged files, so that whoever finds the intent can
take the same steps again. Until the one byte of ``publish`` a broker that starts sees nothing of
the commit; from then on it sees all of it, and because ``abort`` is there it enters into its
queues and index whatever we did not.

Reference: commit protocol, steps 10 to 28; DefaultMessageStore (the order a broker flushes in).
"""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from mqstore.arrays import Bytes
from mqstore.codec.dispatch import Queue
from mqstore.codec.patch import patch
from mqstore.derive.index_keys import has_keys
from mqstore.errors import CommitInDoubtError
from mqstore.files import durable
from mqstore.files.config import checkpoint, config_write
from mqstore.files.index.index_append import IndexAppender, next_name
from mqstore.files.index.index_file import Layout, list_index_files
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_append import CommitLogAppender
from mqstore.files.log.log_end import next_record
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.safe_open import exists, open_file
from mqstore.files.store_dir import StoreDir
from mqstore.files.undo import Undo
from mqstore.format import names
from mqstore.txn import intent, ledger
from mqstore.txn.intent import Intent
from mqstore.write.dispatch import AssignedFrame, OffsetAssigner, write_units
from mqstore.write.place import Placement
from mqstore.write.staged_messages import StagedMessages

_LOG = logging.getLogger(__name__)
_MAYBE: Final = "decided and perhaps published"
_LOOKED_THROUGH: Final = 64 << 20  # bytes of records, a tenth of a second

Check: TypeAlias = Callable[[], None]


class Application:
    """One commit on its way into a store that is held."""

    def __init__(
        self, store: StoreDir, planned: Intent, source: StagedMessages, temp_dir: str, undo: Undo
    ) -> None:
        self._store = store
        self._planned = planned
        self._source = source
        self._temp_dir = temp_dir
        self._undo = undo
        self._log = CommitLogAppender(
            store.commit_log[0],
            temp_dir,
            file_size=planned.commit_log_size,
            log_start=planned.log_start,
            fsync=planned.fsync,
            undo=undo,
        )
        self._queues: dict[Queue, QueueAppender] = {}
        self._index: IndexAppender | None = None

    def reserve(self) -> None:
        """Set all space aside that the commit needs. Nothing visible changes.

        Raises NoSpaceError; CorruptStoreError if a file of another size is in the way.
        """
        planned, root = self._planned, self._store.root
        self._log.reserve(planned.tail, planned.end)
        for topic, queue_id, start, count in planned.queues:
            queue = QueueAppender(
                root,
                topic,
                queue_id,
                file_size=planned.consume_queue_size,
                fsync=planned.fsync,
                undo=self._undo,
            )
            queue.reserve(start, start + count, self._temp_dir)
            self._queues[topic, queue_id] = queue
        if planned.key_count:
            layout = Layout(planned.max_hash_slot_num, planned.max_index_num)
            self._index = IndexAppender(
                root, self._temp_dir, layout, fsync=planned.fsync, undo=self._undo
            )
            self._begin_file_behind_gap(self._index)
            self._index.reserve(planned.key_count)

    def settle_index(self) -> None:
        """Make the last IndexFile durable, and let the checkpoint allow for what comes.

        A broker that finds ``abort`` deletes an IndexFile that ends later than the checkpoint
        says, and enters again only what the last CommitLog files hold. A checkpoint that is
        ahead does no harm: it counts with the two other times, whichever is least.
        """
        root, files = self._store.root, list_index_files(self._store.root)
        until = self._planned.last_store_timestamp_ms if self._planned.key_count else 0
        if files:
            until = max(until, int(files[-1].header["end_timestamp_ms"]))
            fd = open_file(root, f"{names.INDEX}/{files[-1].name}")
            try:
                durable.fsync(fd)
            finally:
                durable.close(fd)
        noted = checkpoint.load(root)
        if until > (int(noted["index_msg_timestamp"]) if noted is not None else 0):
            fields = {"index_msg_timestamp": until}
            config_write.replace_checkpoint(root, fields, self._temp_dir, self._undo)

    def append(self, check: Check) -> None:
        """Write all records, durably, but for the one byte that a scan of the log stops at.

        ``check`` raises if the store is not ours alone any more.
        """
        self._make_abort()
        # Readers who look from now on see that it is there, and hide what comes; who looked
        # before is told that a commit began.
        intent.raise_sequence(self._store.root, self._planned.tail)
        # Now only: a broker that closed cleanly looks for the end of the log in its last three
        # files, and takes the start of an empty one for it.
        self._log.make_files()
        if self._planned.interlock:
            path = f"{names.COMMIT_LOG}/{names.INTERLOCK}"
            config_write.replace_file(self._store.root, path, b"\0", self._temp_dir, self._undo)
        self.write(check)
        check()
        self._log.check_files()

    def write(self, check: Check) -> None:
        """Write all records, durably; where nothing was reserved, also the byte held back.

        Those of a published commit may be read and yet not be on the disk, if its sync failed:
        a second sync would not tell. Written again, they are.
        """
        try:
            for stamped in self._stamped(with_records=True):
                check()
                self._write(stamped)
        finally:
            self._log.close()

    def publish(self) -> None:
        """Write the one byte. The only instant at which the view of a broker changes."""
        self._log.publish()

    def derive(self) -> None:
        """Enter the records into queues, index and checkpoint, each durable before the next."""
        write_units(self._stamped(), self._queues)
        for queue in self._queues.values():
            queue.close()
        if self._index is not None:
            for stamped in self._stamped():
                self._index.append(stamped.index_keys(), self._next_index_name)
            self._index.close()
        has_index = self._index is not None
        note_last(self._store.root, self._planned, self._temp_dir, self._undo, has_index=has_index)

    def _stamped(self, *, with_records: bool = False) -> Iterator[AssignedFrame]:
        return stamped(self._planned, self._source, with_records=with_records)

    def _begin_file_behind_gap(self, index: IndexAppender) -> None:
        """Begin a new IndexFile if the last one lacks keys of records before the commit's first.

        An IndexFile is taken to have all keys between its first record and its last. Where there
        is much to look through for keys that it lacks, they are taken to be there.
        """
        last, tail = index.last_physical_offset, self._planned.tail
        if last is None:
            return
        with CommitLog(self._store.commit_log) as log:
            if next_record(log, last) >= tail:
                return
            if last + _LOOKED_THROUGH < tail or has_keys(log, last, tail, with_tags=True):
                index.end_file()

    def _make_abort(self) -> None:
        if not self._planned.abort_was_there:
            text = intent.abort_text(self._planned)
            config_write.replace_file(
                self._store.root, names.ABORT, text, self._temp_dir, self._undo
            )

    def _write(self, one: AssignedFrame) -> None:
        sizes = one.frame.messages["size"].astype(np.int64)
        places = one.placed.physical_offsets
        starts = np.cumsum(sizes) - sizes
        records = patched(self._planned, one)
        gaps = np.flatnonzero(places[1:] != places[:-1] + sizes[:-1]) + 1
        edges = [0, *gaps.tolist(), len(places)]
        runs = {
            int(places[a]): records[int(starts[a]) : int(starts[b - 1] + sizes[b - 1])]
            for a, b in pairwise(edges)
        }
        for place in sorted({*runs, *one.placed.blanks}):
            if place in runs:
                self._log.write(place, runs[place].data)
            else:
                self._log.blank(place)

    def _next_index_name(self) -> str:
        assert self._index is not None
        return next_name(self._index.last_name)


def carry_out(
    store: StoreDir,
    planned: Intent,
    application: Application,
    temp_dir: str,
    check: Check,
) -> None:
    """Take a decided commit from its intent to its end.

    Raises CommitInDoubtError whatever goes wrong: the intent stays, and who opens the store next
    takes these steps again.
    """
    state = planned.state
    try:
        application.append(check)
        state = _MAYBE
        application.publish()
        state = intent.PUBLISHED
        intent.store(store.root, intent.published(planned), temp_dir)
        remove_interlock(store)
        application.derive()
        finish(store, planned, temp_dir)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise CommitInDoubtError(store.root, str(planned), state, reason) from error


def stamped(
    planned: Intent, source: StagedMessages, *, with_records: bool
) -> Iterator[AssignedFrame]:
    """Yield all frames in the order of the commit, with the same stamps each time."""
    placement = Placement(planned.tail, planned.commit_log_size, planned.log_start)
    starts = {(topic, queue_id): start for topic, queue_id, start, _ in planned.queues}
    stamper = OffsetAssigner(
        placement, starts, planned.store_timestamp_ms, planned.least_store_timestamp_ms
    )
    for frame in source.frames(with_records=with_records):
        yield stamper.stamp(frame)


def patched(planned: Intent, one: AssignedFrame) -> Bytes:
    """Return a frame's records as they stand in the log; the frame's own are changed."""
    sizes = one.frame.messages["size"].astype(np.int64)
    records = one.frame.records
    patch(
        records,
        np.cumsum(sizes) - sizes,
        queue_offsets=one.queue_offsets,
        physical_offsets=one.placed.physical_offsets,
        store_timestamps_ms=one.store_timestamps_ms,
        host_variant=planned.host_variant,
    )
    return records


def note_last(root: str, planned: Intent, temp_dir: str, undo: Undo, *, has_index: bool) -> None:
    """Let the checkpoint say that all up to the commit's last record is durable everywhere."""
    moment = planned.last_store_timestamp_ms
    fields = {
        "physic_msg_timestamp": moment,
        "logics_msg_timestamp": moment,
        "confirm_phy_offset": 0,
        "logics_physical_offset": planned.last,
    }
    if has_index:
        # Differs from the broker, which tells of full IndexFiles only: ours is durable, full or
        # not, and a broker that is killed would delete it otherwise.
        fields["index_msg_timestamp"] = moment
    config_write.replace_checkpoint(root, fields, temp_dir, undo)


def remove_interlock(store: StoreDir) -> None:
    """Let brokers start again, if they were kept from it."""
    folder = store.commit_log[0]
    if exists(folder, names.INTERLOCK):
        durable.unlink(f"{folder}/{names.INTERLOCK}")
        durable.fsync_directory(folder)


def finish(store: StoreDir, planned: Intent, temp_dir: str) -> None:
    """Enter the commit into the ledger, and remove the intent: it is done, and readers see it.

    What else it was under way with does no harm if it cannot be removed now, and is removed when
    the store is next opened for writing.
    """
    root = store.root
    now_ms = time.time_ns() // 1_000_000
    ledger.record(root, planned.entry(ledger.DONE, now_ms), temp_dir)
    remove_interlock(store)
    # First: a look that begins when the intent is gone must not be told that this ended since.
    intent.raise_sequence(root, planned.tail)
    intent.remove(root)
    try:
        if not planned.abort_was_there:
            remove_abort(root)
    except OSError as error:
        _LOG.warning("%s: commit %s is done; left for the next write: %s", root, planned, error)


def remove_abort(root: str) -> None:
    """Remove ``abort`` if it is ours: the store is closed cleanly."""
    if intent.abort_is_ours(root):
        durable.unlink(f"{root}/{names.ABORT}")
        durable.fsync_directory(root)

"""The steps that append one decided commit, in an order that survives a crash at any place.

Everything is a function of the intent and the staged files, so that any process that finds the
intent can take the same steps again. Until the one byte of ``publish`` a broker that starts sees
nothing of the commit; from then on it sees all of it, and because ``abort`` is there it enters the
records into its queues and index where we did not.

Reference: commit protocol, steps 10 to 28; DefaultMessageStore (the order a broker flushes in).
"""

import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.derive.index_keys import has_keys
from mqstore.derive.log_end import LogEnd
from mqstore.files.base import durable
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import checkpoint, config_write
from mqstore.files.index.index_append import IndexAppender, next_name
from mqstore.files.index.index_file import list_index_files
from mqstore.files.index.index_repair import sync
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_append import CommitLogAppender
from mqstore.files.log.log_clear import clear, quarantine
from mqstore.files.log.log_end import next_record
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.txn import intent, ledger
from mqstore.files.txn.intent import Intent
from mqstore.format import names
from mqstore.format.arrays import TopicQueue
from mqstore.write.dispatch import AssignedFrame, OffsetAssigner, write_units
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.plan import Placement
from mqstore.write.staged_messages import StagedMessages

_LOG = logging.getLogger(__name__)
_MAYBE: Final = "decided and perhaps published"
_LOOKED_THROUGH: Final = 64 << 20  # bytes of records, a tenth of a second


class Application:
    """One commit that is being appended to a locked store."""

    def __init__(self, writer: StoreWriter, planned: Intent, source: StagedMessages) -> None:
        self._writer = writer
        self._planned = planned
        self._source = source
        self._log = CommitLogAppender(writer, planned.log_start)
        self._queues: dict[TopicQueue, QueueAppender] = {}
        self._index: IndexAppender | None = None

    def reserve(self) -> None:
        """Reserve all disk space that the commit needs. Nothing visible changes.

        Raises NoSpaceError; CorruptStoreError if a file of another size is in the way.
        """
        planned = self._planned
        self._log.reserve(planned.tail, planned.end)
        for topic, queue_id, start, count in planned.queues:
            queue = QueueAppender(self._writer, topic, queue_id)
            queue.reserve(start, start + count)
            self._queues[topic, queue_id] = queue
        if planned.key_count:
            self._index = IndexAppender(self._writer)
            self._begin_file_behind_gap(self._index)
            self._index.reserve(planned.key_count)

    def settle_index(self) -> None:
        """Make the last IndexFile durable, and the checkpoint as late as the keys to come.

        A broker that finds ``abort`` deletes an IndexFile that ends later than the checkpoint
        says, and enters again only what the last CommitLog files hold. A checkpoint that is
        ahead does no harm: it counts with the two other times, whichever is least.
        """
        files = list_index_files(self._writer.place)
        until = self._planned.last_store_timestamp_ms if self._planned.key_count else 0
        if files:
            until = max(until, int(files[-1].header["end_timestamp_ms"]))
            sync(files[-1])
        found = checkpoint.load(self._writer.place)
        if until > (int(found["index_msg_timestamp"]) if found is not None else 0):
            config_write.replace_checkpoint(self._writer, {"index_msg_timestamp": until})

    def carry_out(self) -> None:
        """Take the decided commit from its intent to its end.

        Raises CommitInDoubtError for any error: the intent stays, and the process that opens the
        store next for writing takes these steps again.
        """
        writer, state = self._writer, self._planned.state
        try:
            self.append()
            state = _MAYBE
            self.publish()
            state = intent.PUBLISHED
            intent.store(writer, intent.published(self._planned))
            remove_interlock(writer)
            self.derive()
            finish(writer, self._planned)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise CommitInDoubtError(writer.root, str(self._planned), state, reason) from error

    def append(self) -> None:
        """Write all records, durably, but for the one byte that a scan of the log stops at."""
        self._make_abort()
        # A reader that begins now finds the intent, and hides the records to come; one that began
        # before notices by this number that a commit has begun.
        intent.raise_sequence(self._writer, self._planned.tail)
        # Not before: a broker that closed cleanly looks for the end of the log in its last three
        # files, and takes the start of an empty one for it.
        self._log.make_files()
        if self._planned.interlock:
            path = f"{names.COMMIT_LOG}/{names.INTERLOCK}"
            config_write.replace_file(self._writer, path, b"\0")
        self.write()
        self._writer.check()
        self._log.check_files()

    def write(self) -> None:
        """Write all records, durably; where nothing was reserved, also the byte held back.

        The records of a published commit may be readable and yet not on the disk, if their sync
        failed: a second sync would report no error. Written again, they are on the disk.
        """
        try:
            for frame in self._frames(with_records=True):
                self._writer.check()
                self._write(frame)
        finally:
            self._log.close()

    def publish(self) -> None:
        """Write the one byte. The only instant at which the view of a broker changes."""
        self._log.publish()

    def derive(self) -> None:
        """Enter the records into queues, index and checkpoint, each durable before the next."""
        write_units(self._frames(), self._queues)
        for queue in self._queues.values():
            queue.close()
        if self._index is not None:
            for frame in self._frames():
                self._index.append(frame.index_keys(), self._next_index_name)
            self._index.close()
        _note_last(self._writer, self._planned, has_index=self._index is not None)

    def _frames(self, *, with_records: bool = False) -> Iterator[AssignedFrame]:
        return assigned_frames(self._planned, self._source, with_records=with_records)

    def _begin_file_behind_gap(self, index: IndexAppender) -> None:
        """Begin a new IndexFile if the last one lacks keys of records before the commit's first.

        An IndexFile counts as complete between its first record and its last. A long stretch of
        the log is not searched for keys that the IndexFile lacks.
        """
        last, tail = index.last_physical_offset, self._planned.tail
        if last is None:
            return
        with CommitLog(self._writer.place.commit_log) as log:
            if next_record(log, last) >= tail:
                return
            if last + _LOOKED_THROUGH < tail or has_keys(log, last, tail, with_tags=True):
                index.end_file()

    def _make_abort(self) -> None:
        if not self._planned.abort_was_there:
            text = intent.abort_text(self._planned)
            config_write.replace_file(self._writer, names.ABORT, text)

    def _write(self, one: AssignedFrame) -> None:
        if not one.placed.blanks:  # One behind the other.
            records = one.stored_records(self._planned.host_variant)
            self._log.write(int(one.placed.physical_offsets[0]), records.data)
            return
        sizes = one.frame.messages["size"].astype(np.int64)
        places = one.placed.physical_offsets
        starts = np.cumsum(sizes) - sizes
        records = one.stored_records(self._planned.host_variant)
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


def assigned_frames(
    planned: Intent, source: StagedMessages, *, with_records: bool
) -> Iterator[AssignedFrame]:
    """Yield all frames in the order of the commit, with the same offsets and times each time."""
    placement = Placement(planned.tail, planned.sizes.commit_log, planned.log_start)
    starts = {(topic, queue_id): start for topic, queue_id, start, _ in planned.queues}
    assigner = OffsetAssigner(
        placement, starts, planned.store_timestamp_ms, planned.least_store_timestamp_ms
    )
    for frame in source.frames(with_records=with_records):
        yield assigner.assign(frame)


def _note_last(writer: StoreWriter, planned: Intent, *, has_index: bool) -> None:
    """Let the checkpoint say that all up to the commit's last record is durable everywhere."""
    moment = planned.last_store_timestamp_ms
    fields = {
        "physic_msg_timestamp": moment,
        "logics_msg_timestamp": moment,
        "confirm_phy_offset": 0,
        "logics_physical_offset": planned.last,
    }
    if has_index:
        # Differs from the broker, which notes full IndexFiles only: ours is durable, full or not,
        # and a broker that is killed would delete it otherwise.
        fields["index_msg_timestamp"] = moment
    config_write.replace_checkpoint(writer, fields)


def clear_tail(writer: StoreWriter, found: LogEnd, *, known_to: int = 0) -> None:
    """Zero the bytes behind the end of the log; leave a copy of those that are not our own.

    Bytes of an unpublished commit lie before ``known_to``: they are staged as well.
    """
    if found.garbage:
        low, high = found.garbage
        edge = min(max(low, known_to), high)
        clear(writer, low, edge)
        if edge < high:
            quarantine(writer, edge, high)


def remove_interlock(writer: StoreWriter) -> None:
    """Let brokers start again, if the interlock file prevents it."""
    folder = writer.place.commit_log[0]
    if folder.exists(names.INTERLOCK):
        durable.unlink(f"{folder}/{names.INTERLOCK}")
        durable.fsync_directory(folder.name)


def finish(writer: StoreWriter, planned: Intent) -> None:
    """Enter the commit into the ledger, and remove the intent: readers see the messages now.

    An ``abort`` that cannot be removed does no harm, and is removed when the store is next opened
    for writing.
    """
    now_ms = time.time_ns() // 1_000_000
    ledger.record(writer, planned.entry(ledger.DONE, now_ms))
    remove_interlock(writer)
    # Before the intent goes: a reader that begins after that must not find that a commit ended
    # since it began.
    intent.raise_sequence(writer, planned.tail)
    intent.remove(writer)
    try:
        if not planned.abort_was_there:
            remove_abort(writer)
    except OSError as error:
        _LOG.warning(
            "%s: commit %s is done; abort is left for the next write: %s",
            writer.root,
            planned,
            error,
        )


def remove_abort(writer: StoreWriter) -> None:
    """Remove ``abort`` if it is ours: the store is closed cleanly."""
    if intent.abort_is_ours(writer.place):
        durable.unlink(writer.path(names.ABORT))
        durable.fsync_directory(writer.root)

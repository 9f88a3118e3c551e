"""The end of a store, found before anything is appended to it.

The log ends where a broker's own scan stops: after the last record that a ConsumeQueue knows,
and the records behind it that none needs to know. Whatever is valid beyond that place, or is
not yet in a ConsumeQueue, is a reason not to write: a broker would cut it off or serve it twice.

Reference: CommitLog#recoverNormally, #checkMessageAndReturnSize; ConsumeQueue#getMaxPhysicOffset.
"""

from dataclasses import dataclass

import numpy as np

from mqstore.derive.log_walk import LogWalk
from mqstore.derive.sound_record import SoundRecord, read_record, sound_records_in
from mqstore.errors import CorruptStoreError, UncleanStoreError
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank, data_behind
from mqstore.files.store import Store
from mqstore.format.arrays import Span
from mqstore.format.names import LMQ_PREFIX, is_topic


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a CommitLog ends, and what a commit must know besides."""

    log_start: int
    """Physical offset of the first byte held: the name of a file."""
    tail: int
    """Physical offset where the next record may lie."""
    last_store_timestamp_ms: int
    """Of the last record and of the checkpoint, whichever is later; 0 in an empty store."""
    garbage: Span | None
    """Physical offsets [low, high) behind the tail that hold bytes which are no records."""


def find_log_end(store: Store, *, known_to: int = 0) -> LogEnd:
    """Find the end of the log. Raises UncleanStoreError, CorruptStoreError.

    A sound record behind the end is an error, unless it lies before ``known_to``: there it is one
    of a commit that was never published.
    """
    log, last = store.log, _last_in_queue(store)
    walk = LogWalk(log, last.physical_offset + last.size if last else log.low)
    lost = sum(int(records.in_queue.sum()) for records in walk.records())
    if lost:
        raise UncleanStoreError(
            f"{store.root}: {lost} messages at the end of the CommitLog are in no "
            "ConsumeQueue yet; start and stop the broker once, so that it enters them"
        )
    tail = after_blank(log, walk.tail)
    checkpoint = store.checkpoint()
    last_ms = walk.last_store_timestamp_ms
    if last and not walk.count:
        last_ms = last.store_timestamp_ms
    if checkpoint is not None:
        last_ms = max(last_ms, int(checkpoint["physic_msg_timestamp"]))
    return LogEnd(log.low, tail, last_ms, _remains(log, tail, known_to))


def next_queue_offset(store: Store, topic: str, queue_id: int, tail: int) -> int:
    """Return the queue offset of the next message of a queue.

    Raises CorruptStoreError if the queue's last unit is not of a record of that queue.
    """
    queue = store.queue(topic, queue_id)
    low, high = queue.bounds(store.log.low)
    if low < high:
        unit = queue.read(high - 1, high)[0]
        place, size = int(unit["physical_offset"]), int(unit["size"])
        record = read_record(store.log, place)
        expected = (topic, queue_id, high - 1, size)
        if record is None or place + size > tail or expected != (*record.position, record.size):
            raise CorruptStoreError(
                f"{store.root}/{queue.path}",
                (high - 1) * unit.dtype.itemsize,
                f"the unit of queue offset {high - 1} is not of a record of this queue",
            )
    return high


def last_store_host(store: Store) -> tuple[bytes, int] | None:
    """Return address and port that the broker put into the last record, if there is one."""
    last = _last_in_queue(store)
    return (last.store_ip, last.store_port) if last else None


def _last_in_queue(store: Store) -> SoundRecord | None:
    """Return the last record that a ConsumeQueue has; None if no queue has any."""
    return _record_of_checkpoint(store) or _record_of_newest_unit(store)


def _record_of_checkpoint(store: Store) -> SoundRecord | None:
    """Return the record that the last commit of mqlog noted as the log's last, if it still is.

    Then no other queue has to be looked at, however many there are.
    """
    log, checkpoint = store.log, store.checkpoint()
    place = int(checkpoint["logics_physical_offset"]) if checkpoint is not None else 0
    record = read_record(log, place) if place > 0 else None
    if record is None or not record.in_queue or not is_topic(record.topic):
        return None
    behind = after_blank(log, place + record.size)
    queue = store.queue(record.topic, record.queue_id)
    low, high = queue.bounds(log.low)
    is_last = low < high == record.queue_offset + 1 and read_record(log, behind) is None
    unit = queue.read(high - 1, high)[0] if is_last else None
    return record if unit is not None and int(unit["physical_offset"]) == place else None


def _record_of_newest_unit(store: Store) -> SoundRecord | None:
    """Return the record of the newest ConsumeQueue unit; None if no queue has any."""
    log, newest, where = store.log, -1, ("", 0, 0)
    for topic, queue_id in store.queues:
        queue = store.queue(topic, queue_id)
        # A light queue's units are second ones, of records that are another topic's.
        low, high = (0, 0) if topic.startswith(LMQ_PREFIX) else queue.bounds(log.low)
        if low < high:
            place = int(queue.read(high - 1, high)[0]["physical_offset"])
            if place > newest:
                newest, where = place, (topic, queue_id, high - 1)
    if newest < 0:
        return None
    record = read_record(log, newest)
    if record is None or record.position != where:
        topic, queue_id, queue_offset = where
        reason = (
            f"no sound record here, but {topic}/{queue_id} has it as queue offset {queue_offset}; "
            "the log lost its end. mqlog recover --rebuild lets the queues end where the log does"
        )
        raise log.corrupt(newest, reason)
    return record


def _remains(log: CommitLog, tail: int, known_to: int) -> Span | None:
    """Return the range of bytes behind the tail that are not zero; None if there are none.

    Raises CorruptStoreError if a sound record is among them at ``known_to`` or behind.
    """
    low, high = -1, -1
    for position, chunk in data_behind(log, tail):
        used = np.flatnonzero(chunk)
        if len(used):
            low = position + int(used[0]) if low < 0 else low
            high = position + int(used[-1]) + 1
            if position + len(chunk) > known_to:
                for record in sound_records_in(log, position, chunk):
                    if record.physical_offset >= known_to:
                        reason = "a sound record lies behind the end of the log: recover the store"
                        raise log.corrupt(record.physical_offset, f"{reason} first")
    return (low, high) if low >= 0 else None

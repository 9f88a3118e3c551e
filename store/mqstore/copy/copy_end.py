"""Where the copy of a store ends: behind a record of the CommitLog that has its unit.

That is the last record that some ConsumeQueue had when all were looked at. A broker acknowledges a
message when it is in the log, and enters it into its queue a moment later. So while a broker runs,
the copy ends behind the last record that the log had after that look, and waits until its queue
has it: what was acknowledged before the copy began is in it.

Reference: DefaultMessageStore.ReputMessageService#doReput.
"""

import logging
import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.derive.log_walk import LogWalk
from mqstore.derive.sound_record import SoundRecord, read_record
from mqstore.files.lock.processes import holders
from mqstore.files.log.log_end import after_blank
from mqstore.files.store import Store
from mqstore.files.txn import intent
from mqstore.format.message import MIN_RECORD_BYTES, RECORD_MAGICS
from mqstore.format.names import LOCK
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqstore.read.directory import open_store
from mqstore.read.source import Snapshot

_LOG: Final = logging.getLogger(__name__)
ENTERED_S: Final = 10.0
"""So long a copy waits for a broker of this machine to enter messages into queues."""
ENTERED_UNSEEN_S: Final = 1.0
"""So long where no process is seen that has the store open: its broker may be dead."""
_LOOK_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """Where the copy ends, and the last record before it (None: there is none)."""

    physical_offset: int
    last_record: np.void | None


def find_copy_end(found: Snapshot, store: Store) -> CopyEnd:
    """Return where a copy ends; ``found`` is a look at all queues, ``store`` was opened after it.

    Waits for ENTERED_S at most until queues have what the log has.
    """
    log = store.log
    end, last = _behind_units(found, store)
    if found.is_unclean:
        entered = _entered(store, after_blank(log, end))
        if entered is not None:
            last = entered.physical_offset
            end = last + entered.size
    # Behind it there may be records that enter no queue. A log that is written to may have
    # half a record there, and so has to do without them.
    while not found.is_unclean:
        head = log.header(after_blank(log, end))
        if head is None or not _is_without_unit(head, after_blank(log, end)):
            break
        if log.committed_end is not None and after_blank(log, end) >= log.committed_end:
            break
        last = int(head["physical_offset"])
        end = last + int(head["total_size"])
    record = log.header(last) if last >= 0 else None
    return CopyEnd(after_blank(log, end), record)


def _behind_units(found: Snapshot, store: Store) -> tuple[int, int]:
    """Return the physical offsets behind the last record that has a unit, and of that record."""
    end, last = store.log.low, -1
    for bounds in found.queues:
        if bounds.low < bounds.high:
            queue = store.queue(bounds.topic, bounds.queue_id)
            try:
                units = queue.read(bounds.high - 1, bounds.high)
            except FileNotFoundError:  # All of it expired meanwhile.
                continue
            unit = units[0]
            if int(unit["physical_offset"]) > last:
                last = int(unit["physical_offset"])
                end = last + int(unit["size"])
    return end, last


def _is_without_unit(head: np.void, physical_offset: int) -> bool:
    state = int(head["sys_flag"]) & TRANSACTION_MASK
    return (
        int(head["magic"]) in RECORD_MAGICS
        and int(head["physical_offset"]) == physical_offset
        and int(head["total_size"]) >= MIN_RECORD_BYTES
        and state in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
    )


def _entered(store: Store, start: int) -> SoundRecord | None:
    """Return the last record from ``start`` on that belongs into a queue, once its queue has it.

    None if there is none, or if its queue does not have it in time.
    """
    if intent.load(store.place) is not None:  # They are of a commit of ours, which is not done.
        return None
    last, count = -1, 0
    for records in LogWalk(store.log, start).records():
        places = records.physical_offsets[records.in_queue]
        last = int(places[-1]) if len(places) else last
        count += len(places)
    record = read_record(store.log, last) if count else None
    if record is None or record.topic in store.batch_topics:
        return None
    is_here = bool(holders(f"{store.root}/{LOCK}"))
    deadline = time.monotonic() + (ENTERED_S if is_here else ENTERED_UNSEEN_S)
    while not _has_unit(store, record):
        if time.monotonic() > deadline:
            told = "%s: the last %d messages of the CommitLog are in no ConsumeQueue: left out"
            _LOG.warning(told, store.root, count)
            return None
        time.sleep(_LOOK_AGAIN_S)
    return record


def _has_unit(store: Store, record: SoundRecord) -> bool:
    with open_store(store.place.root, store.place.commit_log) as now:
        return now.queue(record.topic, record.queue_id).bounds(0)[1] > record.queue_offset

"""The bounds of a store at one moment: what there is to read, frozen.

A commit of ours that begins or ends meanwhile is not part of it (see files/txn/intent.py).
Taking a snapshot lists directories, bisects ConsumeQueues, and checks that they are whole (see
derive/whole_queues). Of a store that was not closed cleanly (``abort`` is there) it reads the last
header of each queue, and walks back over units whose record never reached the disk.

Reference: DefaultMessageStore#getMinOffsetInQueue, #getMaxOffsetInQueue; ConsumeQueue#recover.
"""

import logging
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.derive.log_walk import LogWalk
from mqstore.derive.records import WHOLE, is_of_unit
from mqstore.derive.whole_queues import QueueLook, not_whole
from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base.mapped_file_queue import check_sizes
from mqstore.files.base.store_dir import BY_LOG
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.config.broker_config import broker_name as broker_name_in
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.short_queues import look_at_each
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.files.store import Store
from mqstore.files.txn.intent import CommitFence
from mqstore.format import names
from mqstore.format.consume_queue import UNIT
from mqstore.format.names import as_text
from mqstore.read.heads import locate
from mqstore.read.queues import QueueBounds, Weight
from mqstore.read.source import Origin, Snapshot

_STORE_FOLDER = "store"  # The usual name of a root says nothing about its broker.
_MOST_UNITS: Final = 32_768
_SHOWN: Final = 10
_LOG = logging.getLogger(__name__)


def take_snapshot(
    store: Store,
    origin: Origin,
    broker_name: str | None = None,
    topics: Callable[[str], bool] | None = None,
    *,
    strict: bool = True,
    reads_records: bool = True,
) -> Snapshot:
    """Return the bounds of a store, nothing of which was listed yet, as ``origin``'s snapshot.

    Without ``reads_records`` a file that the CommitLog lacks is a warning: what is asked for is
    told by units, but for times.

    With ``strict``, files of uneven length, holes in the CommitLog and units that point behind
    its end are a CorruptStoreError here; without it they come up, record by record, in the scan.
    Also raises UnsupportedStoreError, UnsafePathError, and CorruptConfigError if no name is given.
    """
    fence = CommitFence(store.place)
    is_unclean = store.is_unclean
    taken_ms = store.place.folder.now_ms()
    wanted = [store.queue(*name) for name in store.queues if topics is None or topics(name[0])]
    # Queues are listed before the log: what a running broker adds to both in between is in the
    # log for sure. The log's low end is taken first: what expires in between is found expired.
    low = CommitLog(store.place.commit_log).low
    looks = look_at_each(store.place.folder, wanted, low)
    bounds = [(q, look.low, look.high) for q, look in zip(wanted, looks, strict=True)]
    log = store.log
    if strict:
        check_sizes([log.files])
        hole = hole_in(log)
        if hole is not None and reads_records:
            raise hole
        if hole is not None:
            _LOG.warning("%s; what only its messages tell, as their times, is null", hole)
        if not (store.queues or is_unclean):
            _check_empty(store, fence)
    looked = [QueueLook(queue, look) for queue, look in zip(wanted, looks, strict=True)]
    problems = not_whole(store, looked, is_unclean=is_unclean, cap=fence.cap)
    _report(problems, strict=strict)
    if is_unclean:
        ends = [written(q, log, first, last) for q, first, last in bounds]
        lost = [(q, e, last) for (q, _, last), e in zip(bounds, ends, strict=True) if e < last]
        _report((error for q, end, _ in lost if (error := _parted(q, log, end))), strict=strict)
        _warn_of_lost(lost)
        bounds = [(q, first, end) for (q, first, _), end in zip(bounds, ends, strict=True)]
    elif strict:
        for queue, look in zip(wanted, looks, strict=True):
            _check_last(queue, log, look)
    cap = fence.cap()
    if cap is not None:
        bounds = [(q, first, before(q, first, last, cap)) for q, first, last in bounds]
    queues = tuple(
        QueueBounds(q.topic, q.queue_id, first, last, _weight(look))
        for (q, first, last), look in zip(bounds, looks, strict=True)
    )
    name = broker_name or name_of(store)
    return Snapshot(origin, name, low, log.high, queues, taken_ms, is_unclean)


def configured(store: Store) -> dict[str, TopicConfig]:
    """Return topics.json; empty where the broker keeps it in RocksDB: messages do without.

    Brokers from 5.1.4 on may keep their configuration there and their ConsumeQueues in files
    (RocksDBTopicConfigManager). Raises CorruptConfigError.
    """
    try:
        return store.config.topics()
    except UnsupportedStoreError:
        return {}


def name_of(store: Store) -> str:
    """Return the broker's name: what topics.json tells, else the folder's."""
    return broker_name_in(configured(store)) or folder_name(store)


def folder_name(store: Store) -> str:
    """Return the name of the store's folder; of its parent, if it is just called store.

    Where the folder knows its broker, the broker's.
    """
    if store.place.folder.broker_name is not None:
        return store.place.folder.broker_name
    folder, parent = os.path.basename(store.root), os.path.dirname(store.root)  # noqa: PTH119, PTH120
    named = os.path.basename(parent) or folder if folder == _STORE_FOLDER else folder  # noqa: PTH119
    return as_text(named)


def _report(problems: Iterator[CorruptStoreError], *, strict: bool) -> None:
    """Raise the first problem; log them without ``strict``."""
    for number, error in enumerate(problems):
        if strict:
            raise error
        if number < _SHOWN:
            _LOG.warning("%s", error)


def _parted(queue: Units, log: CommitLog, queue_offset: int) -> CorruptStoreError | None:
    """Return the error of a queue whose unit names a record that belongs elsewhere in the queue.

    So goes on a queue of which a broker left out a record and entered those behind: a replica that
    was stopped with records that its group had not agreed on, and started again (seen on 5.5.1).
    Consumers of that broker never get the record. Reference: CommitLog#recoverNormally.
    """
    try:
        place = int(queue.read(queue_offset, queue_offset + 1)["physical_offset"][0])
    except CorruptStoreError:
        return None
    record = locate(log, [place], WHOLE).get(place)
    if record is None or (record.topic, record.queue_id) != (queue.topic, queue.queue_id):
        return None
    reason = (
        f"index and queueOffset part: unit {queue_offset} has the record of queueOffset "
        f"{record.queue_offset}, so a message before it is in no unit. {BY_LOG}"
    )
    path = f"{queue.place.root}/{queue.path}"
    return CorruptStoreError(path, queue_offset * UNIT.itemsize, reason)


def _warn_of_lost(lost: list[tuple[Units, int, int]]) -> None:
    """Log which queues end with messages that the CommitLog does not have."""
    for queue, end, last in lost[:_SHOWN]:
        _LOG.warning(
            "%s/%d: the CommitLog does not have its last %d messages, queue offsets [%d, %d), "
            "which are left out: the power was cut, or the log is damaged (mqlog verify)",
            *(queue.topic, queue.queue_id, last - end, end, last),
        )
    if len(lost) > _SHOWN:
        count = sum(last - end for _, end, last in lost)
        _LOG.warning("so end %d queues, %d messages in all", len(lost), count)


def _check_empty(store: Store, fence: CommitFence) -> None:
    """Raise CorruptStoreError where the log begins with messages; no ConsumeQueue names any.

    Those of a commit that began after the queues were listed do not count.
    """
    first = next(LogWalk(store.log, store.log.low).records(), None)
    cap = fence.cap()
    if first is not None and cap is not None:
        first = first.first(int(np.searchsorted(first.physical_offsets, cap)))
    if first is not None and first.in_queue.any():
        reason = (
            f"the store has messages and no ConsumeQueue at all. {BY_LOG}; mqlog recover --rebuild "
            "writes the queues anew"
        )
        raise CorruptStoreError(f"{store.root}/{names.CONSUME_QUEUE}", 0, reason)


def check_log_files(log: CommitLog) -> None:
    """Raise CorruptStoreError where files of the log have several sizes, or one is missing."""
    check_sizes([log.files])
    hole = hole_in(log)
    if hole is not None:
        raise hole


def hole_in(log: CommitLog) -> CorruptStoreError | None:
    """Return the error of the first file that the log lacks, or has twice."""
    for before, after in pairwise(log.files.files):
        if before.start == after.start:
            reason = f"{after.name} has the same name, and both have records: name one folder only"
            return CorruptStoreError(before.name, 0, reason)
        if before.end != after.start:
            reason = (
                "the next file is missing (storePathCommitLog, --commit-log: name all folders); "
                "onCorrupt=skip (mqlog: --on-corrupt skip) reads what the other files have"
            )
            return CorruptStoreError(before.name, before.size, reason)
    return None


def _weight(look: QueueExtent) -> Weight | None:
    if look.bytes is None:
        return None
    return Weight(look.low, look.high, look.bytes, look.place)


def _check_last(queue: Units, log: CommitLog, look: QueueExtent) -> None:
    if look.low < look.high and look.end > log.high:
        path, position = log.where(log.high - 1) if log.files.files else log.where(0)
        reason = (
            f"the CommitLog ends here, but {queue.topic}/{queue.queue_id} has messages up to byte "
            f"{look.end}: truncated? {BY_LOG}"
        )
        raise CorruptStoreError(path, position + 1, reason)


def written(queue: Units, log: CommitLog, low: int, high: int) -> int:
    """Return ``high`` without the last units of [low, high) whose record is not in the log.

    One unit is read, then ever more: most often none is lost, and sometimes a million are.
    """
    if isinstance(queue, BatchQueue):
        return _written_batches(queue, log, low, high)
    step = 1
    while high > low:
        start = max(low, high - step)
        try:
            units = queue.read(start, high)
        except CorruptStoreError:
            if step == 1:
                raise
            step = 1  # A file is missing before the last units; what they say may do.
            continue
        places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        for row in np.flatnonzero(log.holds(places, sizes))[::-1].tolist():
            unit = queue.topic, queue.queue_id, start + row
            if is_of_unit(log, int(places[row]), int(sizes[row]), unit):
                return start + int(row) + 1
        high, step = start, min(2 * step, _MOST_UNITS)
    return high


def _written_batches(queue: BatchQueue, log: CommitLog, low: int, high: int) -> int:
    for units in queue.last_batches(_MOST_UNITS):
        places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        for row in np.flatnonzero(log.holds(places, sizes)).tolist():
            base, count = int(units["base"][row]), int(units["count"][row])
            unit = queue.topic, queue.queue_id, base
            if is_of_unit(log, int(places[row]), int(sizes[row]), unit):
                return max(low, min(high, base + count))
    return low


def before(queue: Units, low: int, high: int, cap: int) -> int:
    """Return ``high`` without the last units of [low, high) whose record is not before ``cap``."""
    if low >= high or int(queue.read(high - 1, high)[0]["physical_offset"]) < cap:
        return high
    return queue.first_behind(low, high, cap)

"""Records of an unpublished commit that a broker brought back to life.

A crash leaves such records behind the end of the log, where no scan comes to. If a broker is
started then, and writes a record that ends exactly where one of them begins, and is killed, the
next scan goes on with ours: they count again, without the ones before them.

Those that no queue has yet are cut off. Those that a broker entered into a queue stay where
consumers may have met them; a record says its queue offset itself, and is made to say the one it
got. Those a broker could not enter, and those of a queue that would begin with a hole, become
rolled back ones, which are in no queue. What does not stay is written again.

No checksum covers a record's topic and properties: one whose last page was not on the disk when
the power was cut lives again as well, with zeros there. If it stays it is made whole.

Reference: ConsumeQueue#putMessagePositionInfo (logic queue order maybe wrong; Build consume
queue repeatedly), #fillPreBlank; TransactionalMessageService (rolled back messages).
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from mqstore.codec.gather import RecordHeaders
from mqstore.derive.log_walk import LogWalk
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_clear import amend, clear, restore
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.files.txn.intent import Intent
from mqstore.format.arrays import Bytes, Int64s, Mask, TopicQueue
from mqstore.format.consume_queue import FILLER_SIZE, UNIT
from mqstore.format.message import HEADER
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from mqstore.write.apply import assigned_frames
from mqstore.write.staged_messages import StagedMessages

_NO_PLACE = -1
_QUEUE_OFFSET = HEADER.fields["queue_offset"][1] if HEADER.fields else 0
_QUEUE_OFFSET_END = _QUEUE_OFFSET + HEADER["queue_offset"].itemsize


@dataclass(frozen=True, slots=True)
class Revived:
    """One record that lives again: its number among the staged ones, and where it is."""

    number: int
    queue: TopicQueue
    queue_offset: int
    """What the record says."""
    physical_offset: int
    slot: int
    """Where its queue has it; −1: nowhere."""
    planned: bytes | None = None
    """The record as it was to be, with the queue offset it has, where it is not whole."""


def settle(writer: StoreWriter, left: Intent, source: StagedMessages) -> tuple[Mask, int | None]:
    """Correct or remove the revived records; tell which messages of ``source`` stay: bool[n].

    Also returns the physical offset of the first that stays. If a crash interrupts it, the next
    run does the rest.
    """
    with Store(writer.place) as store:
        log = store.log
        walked = [records.physical_offsets for records in LogWalk(log, left.tail).records()]
        chain = np.concatenate([np.zeros(0, np.int64), *walked])
        found = _revived(store, left, source, chain)
        cut = _cut(store, found, chain)
        stay = []
        spoilt = _spoilt(store, [r for r in found if r.physical_offset < cut], left.tail)
        for record in found:
            if record.physical_offset >= cut:
                continue
            if record.slot == _NO_PLACE or record.queue in spoilt:
                _roll_back(log, record.physical_offset)
                continue
            if record.planned is not None:
                restore(log, record.physical_offset, record.planned)
            if record.slot != record.queue_offset:
                amend(log, record.physical_offset, "queue_offset", record.slot)
            stay.append(record)
        high = log.high
    if cut < high:
        clear(writer, cut, min(left.end, high))
    mask = np.zeros(_left(source), np.bool_)
    mask[[record.number for record in stay]] = True
    return mask, min((record.physical_offset for record in stay), default=None)


def _left(source: StagedMessages) -> int:
    gone = int(source.present.sum()) if source.present is not None else 0
    return source.count - gone


def _revived(store: Store, left: Intent, source: StagedMessages, chain: Int64s) -> list[Revived]:
    """Return the planned records that a walk of the log comes to."""
    log, found, done = store.log, [], 0
    for one in assigned_frames(left, source, with_records=True):
        sizes = one.frame.messages["size"].astype(np.int64)
        records, starts = one.stored_records(left.host_variant), np.cumsum(sizes) - sizes
        places = one.placed.physical_offsets
        for row in np.flatnonzero(np.isin(places, chain)).tolist():
            begin, size, place = int(starts[row]), int(sizes[row]), int(places[row])
            record = records[begin : begin + size]
            there, planned = log.read(place, size), _renumbered(log, place, record)
            if there == planned or _is_torn(there, planned, record):
                queue = one.frame.queues[int(one.frame.messages["queue"][row])]
                head = log.header(place)
                says = int(head["queue_offset"]) if head is not None else _NO_PLACE
                slot, torn = (
                    _slot(store.queue(*queue), place),
                    None if there == planned else planned,
                )
                found.append(Revived(done + row, queue, says, place, slot, torn))
        done += len(sizes)
    return found


def _renumbered(log: CommitLog, place: int, record: Bytes) -> bytes:
    """Return the record with the queue offset that stands there: it may have been amended."""
    planned = record.tobytes()
    says = log.read(place + _QUEUE_OFFSET, _QUEUE_OFFSET_END - _QUEUE_OFFSET)
    return planned[:_QUEUE_OFFSET] + says + planned[_QUEUE_OFFSET_END:]


def _is_torn(there: bytes, planned: bytes, record: Bytes) -> bool:
    """Tell whether a sound record is the planned one up to its topic, and zeros follow somewhere.

    Another record there would have another time, another host or another body.
    """
    header = RecordHeaders(record, np.zeros(1, np.int64), np.array([len(record)], np.int64))
    topic = int(header.topic_starts[0])
    behind = zip(there[topic:], planned[topic:], strict=True)
    return there[:topic] == planned[:topic] and all(a in (0, b) for a, b in behind)


def _slot(units: Units, place: int) -> int:
    """Return the queue offset that has the record at ``place``; −1 if none has."""
    low, high = units.bounds(0)
    slot = units.first_behind(low, high, place)
    if slot < high and int(units.read(slot, slot + 1)[0]["physical_offset"]) == place:
        return slot
    return _NO_PLACE


def _cut(store: Store, found: list[Revived], chain: Int64s) -> int:
    """Return the place from which on the log holds nothing but records that no queue has."""
    newest = _NO_PLACE
    for queue in (store.queue(*name) for name in store.queues):
        low, high = queue.bounds(0)
        if low < high:
            newest = max(newest, int(queue.read(high - 1, high)[0]["physical_offset"]))
    places = np.array([r.physical_offset for r in found], np.int64)
    theirs = np.setdiff1d(chain, places)
    newest = max(newest, int(theirs[-1]) if len(theirs) else _NO_PLACE)
    behind = places[places > newest]
    return int(behind[0]) if len(behind) else 2**63 - 1


def _spoilt(store: Store, found: list[Revived], tail: int) -> set[TopicQueue]:
    """Return the queues that begin with filler and hold nothing but revived records.

    A broker fills a new queue up to the first offset that it dispatches; consumers fail there.
    """
    by_queue: dict[TopicQueue, set[int]] = defaultdict(set)
    for record in found:
        by_queue[record.queue].add(record.physical_offset)
    spoilt = set()
    for queue, places in by_queue.items():
        units = store.queue(*queue)
        start, (low, high) = units.files.low // UNIT.itemsize, units.bounds(0)
        if low >= high:
            continue
        held = units.read(low, high)["physical_offset"].astype(np.int64)
        filled = start < low and int(units.read(start, start + 1)[0]["size"]) == FILLER_SIZE
        if filled and int(held[0]) >= tail and set(held.tolist()) <= places:
            spoilt.add(queue)
    return spoilt


def _roll_back(log: CommitLog, physical_offset: int) -> None:
    head = log.header(physical_offset)
    assert head is not None
    flag = int(head["sys_flag"]) & ~TRANSACTION_MASK | TRANSACTION_ROLLBACK
    amend(log, physical_offset, "sys_flag", flag)

"""Records of a CommitLog, fetched and checked: the one way to trust what lies at a place.

A ConsumeQueue unit, an IndexFile entry or a message id only claims that a record starts at a
physical offset. ``fetch`` reads such places together and says which of them hold whole records,
and of the others why they do not; ``verify`` does the same for records that are in memory already.
``RecordChecks`` says what a record must be beside whole.

As the broker does not: it serves whatever record a unit points at, which is how stale units after
a truncation come back to life.

Reference: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from mqstore.codec.checksum import broken
from mqstore.codec.decode import QueuePositions
from mqstore.codec.gather import RecordHeaders
from mqstore.files.log.commit_log import CommitLog, Scratch
from mqstore.format.arrays import Int64s
from mqstore.format.message import RECORD_MAGICS
from mqstore.format.names import LMQ_PREFIX

QueueOffset: TypeAlias = tuple[str, int, int]
"""A topic, a queue id and a queue offset."""

LARGE_BYTES: Final = 64 * 1024
"""More than this is not read for a record whose own header was not seen to say the same size."""

OUTSIDE: Final = "the ConsumeQueue unit points outside the CommitLog"
NOT_HERE: Final = "no record of that size and queue offset starts here"
OF_ANOTHER: Final = "the record is of another topic, queue or queue offset"


@dataclass(frozen=True, slots=True)
class RecordChecks:
    """What n records must be, beside whole: a known magic, lengths that add up to their sizes."""

    own_place: bool = True
    """PHYSICALOFFSET is where the record lies."""
    positions: QueuePositions | None = None
    """The record is of the topic, queue and queue offset of its row. Rows of a light queue (LMQ)
    may be of any, because the units of a light queue point at records of its parent topic."""
    checksum: bool = False
    """BODYCRC is that of the stored body."""


WHOLE: Final = RecordChecks(own_place=False)
IN_PLACE: Final = RecordChecks()
SOUND_CHECKS: Final = RecordChecks(checksum=True)


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """n records of m that were asked for: those that passed, and why the others did not.

    ``rows[i]``, int64[n] ascending, is the row in [0, m) of the record whose header is
    ``headers[i]``. ``problems`` has the first rule that each other row breaks, by row.
    """

    headers: RecordHeaders
    rows: Int64s
    problems: dict[int, str]

    def __len__(self) -> int:
        return len(self.rows)


def fetch(
    log: CommitLog,
    physical_offsets: Int64s,
    sizes: Int64s,
    checks: RecordChecks = IN_PLACE,
    scratch: Scratch | None = None,
) -> FetchedRecords:
    """Read and check the records of those physical offsets and sizes in bytes: int64[m] each.

    With ``scratch`` the headers stand until the next call that is given the same. Raises
    CorruptStoreError if a file ends before its size said, FileNotFoundError if the broker
    deleted one meanwhile, OSError.
    """
    problems = out_of_reach(log, physical_offsets, sizes, checks)
    held = np.ones(len(sizes), np.bool_)
    held[list(problems)] = False
    rows = np.flatnonzero(held)
    gathered = log.gather(physical_offsets[rows], sizes[rows], scratch)
    headers = RecordHeaders(gathered.buffer, gathered.starts, sizes[rows])
    found = verify(headers, physical_offsets[rows], _of_rows(checks, rows))
    if not found.problems and not problems:
        return found
    problems |= {int(rows[row]): reason for row, reason in found.problems.items()}
    return FetchedRecords(found.headers, rows[found.rows], problems)


def out_of_reach(
    log: CommitLog, physical_offsets: Int64s, sizes: Int64s, checks: RecordChecks
) -> dict[int, str]:
    """Return the rows whose record is not read, and why: the log cannot hold it, or has another.

    A size is only a claim: before much is read for it, the record must say the same.
    """
    held = log.holds(physical_offsets, sizes)
    problems = dict.fromkeys(np.flatnonzero(~held).tolist(), OUTSIDE)
    for row in np.flatnonzero(held & (sizes > LARGE_BYTES)).tolist():
        where = int(physical_offsets[row])
        if not has_header(log, where, int(sizes[row]), checks, row):
            problems[row] = NOT_HERE
    return problems


def fetch_at(
    log: CommitLog, physical_offset: int, checks: RecordChecks = IN_PLACE
) -> RecordHeaders | None:
    """Return the record at ``physical_offset``; None if no record there passes ``checks``."""
    place = np.array([physical_offset], np.int64)
    found = fetch(log, place, record_sizes(log, place), checks)
    return found.headers if len(found) else None


def verify(
    headers: RecordHeaders, physical_offsets: Int64s, checks: RecordChecks = IN_PLACE
) -> FetchedRecords:
    """Check records in memory; ``physical_offsets``, int64[m], are where each should lie."""
    rows = np.arange(len(headers))
    problems: dict[int, str] = {}
    for find in _rules(checks):
        found = find(headers, physical_offsets[rows], _of_rows(checks, rows))
        if found:
            problems |= {int(rows[row]): reason for row, reason in found.items()}
            passed = np.delete(np.arange(len(rows)), list(found))
            rows, headers = rows[passed], headers.take(passed)
    return FetchedRecords(headers, rows, problems)


def record_sizes(log: CommitLog, physical_offsets: Int64s) -> Int64s:
    """Return the TOTALSIZE that the header at each place says; 0 where the log has no room.

    Nothing is checked: ``fetch`` does.
    """
    found = [log.header(place) for place in physical_offsets.tolist()]
    return np.array([0 if head is None else head["total_size"] for head in found], np.int64)


def has_header(
    log: CommitLog, physical_offset: int, size: int, checks: RecordChecks, row: int = 0
) -> bool:
    """Tell from its header alone whether the record of ``row`` starts there with that size.

    The topic is not compared: it lies behind the body.
    """
    head = log.header(physical_offset)
    if head is None or int(head["magic"]) not in RECORD_MAGICS:
        return False
    is_whole = int(head["total_size"]) == size
    is_here = not checks.own_place or int(head["physical_offset"]) == physical_offset
    return is_whole and is_here and _is_at(head, checks.positions, row)


def is_of_unit(log: CommitLog, physical_offset: int, size: int, unit: QueueOffset) -> bool:
    """Tell from its header alone whether the record there is the one that a unit means."""
    topic, queue_id, queue_offset = unit
    zero = np.zeros(1, np.int64)
    positions = QueuePositions([(topic, queue_id, "")], zero, zero + queue_offset, zero)
    return has_header(log, physical_offset, size, RecordChecks(positions=positions))


def _is_at(head: np.void, positions: QueuePositions | None, row: int) -> bool:
    if positions is None:
        return True
    topic, queue_id, _ = positions.queues[int(positions.queue[row])]
    is_light = topic.startswith(LMQ_PREFIX)
    said = int(head["queue_id"]), int(head["queue_offset"])
    return is_light or said == (queue_id, int(positions.queue_offsets[row]))


_Rule: TypeAlias = Callable[[RecordHeaders, Int64s, RecordChecks], dict[int, str]]


def _rules(checks: RecordChecks) -> list[_Rule]:
    rules: list[_Rule] = [_frames]
    if checks.own_place or checks.positions is not None:
        rules.append(_places)
    if checks.checksum:
        rules.append(_checksums)
    return rules


def _frames(headers: RecordHeaders, _places: Int64s, _checks: RecordChecks) -> dict[int, str]:
    return headers.problems()


def _places(
    headers: RecordHeaders, physical_offsets: Int64s, checks: RecordChecks
) -> dict[int, str]:
    found: dict[int, str] = {}
    if checks.own_place:
        elsewhere = headers.field("physical_offset") != physical_offsets
        reason = "PHYSICALOFFSET is not the record's place in the CommitLog"
        found = dict.fromkeys(np.flatnonzero(elsewhere).tolist(), reason)
    if checks.positions is not None:
        positions = checks.positions
        topics = [topic for topic, _, _ in positions.queues]
        ids = np.array([queue_id for _, queue_id, _ in positions.queues], np.int64)
        light = np.array([topic.startswith(LMQ_PREFIX) for topic in topics], np.bool_)
        same = headers.field("queue_offset") == positions.queue_offsets
        same &= headers.field("queue_id") == ids[positions.queue]
        same &= headers.have_topics(topics, positions.queue)
        for row in np.flatnonzero(~(same | light[positions.queue])).tolist():
            found.setdefault(row, OF_ANOTHER)
    return found


def _checksums(headers: RecordHeaders, _places: Int64s, _checks: RecordChecks) -> dict[int, str]:
    return dict.fromkeys(np.flatnonzero(broken(headers)).tolist(), "the checksum does not hold")


def _of_rows(checks: RecordChecks, rows: Int64s) -> RecordChecks:
    if checks.positions is None or len(rows) == len(checks.positions.queue):
        return checks
    return RecordChecks(checks.own_place, checks.positions.take(rows), checks.checksum)

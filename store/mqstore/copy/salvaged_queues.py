"""The ConsumeQueues of the new store: a unit for each record, gap units for those that were lost.

A queue keeps the numbers of its messages. Below its first one is filler, as a broker puts it there;
between two stand gap units. Both work in a CommitLog that does not start at 0: gap units of its
first records name a file before them, which holds a blank record and nothing else. A log that
starts too early for that is moved up, with all records in it. A batch ConsumeQueue has a unit for
each record and needs no filler, because its units say their queue offsets; a gap unit stands for
32,767 of them at most.

Reference: ConsumeQueue#fillPreBlank, DefaultMessageStore#getMessage, BatchConsumeQueue.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.copy.new_log import NewLog
from mqstore.copy.salvage_report import DELETED, DOUBTED, LOST, Report, ReportEntry
from mqstore.copy.salvaged_batches import BatchQueues
from mqstore.copy.salvaged_offsets import Selected, select
from mqstore.derive.generations import Generations, offsets_by_queue
from mqstore.derive.log_queues import LogQueues
from mqstore.derive.log_sections import LogUnits
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.queue_units import make_units
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.queue.queue_repair import fillers
from mqstore.format.arrays import Int64s, Structs, TopicQueue
from mqstore.format.batch_consume_queue import make_batch_units
from mqstore.format.client_message import MAX_BATCH_MESSAGES
from mqstore.format.consume_queue import GAP_SIZE, UNIT
from mqstore.format.names import LMQ_PREFIX

_CHUNK_UNITS: Final = 50_000
_NOWHERE: Final = 2**63 - 1
_GAP_REASON: Final = "no whole record has these queue offsets"
_REPLACED: Final = "of a topic that was deleted and made again: in the log, and in no queue"


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue of the new store: queue offsets [low, high), and what its units ask of the log."""

    low: int
    high: int
    has_filler: bool
    """Whether its first file begins with filler."""
    first_gap_place: int
    """Where the record behind its first gap lies; -1 if it has none."""
    batch_units: int
    """Units of a batch ConsumeQueue, with its gap units."""


class SalvagedQueues:
    """Plans all queues, then writes them. Raises CorruptStoreError, NoSpaceError, OSError."""

    def __init__(
        self, queues: LogQueues, writer: StoreWriter, report: Report, batches: BatchQueues
    ) -> None:
        self._queues = queues
        self._batches = batches
        self._writer = writer
        self._report = report
        self._per_file = writer.sizes.consume_queue // UNIT.itemsize
        self.plans: dict[TopicQueue, QueuePlan] = {}
        self.messages = 0
        """Those that have a unit."""
        self._begins: dict[TopicQueue, int] = {}
        self._apart: Callable[[Int64s], Int64s] = np.copy

    def plan(self, log: NewLog) -> None:
        """Choose the records that stay in their queues; the others are set aside in ``log``.

        Those of a topic that was deleted and made again stay in the log, and are in no queue.
        """
        self._begins, self._apart = self._find_begins(), log.apart
        for queue in self._queues.queues:
            low = high = first_gap = -1
            earlier = units = 0
            for selected in self._select(queue):
                self._set_aside(log, queue, selected.aside, selected.reasons)
                earlier += selected.earlier
                numbers, places = selected.kept.queue_offsets, selected.kept.physical_offsets
                if not len(numbers):
                    continue
                low = int(numbers[0]) if low < 0 else low
                starts = np.append(high if high >= 0 else low, selected.ends[:-1])
                for row in np.flatnonzero(numbers > starts).tolist():
                    self._lose(queue, int(starts[row]), int(numbers[row]))
                    first_gap = int(places[row]) if first_gap < 0 else first_gap
                high = int(selected.ends[-1])
                units += len(numbers) + int(_gap_units(numbers - starts).sum())
            if low >= 0:
                has_filler = low % self._per_file > 0 and queue[0] not in self._batches.topics
                self.plans[queue] = QueuePlan(low, high, has_filler, first_gap, units)
            if earlier:
                self._report.add(_deleted(queue, earlier))

    def _select(self, queue: TopicQueue) -> Iterator[Selected]:
        begin = self._begins.get(queue, 0)
        return select(self._queues, queue, begin, self._apart, self._batches.counting(queue))

    def _find_begins(self) -> dict[TopicQueue, int]:
        """Return where the newest generation begins, of each queue that has records before it.

        The log is walked only if a queue has several records of queue offset 0.
        """
        for queue in self._queues.queues:
            if sum(len(units) for units in self._queues.units(queue, 0, 1)) > 1:
                break
        else:
            return {}
        generations = Generations()
        with CommitLog(self._writer.place.commit_log) as log:
            for queue, named in offsets_by_queue(LogWalk(log, log.low).records()):
                own = named.take(~named.is_second)
                has_batches = queue[0] in self._batches.topics
                columns = own.queue_offsets, own.physical_offsets
                generations.take(queue, *columns, has_batches=has_batches)
        return dict.fromkeys(generations.left(), _NOWHERE) | generations.begins()

    def shift(self, log_low: int) -> tuple[int, int | None]:
        """Return by how much the log moves up, and where a blank file is needed before it."""
        size = self._writer.sizes.commit_log
        has_filler = any(plan.has_filler for plan in self.plans.values())
        gaps = [plan.first_gap_place for plan in self.plans.values() if plan.first_gap_place >= 0]
        if gaps and min(gaps) < log_low + size:
            moved = 0 if log_low > size else 2 * size - log_low
            return moved, log_low + moved - size
        return (size if has_filler and not log_low else 0), None

    def write(self, log_low: int, moved_by: int) -> None:
        """Write the units; the log starts at ``log_low`` now, ``moved_by`` above the plan."""
        for queue, plan in self.plans.items():
            if queue[0] in self._batches.topics:
                self._write_batches(queue, plan, (log_low, moved_by))
                continue
            start = plan.low - plan.low % self._per_file
            appender = QueueAppender(self._writer, *queue)
            appender.reserve(start, plan.high)
            for first in range(start, plan.low, _CHUNK_UNITS):
                appender.write(first, fillers(min(_CHUNK_UNITS, plan.low - first)))
            following = plan.low
            for selected in self._select(queue):
                self._write(appender, selected.kept, following, (log_low, moved_by))
                if len(selected.kept):
                    following = int(selected.ends[-1])
                    self.messages += len(selected.kept)
            appender.close()

    def _write_batches(self, queue: TopicQueue, plan: QueuePlan, log: tuple[int, int]) -> None:
        appender = QueueAppender(self._writer, *queue, batch_file_size=self._batches.file_size)
        appender.reserve(0, plan.batch_units)
        number, following = 0, plan.low
        for selected in self._select(queue):
            if not len(selected.kept):
                continue
            units = self._batch_units(selected, following, log)
            appender.write(number, units)
            number, following = number + len(units), int(selected.ends[-1])
            self.messages += int((selected.ends - selected.kept.queue_offsets).sum())
        appender.close()

    def _batch_units(self, selected: Selected, following: int, log: tuple[int, int]) -> Structs:
        """Return the units of batches, and gap units before them; ``following`` is what is next."""
        kept, bases = selected.kept, selected.kept.queue_offsets
        places = kept.physical_offsets + log[1]
        before = np.append(following, selected.ends[:-1])
        gaps = _gap_units(bases - before)
        rows = np.repeat(np.arange(len(bases)), gaps + 1)
        of_row = np.arange(len(rows)) - np.repeat(np.cumsum(gaps + 1) - gaps - 1, gaps + 1)
        is_gap = of_row < gaps[rows]
        starts = np.where(is_gap, before[rows] + of_row * MAX_BATCH_MESSAGES, bases[rows])
        ends = np.where(
            is_gap, np.minimum(starts + MAX_BATCH_MESSAGES, bases[rows]), selected.ends[rows]
        )
        columns = (
            np.where(is_gap, self._place_before(places[rows], log[0]), places[rows]),
            np.where(is_gap, GAP_SIZE, kept.sizes[rows]),
            np.where(is_gap, 0, kept.tags_codes[rows]),
            kept.store_timestamps_ms[rows],
        )
        return make_batch_units(columns, starts, ends - starts)

    def _write(
        self, appender: QueueAppender, kept: LogUnits, following: int, log: tuple[int, int]
    ) -> None:
        numbers, places = kept.queue_offsets, kept.physical_offsets + log[1]
        units = make_units(places, kept.sizes, kept.tags_codes)
        before = np.append(following - 1, numbers[:-1])
        edges = np.flatnonzero(numbers - before > 1)
        for part in np.split(np.arange(len(numbers)), edges):
            if not len(part):
                continue
            first = int(part[0])
            if numbers[first] - before[first] > 1:
                start, end = int(before[first]) + 1, int(numbers[first])
                gap = self._gap_before(int(places[first]), log[0])
                for number in range(start, end, _CHUNK_UNITS):
                    count = min(_CHUNK_UNITS, end - number)
                    appender.write(number, np.repeat(gap, count))
            for number in range(0, len(part), _CHUNK_UNITS):
                rows = part[number : number + _CHUNK_UNITS]
                appender.write(int(numbers[rows[0]]), units[rows])

    def _gap_before(self, place: int, log_low: int) -> Structs:
        """Return the gap unit for queue offsets before the record at ``place``."""
        return make_units(self._place_before(_one(place), log_low), _one(GAP_SIZE), _one(0))

    def _place_before(self, places: Int64s, log_low: int) -> Int64s:
        """Return the last byte of the CommitLog file before that of each place."""
        within: Int64s = (places - log_low) % self._writer.sizes.commit_log
        return places - within - 1

    def _set_aside(
        self, log: NewLog, queue: TopicQueue, units: LogUnits, reasons: list[str]
    ) -> None:
        if queue[0].startswith(LMQ_PREFIX):  # The record is another queue's, which keeps it.
            return
        places, sizes = units.physical_offsets.tolist(), units.sizes.tolist()
        for place, size, reason in zip(places, sizes, reasons, strict=True):
            entry = ReportEntry(kind=DOUBTED, reason=reason, physicalOffset=place)
            log.set_aside(place, size, entry)

    def _lose(self, queue: TopicQueue, start: int, end: int) -> None:
        topic, queue_id = queue
        self._report.add(
            ReportEntry(
                kind=LOST,
                reason=_GAP_REASON,
                topic=topic,
                queueId=queue_id,
                queueOffset=start,
                count=end - start,
            )
        )


def _gap_units(missing: Int64s) -> Int64s:
    """Return how many gap units of a batch ConsumeQueue stand for so many queue offsets."""
    return (missing + MAX_BATCH_MESSAGES - 1) // MAX_BATCH_MESSAGES


def _deleted(queue: TopicQueue, count: int) -> ReportEntry:
    topic, queue_id = queue
    return ReportEntry(kind=DELETED, reason=_REPLACED, topic=topic, queueId=queue_id, count=count)


def _one(value: int) -> Int64s:
    return np.array([value], np.int64)

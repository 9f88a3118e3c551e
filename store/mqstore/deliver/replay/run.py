"""A replay from its plan to its end: parts of the source in turn, at least once or exactly once.

At least once each part is sent by a task. Exactly once the parts are taken in groups: tasks encode
the messages of a group, then all of them are published as one write; the writes of a replay are
versions of one application (``replay.progress``). What a group holds is bounded, so that memory is,
however much is replayed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from mqstore.deliver.job import SendJob
from mqstore.deliver.once.commit import Published, publish_rows
from mqstore.deliver.once.control import most_bytes
from mqstore.deliver.once.errors import ControlTooLargeError
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.once.wire import LiveWire
from mqstore.deliver.prepare import finish, with_key
from mqstore.deliver.receipts import Receipts
from mqstore.deliver.replay.progress import (
    FinishedWrite,
    Ranges,
    ReplayState,
    SourceNote,
    finished_of,
    ranges_of,
    state_of,
    union,
    without,
)
from mqstore.deliver.replay.task import HandedPart, ReplayTask, SentPart, encode, offset_map, send
from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError, shown
from mqstore.files.txn.ledger import Key
from mqstore.format.message import FILE_SIZE
from mqstore.live.send.topics import MessageLimits
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.source import Origin, QueueSlice

PART_BYTES: Final = 32 * 1024 * 1024
PART_MESSAGES: Final = 50_000
_ROUND: Final = 4
"""At least once, so many parts for each that can be sent side by side are one group."""

T = TypeVar("T")
NumberedPart = tuple[int, tuple[QueueSlice, ...]]
"""The number of a part, and what it takes."""


class Runner(Protocol):
    """Runs the tasks of a replay: here, or elsewhere."""

    parallelism: int
    """How many parts it can do side by side."""

    def run(self, work: Callable[[NumberedPart], T], parts: Sequence[NumberedPart]) -> list[T]:
        """Return what ``work`` returns for each part, in their order. Work and parts pickle."""


class HereRunner:
    """Runs tasks in this process, one after the other."""

    parallelism = 1

    def run(self, work: Callable[[NumberedPart], T], parts: Sequence[NumberedPart]) -> list[T]:
        """Return what ``work`` returns for each part."""
        return [work(part) for part in parts]


class OffsetMapTarget(Protocol):
    """Where the map of old to new queue offsets is written, in pieces with names."""

    def has(self, name: str) -> bool:
        """Tell whether that piece was written, whole."""

    def write(self, name: str, rows: pa.Table) -> None:
        """Write a piece with the columns of OFFSET_MAP. Raises OSError."""


@dataclass(slots=True, kw_only=True)
class ReplayCounts:
    """What a replay did: messages and bytes of their bodies that were sent, and the rest."""

    messages: int = 0
    body_bytes: int = 0
    before: int = 0
    """Exactly once: queue offsets of the source that earlier runs took."""
    found: int = 0
    """Exactly once: messages of an earlier run that were found stored."""
    skipped: int = 0
    repeats: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)

    def add_moved(self, moved: pa.Table) -> None:
        """Count the messages of a map by the topic that they went to."""
        for one in moved["newTopic"].value_counts().to_pylist():
            topic = one["values"]
            self.by_topic[topic] = self.by_topic.get(topic, 0) + one["counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay that may run: what is wanted of its source, and how it is sent.

    ``slices`` of one broker stand together; ``origins`` open each broker of the source again. A
    job with a key is exactly once.
    """

    task: ReplayTask
    slices: tuple[QueueSlice, ...]
    origins: tuple[tuple[str, Origin], ...]
    moved: OffsetMapTarget | None = None
    progress: Callable[[int, int], None] | None = None

    def run(self, runner: Runner) -> ReplayCounts:
        """Have all messages sent; return what was done. Raises what tasks and publishing raise."""
        if self.task.job.key is None:
            return self._at_least_once(runner)
        return self._exactly_once(runner)

    def _at_least_once(self, runner: Runner) -> ReplayCounts:
        counts, parts = ReplayCounts(), list(enumerate(parts_of(self.slices)))
        job = self.task.job
        share = self.task.rate
        share = replace(
            share,
            messages_per_s=share.messages_per_s / runner.parallelism,
            bytes_per_s=share.bytes_per_s / runner.parallelism,
        )
        work = partial(_send, replace(self.task, rate=share))
        for group in _groups(parts, _ROUND * runner.parallelism):
            done = runner.run(work, group)
            sent = finish(job, [part.report for part in done])
            counts.messages += sent.messages
            counts.repeats += sent.repeats
            for part in done:
                counts.body_bytes += part.body_bytes
                counts.skipped += part.report.skipped
                counts.add_moved(part.moved)
            if self.moved is not None:
                name = f"{job.job_id}-{group[0][0]:08d}"
                self.moved.write(name, pa.concat_tables([part.moved for part in done]))
            self._report(group[-1][0] + 1, len(parts))
        return counts

    def _exactly_once(self, runner: Runner) -> ReplayCounts:
        counts = ReplayCounts()
        state = read_state(self.task.job.settings)
        self.look_up(runner)
        version, done = state.next_version, state.done
        if state.begun is not None:
            parts = parts_of(self._slices_of(state.begun))
            group = list(enumerate(parts))
            self._publish(runner, group, version, SourceNote(done, state.begun), counts)
            version, done = version + 1, union(done, state.begun)
        left = without(self.slices, done)
        self._check_note(SourceNote(union(done, ranges_of(left))))
        counts.before = _length(self.slices) - _length(left)
        parts, at = parts_of(left), 0
        while at < len(parts):
            chosen = parts[at : at + runner.parallelism]
            takes = ranges_of(piece for part in chosen for piece in part)
            group = list(enumerate(chosen))
            self._publish(runner, group, version, SourceNote(done, takes), counts)
            version, done, at = version + 1, union(done, takes), at + len(chosen)
            self._report(at, len(parts))
        return counts

    def _check_note(self, note: SourceNote) -> None:
        """Raise ControlTooLargeError before anything is sent, if a note would be too large."""
        job = self.task.job
        most, size = most_bytes(job.limits), len(json.dumps(note.encode()))
        if size > most:
            raise ControlTooLargeError(job.settings.txn_app_id or "", size, most)

    def _publish(
        self,
        runner: Runner,
        group: list[NumberedPart],
        version: int,
        note: SourceNote,
        counts: ReplayCounts,
    ) -> None:
        job, handed = self._encoded(runner, group, version)
        rows = HandedRows.of(job, [part.report.handed for part in handed])
        receipts = Receipts()
        published = publish_rows(
            rows, source=note.encode(), receipts=receipts, pace=self.task.rate.pace()
        )
        reports = [part.report for part in handed]
        finish(job, reports)
        moved = _moved(rows, handed, receipts)
        _count(counts, published, handed)
        counts.add_moved(moved)
        if self.moved is not None and len(rows.ids):
            self.moved.write(_piece_name(job), moved)

    def look_up(self, runner: Runner) -> None:
        """Write the map of what earlier runs sent exactly once, as far as it is missing."""
        for write in _finished(self.task.job.settings) if self.moved is not None else ():
            self._look_up(runner, write)

    def _look_up(self, runner: Runner, write: FinishedWrite) -> None:
        """Write the map of a write that was finished before, if it was not written then."""
        job = _of_version(self.task.job, write.version)
        if self.moved is None or self.moved.has(_piece_name(job)):
            return
        parts = parts_of(self._slices_of(write.note.takes))
        job, handed = self._encoded(runner, list(enumerate(parts)), write.version)
        rows = HandedRows.of(job, [part.report.handed for part in handed])
        receipts = Receipts()
        with LiveWire(job, rows, receipts=receipts) as wire:
            for _ in wire.landed(write.starts):
                pass
        self.moved.write(_piece_name(job), _moved(rows, handed, receipts))

    def _encoded(
        self, runner: Runner, group: list[NumberedPart], version: int
    ) -> tuple[SendJob, list[HandedPart]]:
        job = _of_version(self.task.job, version)
        return job, runner.run(partial(_encode, replace(self.task, job=job)), group)

    def _slices_of(self, ranges: Ranges) -> list[QueueSlice]:
        """Return the slices of ranges that an earlier run took."""
        origins = dict(self.origins)
        for broker, topic, _ in ranges:
            if broker not in origins:
                expected = (
                    f"an earlier run took messages of {shown(topic)} from broker {shown(broker)} "
                    "and did not finish: give the same source, or another --name"
                )
                raise InvalidOptionError("SOURCE", ", ".join(origins), expected)
        return [
            QueueSlice(origins[broker], broker, topic, queue_id, start, end)
            for (broker, topic, queue_id), held in sorted(ranges.items())
            for start, end in held
        ]

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def parts_of(slices: Sequence[QueueSlice]) -> list[tuple[QueueSlice, ...]]:
    """Return slices in parts of at most PART_BYTES and PART_MESSAGES, each queue's in order."""
    limits = SplitLimits(max_bytes=PART_BYTES, max_records=PART_MESSAGES)
    return split(weigh(slices), limits)


def read_state(settings: SendSettings) -> ReplayState:
    """Return how far the replay of ``txnAppId`` is; at its begin if there is no control topic."""
    with _wire(settings) as wire:
        return state_of(wire.history(settings.txn_app_id or ""))


def _finished(settings: SendSettings) -> list[FinishedWrite]:
    with _wire(settings) as wire:
        return finished_of(wire.whole_history(settings.txn_app_id or ""))


def _wire(settings: SendSettings) -> LiveWire:
    limits = MessageLimits(settings.max_message_size, FILE_SIZE)
    job = SendJob(settings=settings, job_id="", limits=limits)
    return LiveWire(job, HandedRows.of(job, ()))


def _moved(rows: HandedRows, handed: Sequence[HandedPart], receipts: Receipts) -> pa.Table:
    sources = pa.concat_tables([part.sources for part in handed])
    ids = pa.array(rows.ids.astype(np.str_), pa.string())
    return offset_map(sources, receipts.places(len(rows.ids)), ids)


def _count(counts: ReplayCounts, published: Published, handed: Sequence[HandedPart]) -> None:
    counts.messages += published.messages
    counts.found += published.found
    counts.repeats += published.counts.repeats
    counts.body_bytes += sum(part.body_bytes for part in handed)
    counts.skipped += sum(part.report.skipped for part in handed)


def _length(slices: Sequence[QueueSlice]) -> int:
    return sum(piece.end - piece.start for piece in slices)


def _of_version(job: SendJob, version: int) -> SendJob:
    assert job.key is not None
    return with_key(job, Key(job.key.app_id, version))


def _piece_name(job: SendJob) -> str:
    assert job.mark is not None
    return job.mark[1]


def _groups(parts: Sequence[NumberedPart], count: int) -> Iterator[list[NumberedPart]]:
    rest = iter(parts)
    while group := list(islice(rest, count)):
        yield group


def _encode(task: ReplayTask, part: NumberedPart) -> HandedPart:
    return encode(task, *part)


def _send(task: ReplayTask, part: NumberedPart) -> SentPart:
    return send(task, *part)

"""Options to queue ranges: which stores and queues, from where to where, in which partitions.

All pruning is by options. The API's ``pushFilters`` is left alone on purpose: on Spark 4.x a
DataFrame that is used twice, once under a filter, then returns wrong rows (SPARK-58551).

Precedence of starts, as in Kafka: startingTimestamp, then startingOffsetsByTimestamp, then
startingOffsets; ends likewise.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from mqstore.errors import DataLossError, InvalidOptionError
from mqstore.options import grammar
from mqstore.options.store_paths import expand
from mqstore.read.offsets import (
    At,
    AtTimestamp,
    Earliest,
    Last,
    Latest,
    Position,
    resolve,
)
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.progress import Progress
from mqstore.read.selection import OpenStores, Selection, check_topic
from mqstore.read.source import BoundsSource, QueueBounds, QueueSlice, Snapshot, slices_of
from pyspark_mqlog.read_options import QueueRange, ReadOptions

_LOG = logging.getLogger(__name__)

Committed: TypeAlias = Mapping[tuple[str, int], int]

_MISSING_PATH: Final = (
    "a read needs the path of a store: load('/data/broker-a/store'). (Spark 4 forgets the OPTIONS "
    "of CREATE TABLE … USING mqlog: use CREATE TEMPORARY VIEW, or SELECT … FROM t WITH "
    "(path='…'))"
)


def in_partitions(
    options: ReadOptions, slices: Sequence[QueueSlice]
) -> list[tuple[QueueSlice, ...]]:
    """Return slices in partitions, as the options bound them."""
    limits = SplitLimits(
        max_bytes=options.max_bytes_per_partition,
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
        parallelism=cores(),
    )
    strict = options.on_corrupt == "fail"
    return split(weigh(slices, strict=strict), limits)


def message_slices(options: ReadOptions, stores: OpenStores) -> list[QueueSlice]:
    """Return the slices of queues that the options choose of the stores they name."""
    found: list[QueueSlice] = []
    for source, snapshot, group in _with_groups(options, stores, stores.snapshots):
        slices = slices_of(snapshot, _ranges(options, source, snapshot, group))
        if options.keys is not None or options.msg_ids is not None:
            slices = source.narrow(slices, options.keys or (), options.msg_ids or ())
        found += slices
    return found


def starting_progress(
    options: ReadOptions, stores: OpenStores, snapshots: Sequence[Snapshot]
) -> Progress:
    """Return where a stream of these stores starts: their queues, and the position in each.

    Raises what ``resolve`` raises, DataLossError for a position in a queue that is not there
    yet (its messages will be read from the first), and InvalidOptionError for a group without
    a topic, if those of the group were to be read.
    """
    groups = _with_groups(options, stores, snapshots)
    starts = {
        (queue.topic, snapshot.broker_name, queue.queue_id): start
        for source, snapshot, group in groups
        for queue, start, _ in _ranges(options, source, snapshot, group)
    }
    if not takes_topics_of_group(options):
        return starts
    # The topics of the start are those that are read: also one without a queue (yet), whole.
    is_chosen = stores.topic_test()
    there = {(topic, broker) for topic, broker, _ in starts}
    starts |= {
        (topic, snapshot.broker_name, queue_id): 0
        for _, snapshot, group in groups
        for topic, queue_id in group or ()
        if is_chosen(topic) and (topic, snapshot.broker_name) not in there
    }
    if not starts:
        expected = "the group has committed in no topic: name those to read in subscribe"
        raise InvalidOptionError("startingGroup", options.starting_group, expected)
    return starts


def without_start(options: ReadOptions) -> ReadOptions:
    """Return the options of a read of the same queues from the first message that is held."""
    return replace(
        options,
        starting_offsets=QueueRange(grammar.EARLIEST),
        starting_timestamp=None,
        starting_by_timestamp=None,
        starting_group=None,
    )


def takes_topics_of_group(options: ReadOptions) -> bool:
    """Tell whether the topics are those of the group to start from: no other choice is made."""
    chosen = options.subscribe or options.subscribe_pattern or options.assign
    return options.starting_group is not None and not chosen


def open_stores(options: ReadOptions) -> OpenStores:
    """Open the stores that the options name, with the topics that they choose.

    Raises InvalidOptionError where none is named, and as ``OpenStores``.
    """
    roots = expand(options.paths)
    if not roots:
        raise InvalidOptionError("path", "", _MISSING_PATH)
    # Tables show every topic, as the broker's own tools do, unless the user says otherwise.
    all_by_default = options.table != "messages" and "includeSystemTopics" not in options.given
    selection = Selection(
        roots=roots,
        commit_log=options.commit_log or (),
        broker_names=options.broker_names or (),
        subscribe=options.subscribe or (),
        subscribe_pattern=options.subscribe_pattern,
        assign=options.assign,
        include_system_topics=options.include_system_topics or all_by_default,
    )
    return OpenStores(selection, strict=options.on_corrupt == "fail")


def _with_groups(
    options: ReadOptions, stores: OpenStores, snapshots: Sequence[Snapshot]
) -> list[tuple[BoundsSource, Snapshot, Committed | None]]:
    """Return the stores, and what the group to start from has committed in each."""
    _check_named_queues(options, stores, snapshots)
    _check_positions(options, snapshots)
    groups: Sequence[Committed | None] = [None] * len(snapshots)
    if options.starting_group is not None:
        groups = stores.committed(options.starting_group)
        if takes_topics_of_group(options):
            snapshots = [_topics_of_group(s, g) for s, g in zip(snapshots, groups, strict=True)]
    return list(zip(stores.sources, snapshots, groups, strict=True))


def _ranges(
    options: ReadOptions, source: BoundsSource, snapshot: Snapshot, group: Committed | None
) -> list[tuple[QueueBounds, int, int]]:
    ask = partial(_ask, options, snapshot.broker_name, group)
    return resolve(source, snapshot, ask, fail_on_data_loss=options.fail_on_data_loss)


def _ask(
    options: ReadOptions, broker: str, group: Committed | None, queue: QueueBounds
) -> tuple[Position, Position]:
    """Return where the user wants the queue to start and to end."""
    key = queue.topic, broker, queue.queue_id
    end = _place(options.ending_offsets, key)
    ending_ms = _at_time(options.ending_timestamp, options.ending_by_timestamp, key)
    if ending_ms is not None:
        end = AtTimestamp(ending_ms)
    if group is not None:
        return _from_group(group, queue), end
    start = _place(options.starting_offsets, key)
    starting_ms = _at_time(options.starting_timestamp, options.starting_by_timestamp, key)
    if starting_ms is not None:
        # One time for all queues: a queue without later messages just has none. A time for one
        # queue: Kafka's default, an error. Whoever sets the strategy gets it for both.
        one_for_all = options.starting_timestamp is not None
        strict = not one_for_all or "startingOffsetsByTimestampStrategy" in options.given
        start = AtTimestamp(
            starting_ms,
            must_exist=strict and options.strategy == "error",
            option="startingTimestamp" if one_for_all else "startingOffsetsByTimestamp",
        )
    return start, end


def _from_group(group: Committed, queue: QueueBounds) -> Position:
    """Return where the group goes on: what expired since is no loss, but its ``expired``."""
    queue_offset = group.get((queue.topic, queue.queue_id))
    if queue_offset is None:
        return Earliest()
    return At(min(max(queue_offset, queue.low), queue.high))


def _place(wanted: QueueRange, key: tuple[str, str, int]) -> Position:
    if wanted.last_count is not None:
        return Last(wanted.last_count)
    number = _of_queue(wanted.each, key)
    if number is None:
        number = wanted.word
    if number == grammar.EARLIEST:
        return Earliest()
    return Latest() if number == grammar.LATEST else At(number)


def _at_time(
    for_all: int | None, each: Mapping[grammar.QueueKey, int] | None, key: tuple[str, str, int]
) -> int | None:
    return for_all if for_all is not None else _of_queue(each, key)


def _of_queue(each: Mapping[grammar.QueueKey, int] | None, key: tuple[str, str, int]) -> int | None:
    if each is None:
        return None
    topic, broker, queue_id = key
    return each.get((topic, broker, queue_id), each.get((topic, None, queue_id)))


def _check_named_queues(
    options: ReadOptions, stores: OpenStores, snapshots: Sequence[Snapshot]
) -> None:
    """Refuse positions for queues that the read does not have: they would be ignored."""
    brokers = [snapshot.broker_name for snapshot in snapshots]
    named: tuple[tuple[str, Mapping[grammar.QueueKey, int] | None], ...] = (
        ("startingOffsets", options.starting_offsets.each),
        ("endingOffsets", options.ending_offsets.each),
        ("startingOffsetsByTimestamp", options.starting_by_timestamp),
        ("endingOffsetsByTimestamp", options.ending_by_timestamp),
    )
    if not any(each for _, each in named):
        return
    topics = {queue.topic for snapshot in snapshots for queue in snapshot.queues}
    configured = {topic for source in stores.sources for topic in source.topic_configs()}
    topics |= set(filter(stores.topic_test(), configured))
    for option, each in named:
        for topic, broker, queue_id in each or ():
            if broker is not None and broker not in brokers:
                raise InvalidOptionError(
                    option,
                    broker,
                    f"{grammar.did_you_mean(broker, brokers)}the stores are of broker "
                    f"{', '.join(brokers)}",
                )
            check_topic(option, topic, topics)
            stores.check_queue(option, snapshots, (broker, topic, queue_id))


def _check_positions(options: ReadOptions, snapshots: Sequence[Snapshot]) -> None:
    """Refuse a position in a queue that is not there yet, or not any more, as one that is lost."""
    held = {
        (queue.topic, name, queue.queue_id)
        for snapshot in snapshots
        for queue in snapshot.queues
        for name in (None, snapshot.broker_name)
    }
    for wanted in (options.starting_offsets, options.ending_offsets):
        for key, position in (wanted.each or {}).items():
            if position > 0 and key not in held:
                topic, _, queue_id = key
                error = DataLossError(
                    f"{topic}/{queue_id}", start=position, end=position, low=0, high=0
                )
                if options.fail_on_data_loss:
                    raise error
                _LOG.warning("%s", error)


def _topics_of_group(snapshot: Snapshot, group: Committed | None) -> Snapshot:
    topics = {topic for topic, _ in group or ()}
    return replace(snapshot, queues=tuple(q for q in snapshot.queues if q.topic in topics))


def cores() -> int:
    """Return how many tasks are taken to run at the same time: the API does not tell."""
    return os.cpu_count() or 1

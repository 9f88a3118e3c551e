"""The stores, queues and ranges that options choose.

Reads are pruned by options only. The API's ``pushFilters`` is not used: on Spark 4.x a DataFrame
that is used twice, once under a filter, then returns wrong rows (SPARK-58551).

Precedence of starts, as in Kafka: startingTimestamp, then startingOffsetsByTimestamp, then
startingOffsets; ends likewise.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from mqstore.backlog.request import named_groups
from mqstore.errors import DataLossError, InvalidOptionError, shown
from mqstore.files.base.folder import Folder
from mqstore.format.arrays import TopicQueue
from mqstore.format.names import TRACE_TOPIC
from mqstore.options import grammar
from mqstore.pop.look import pop_state, snapshot_of_pops
from mqstore.read.by_log import BY_LOG_WORD
from mqstore.read.offsets import (
    At,
    AtTimestamp,
    Earliest,
    Last,
    Latest,
    Position,
    resolve,
)
from mqstore.read.progress import Progress
from mqstore.read.queues import QueueBounds
from mqstore.read.selection import OpenStores, Selection, check_topic
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of
from mqstore.read.tier_bounds import tell
from mqstore.request.places import Places, open_all
from mqstore.request.read_options import FROM_EARLIEST, QueueRange, ReadOptions, takers
from mqstore.tables.catalog import CATALOG

_LOG = logging.getLogger(__name__)
_NAMED_TOPICS: Final = 5
_OF_POPS: Final = (
    "group %s pops %s: the read starts at the first message that it has not acknowledged, and "
    "acknowledged ones follow; table=unacknowledged has the others alone"
)

_MISSING_PATH: Final = (
    "a read needs the path of a store: load('/data/broker-a/store'), or of a cluster: "
    "load('rocketmq://HOST:9876/TOPIC'). (Spark 4 loses the OPTIONS "
    "of CREATE TABLE … USING mqlog: use CREATE TEMPORARY VIEW, or SELECT … FROM t WITH "
    "(path='…'))"
)


def open_stores(options: ReadOptions) -> OpenStores:
    """Open the stores and clusters that the options name, with the topics that they choose.

    Raises InvalidOptionError where none is named, and as ``open_all``.
    """
    roots = options.places.roots()
    if not roots and not options.places.clusters:
        raise InvalidOptionError("path", "", _MISSING_PATH)
    selection = _selection(options, roots)
    return open_all(selection, options.places.clusters, strict=options.on_corrupt == "fail")


def _selection(options: ReadOptions, roots: tuple[Folder, ...]) -> Selection:
    is_table = options.table != "messages"
    # Of tables about groups these are RocketMQ's own or not, whatever the topics.
    owner = CATALOG[options.table].owner if is_table else "topic"
    is_of_messages = is_table and CATALOG[options.table].of_users
    is_given = owner == "topic" or is_of_messages or "includeSystemTopics" in options.given
    all_by_default = owner == "group" or not is_given
    return Selection(
        roots=roots,
        commit_log=options.commit_log or (),
        broker_names=options.broker_names or (),
        subscribe=options.subscribe or options.places.topics,
        beside=(options.trace_topic or TRACE_TOPIC,) * (options.table in takers("traceTopic")),
        named_by=_named_by(options),
        subscribe_pattern=options.subscribe_pattern,
        assign=options.assign,
        include_system_topics=options.include_system_topics or all_by_default,
        groups=_groups(options),
        with_state=is_table and not CATALOG[options.table].of_users,
        by_group=is_table and CATALOG[options.table].is_of_topics_of_groups,
        by_log=options.queues == BY_LOG_WORD,
        cache=options.cache_dir or "",
        tier=options.tier,
        takes_unconfirmed=options.read_uncommitted,
        not_served=CATALOG[options.table].not_served if is_table else "",
    )


@contextmanager
def open_other(
    options: ReadOptions, other: Places, topics: Collection[str] | None
) -> Iterator[OpenStores]:
    """Open another place with what the options choose of this one, and close it afterwards.

    With ``topics``, these are chosen instead. Names of brokers, folders of a CommitLog and
    ``queues`` are this one's. Raises as ``open_all``.
    """
    chosen = _selection(options, other.roots())
    selection = replace(chosen, commit_log=(), broker_names=(), by_log=False, cache="", tier=None)
    selection = replace(selection, takes_unconfirmed=False)
    if topics is not None:
        selection = replace(selection, subscribe=tuple(sorted(topics)), subscribe_pattern=None)
    strict = options.on_corrupt == "fail"
    with closing(open_all(selection, other.clusters, strict=strict)) as stores:
        yield stores


def _named_by(options: ReadOptions) -> str:
    """Return the option that names the topics of ``subscribe``."""
    streamed = CATALOG[options.table].streamed if options.table in CATALOG else None
    return streamed.option if streamed else "subscribe"


def _groups(options: ReadOptions) -> tuple[str, ...] | None:
    """Return the consumer groups that the options name; None if the read is not about groups."""
    if options.starting_group is not None:
        return (options.starting_group,)
    if options.audit.unconsumed is not None:
        return (options.audit.unconsumed,)
    if options.table not in takers("groups"):
        return None
    named = tuple(sorted(named_groups(options.groups) | set(options.subscriptions or {})))
    return named if named or options.table not in takers("traceTopic") else None


def message_slices(options: ReadOptions, stores: OpenStores) -> list[QueueSlice]:
    """Return the slices of queues that the options choose of the stores."""
    found: list[QueueSlice] = []
    for store in _chosen(options, stores, stores.snapshots):
        tell(store.snapshot)
        slices = slices_of(store.snapshot, store.ranges())
        if options.keys or options.msg_ids:
            slices = store.source.narrow(slices, options.keys, options.msg_ids)
        found += slices
    return found


def starting_progress(
    options: ReadOptions, stores: OpenStores, snapshots: Sequence[Snapshot]
) -> Progress:
    """Return where a stream of these stores starts: a position in each of their queues.

    Raises what ``resolve`` raises, DataLossError for a position in a queue that does not exist
    (yet: its messages will be read from the first), and InvalidOptionError for a group that has
    committed in no topic, if the topics are those of the group.
    """
    chosen = _chosen(options, stores, snapshots)
    starts = {
        (queue.topic, store.broker_name, queue.queue_id): start
        for store in chosen
        for queue, start, _ in store.ranges()
    }
    if not takes_topics_of_group(options):
        return starts
    # A stream reads the topics of its start, so a topic of the group without a queue is added.
    is_chosen = stores.topic_test()
    has_start = {(topic, broker) for topic, broker, _ in starts}
    starts |= {
        (topic, store.broker_name, queue_id): 0
        for store in chosen
        for topic, queue_id in store.group or ()
        if is_chosen(topic) and (topic, store.broker_name) not in has_start
    }
    if not starts:
        expected = "the group has committed in no topic: name the topics in subscribe"
        raise InvalidOptionError("startingGroup", options.starting_group, expected)
    return starts


def without_start(options: ReadOptions) -> ReadOptions:
    """Return the options of a read of the same queues from the first message that is held."""
    return replace(
        options,
        starting_offsets=FROM_EARLIEST,
        starting_timestamp=None,
        starting_by_timestamp=None,
        starting_group=None,
    )


def takes_topics_of_group(options: ReadOptions) -> bool:
    """Tell whether the topics are those of startingGroup, because no option chooses others."""
    chosen = options.subscribe or options.subscribe_pattern or options.assign
    chosen = chosen or options.places.topics
    return options.starting_group is not None and not chosen


@dataclass(frozen=True, slots=True)
class _ChosenQueues:
    """The chosen queues of one store, and the committed offsets of startingGroup, if it is set."""

    options: ReadOptions
    source: BoundsSource
    snapshot: Snapshot
    group: Mapping[TopicQueue, int] | None

    @property
    def broker_name(self) -> str:
        return self.snapshot.broker_name

    def ranges(self) -> list[tuple[QueueBounds, int, int]]:
        """Return the range of each queue. Raises what ``resolve`` raises."""
        loss = self.options.fail_on_data_loss
        return resolve(self.source, self.snapshot, self._positions, fail_on_data_loss=loss)

    def _positions(self, queue: QueueBounds) -> tuple[Position, Position]:
        options = self.options
        key = queue.topic, self.broker_name, queue.queue_id
        end = _place(options.ending_offsets, key)
        ending_ms = _at_time(options.ending_timestamp, options.ending_by_timestamp, key)
        if ending_ms is not None:
            end = AtTimestamp(ending_ms)
        if self.group is not None:
            return self._after_group(queue), end
        starting_ms = _at_time(options.starting_timestamp, options.starting_by_timestamp, key)
        if starting_ms is None:
            return _place(options.starting_offsets, key), end
        # With one time for all queues, a queue without later messages has no rows. With a time
        # for each, it is an error, as in Kafka. The strategy, if it is set, is for both.
        for_all = options.starting_timestamp is not None
        strict = not for_all or "startingOffsetsByTimestampStrategy" in options.given
        start = AtTimestamp(
            starting_ms,
            must_exist=strict and options.strategy == "error",
            option="startingTimestamp" if for_all else "startingOffsetsByTimestamp",
        )
        return start, end

    def _after_group(self, queue: QueueBounds) -> Position:
        """Return the group's offset; messages that expired after it are no loss."""
        queue_offset = (self.group or {}).get((queue.topic, queue.queue_id))
        if queue_offset is None:
            return Earliest()
        return At(min(max(queue_offset, queue.low), queue.high))


def _chosen(
    options: ReadOptions, stores: OpenStores, snapshots: Sequence[Snapshot]
) -> list[_ChosenQueues]:
    """Return the chosen queues of each store. Raises as ``OpenStores.committed``."""
    _check_named_queues(options, stores, snapshots)
    _check_positions(options, snapshots)
    if options.starting_group is None:
        chosen = zip(stores.sources, snapshots, strict=True)
        return [_ChosenQueues(options, source, snapshot, None) for source, snapshot in chosen]
    groups = stores.committed(options.starting_group)
    pairs = zip(stores.sources, groups, strict=True)
    groups = [_unacknowledged(source, options.starting_group, group) for source, group in pairs]
    if takes_topics_of_group(options):
        snapshots = list(map(_of_topics, snapshots, groups))
    chosen_of_group = zip(stores.sources, snapshots, groups, strict=True)
    return [_ChosenQueues(options, *one) for one in chosen_of_group]


def _unacknowledged(
    source: BoundsSource, group: str, committed: Mapping[TopicQueue, int]
) -> dict[TopicQueue, int]:
    """Return where a group starts: as it committed, or at its first message not acknowledged.

    The latter in queues that it pops; the offsets that it committed there lie behind it.
    """
    facts, by_group = source.config.pop_facts(), source.config.consumer_offsets()
    snapshot = snapshot_of_pops(source, {topic for topic, _ in committed})
    if snapshot is None:
        return dict(committed)
    state = pop_state(source, snapshot, lambda name: name == group, facts, by_group, group)
    starts = dict(committed)
    popped = []
    for queue in snapshot.queues:
        found = state.queue(queue.topic, group, queue.queue_id)
        name = queue.topic, queue.queue_id
        if found is not None and (name in committed or len(found.queue_offsets)):
            starts[name] = found.first
            popped.append(queue.topic)
    if popped:
        named = ", ".join(map(shown, sorted(set(popped))[:_NAMED_TOPICS]))
        _LOG.warning(_OF_POPS, shown(group), named)
    return starts


def _of_topics(snapshot: Snapshot, group: Mapping[TopicQueue, int]) -> Snapshot:
    """Return the snapshot with the queues of topics that the group has committed in."""
    topics = {topic for topic, _ in group}
    return replace(snapshot, queues=tuple(q for q in snapshot.queues if q.topic in topics))


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
    """Raise an error for a position in a queue that the read does not have."""
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
                    f"{', '.join(brokers)}; a broker that is away is not registered",
                )
            check_topic(option, topic, topics)
            stores.check_queue(option, snapshots, (broker, topic, queue_id))


def _check_positions(options: ReadOptions, snapshots: Sequence[Snapshot]) -> None:
    """Raise DataLossError for a position in a queue that does not exist; a warning if accepted."""
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

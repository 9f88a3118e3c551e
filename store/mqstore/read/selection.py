"""Resolves the stores, topics and queues of a read, and the committed offsets of a group.

Reference: Spark's ConsumerStrategy (subscribe, subscribePattern, assign).
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from mqstore.errors import (
    InvalidOptionError,
    StoreError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedTopicError,
    shown,
)
from mqstore.files.base.folder import Folder
from mqstore.format.arrays import TopicQueue
from mqstore.format.names import is_system_topic
from mqstore.read.capabilities import BrokerFinder, Tail, followable
from mqstore.read.joining import Joining, registered
from mqstore.read.known_names import listed, unknown
from mqstore.read.queues import QueueBounds, QueueFilter
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.read.system_topics import own_topics

_LOG = logging.getLogger(__name__)
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Stores, and the topics of them that are chosen: by one of three ways, else all.

    ``roots`` are directories, ``broker_names`` as many names or none. ``subscribe``, which
    ``named_by`` gave, may name system topics; other choices need ``include_system_topics`` for it.
    ``beside`` are topics that are read too, where they are there.
    ``groups`` are consumer groups that options name; None: nothing about groups is asked for.
    ``with_state``: also half messages and the state of groups; ``by_group``: it is about both.
    ``by_log``: queues are made from the CommitLog, and kept in the directory ``cache``. ``tier`` is
    the directory of tiered storage that the brokers of the stores have.
    ``takes_unconfirmed``: it goes on behind what a controller's group agreed on.
    ``not_served`` is a request that it needs and no proxy serves.
    """

    roots: tuple[Folder, ...]
    commit_log: tuple[str, ...] = ()
    broker_names: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    named_by: str = "subscribe"
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    include_system_topics: bool = False
    groups: tuple[str, ...] | None = None
    with_state: bool = False
    by_group: bool = False
    by_log: bool = False
    cache: str = ""
    tier: str | None = None
    takes_unconfirmed: bool = False
    not_served: str = ""


class OpenStores:
    """The stores and clusters of a read, opened once: a cluster as its brokers of that moment."""

    def __init__(
        self,
        selection: Selection,
        stores: Sequence[BoundsSource],
        clusters: Sequence[BrokerFinder] = (),
        *,
        strict: bool = True,
    ) -> None:
        """Take the ``stores`` at ``selection.roots`` and the brokers that ``clusters`` have now.

        ``strict`` is as in ``BoundsSource.snapshot``. Raises as ``BrokerFinder.brokers``.
        """
        self.selection = selection
        self._clusters = tuple(clusters)
        self._brokers = [(cluster, list(cluster.brokers())) for cluster in clusters]
        self.sources: tuple[BoundsSource, ...] = (
            *stores,
            *(cluster.source(name) for cluster, names in self._brokers for name in names),
        )
        self._strict = strict
        self._joining = Joining(self._brokers)

    def close(self) -> None:
        """Close them."""
        for source in self.sources:
            source.close()
        for cluster in self._clusters:
            cluster.close()

    def join(self) -> list[BoundsSource]:
        """Add the brokers that joined the clusters to ``sources``; returns them. Waits for none."""
        added = self._joining.poll()
        self.sources = (*self.sources, *added)
        return added

    @property
    def is_proxied(self) -> bool:
        """Tell whether some of it is read through a proxy."""
        return any(cluster.is_proxy for cluster in self._clusters)

    @property
    def has_many_brokers(self) -> bool:
        """Tell whether offsets need a broker's name: there are several, or may be."""
        return bool(self._clusters) or len(self.sources) > 1

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics that the stores know."""
        return frozenset().union(*(source.topics() for source in self.sources))

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """A snapshot of the chosen queues of each store, in the order of ``sources``.

        Raises UnknownTopicError for a topic or queue that no store knows, InvalidOptionError for
        two stores of one broker's name, and what ``BoundsSource.snapshot`` raises.
        """
        return self._chosen(self.snapshots_of(self.topic_test()))

    @cached_property
    def held(self) -> tuple[Snapshot, ...]:
        """As ``snapshots``, of all that the stores hold, readable from here or not."""
        return self._chosen(self.held_of(self.topic_test()))

    def snapshots_of(self, topics: Callable[[str], bool]) -> tuple[Snapshot, ...]:
        """Return a snapshot of the queues of those topics of each store, whatever is chosen."""
        self._look(None, None)
        found = tuple(source.snapshot(topics, strict=self._strict) for source in self.sources)
        self._check_refused(found)
        check_names_differ((one.broker_name, one.origin.name) for one in found)
        return found

    def held_of(
        self, topics: Callable[[str], bool], groups: Callable[[str], object] | None = None
    ) -> tuple[Snapshot, ...]:
        """As ``snapshots_of``, also of what cannot be read from here: for tables of queues.

        ``groups`` are those whose consumers will be asked for.
        """
        self._look(topics, groups)
        found = tuple(source.held(topics, strict=self._strict) for source in self.sources)
        self._check_refused(found)
        check_names_differ((one.broker_name, one.origin.name) for one in found)
        return found

    def _look(
        self, topics: Callable[[str], bool] | None, groups: Callable[[str], object] | None
    ) -> None:
        """Look at all brokers of each cluster at once, unless it is about messages alone."""
        for cluster, brokers in self._brokers if self.selection.with_state else ():
            cluster.look(brokers, topics, groups)

    def _chosen(self, snapshots: tuple[Snapshot, ...]) -> tuple[Snapshot, ...]:
        assigned = self.selection.assign
        if assigned is None:
            return snapshots
        self._check_queues(snapshots)
        return tuple(_assigned(snapshot, assigned) for snapshot in snapshots)

    def tails(self, *, fail_on_data_loss: bool = True) -> tuple[Tail, ...]:
        """Return the tail of the chosen queues of each store, in the order of ``sources``.

        Brokers of a cluster may be away: see ``Follower.await_all``.
        Topics and queues that appear later are followed if they are chosen. Raises as
        ``snapshots``; but without ``fail_on_data_loss``, a topic or queue that no store knows is
        only warned of: it may have been read and deleted. See ``check_chosen``.
        """
        try:
            self.check_topics()
        except UnknownTopicError as error:
            if fail_on_data_loss:
                raise
            _LOG.warning("%s", error)
        chosen = self._filter()
        tails = tuple(
            followable(source).tail(
                chosen, strict=self._strict, fail_on_data_loss=fail_on_data_loss
            )
            for source in self.sources
        )
        snapshots = [tail.snapshot for tail in tails]
        self._check_refused(snapshots)
        check_names_differ((one.broker_name, one.origin.name) for one in snapshots)
        if fail_on_data_loss and all(tail.away is None for tail in tails):
            self._check_queues(snapshots)
        return tails

    def tails_beside(self, known: Set[str], named: Set[str]) -> list[Tail]:
        """Return tails of brokers that clusters have beside the ``known``, and of the ``named``.

        Of which cluster the latter are can be told if there is one only.
        """
        chosen, found = self._filter(), []
        for cluster in self._clusters:
            there = registered(cluster) - known
            there |= set(named) if len(self._clusters) == 1 else set()
            found += [cluster.source(name).tail(chosen) for name in sorted(there)]
        return found

    def _filter(self) -> QueueFilter:
        assigned = self.selection.assign

        def is_assigned(topic: str, queue_id: int) -> bool:
            return assigned is None or queue_id in assigned[topic]

        return QueueFilter(self._name_test(), is_assigned)

    def check_chosen(self, snapshots: Sequence[Snapshot]) -> None:
        """Raise UnknownTopicError for a named topic or queue that no store knows."""
        self.check_topics()
        self._check_queues(snapshots)

    def topic_test(self) -> Callable[[str], bool]:
        """Return the test of a topic's name; raises UnknownTopicError as ``check_topics``."""
        self.check_topics()
        return self._name_test()

    def _name_test(self) -> Callable[[str], bool]:
        chosen = self.selection
        is_named = chosen.subscribe or chosen.assign is not None
        hides = not (is_named or chosen.include_system_topics)
        return _name_test(chosen, self.own_topics if hides else frozenset())

    @cached_property
    def own_topics(self) -> frozenset[str]:
        """The topics that brokers have under names of their own, as far as they tell them."""
        own: set[str] = set()
        for source in self.sources:
            try:
                own |= own_topics(source.topic_configs())
            except StoreError as error:
                _LOG.info("the topics of %s are not known: %s", source.origin.name, error)
        return frozenset(own)

    def check_topics(self, *, consumed: bool = False) -> None:
        """Raise UnknownTopicError for a named topic that no store knows.

        With ``consumed``, a topic is known too if a group has committed an offset in it.
        """
        wanted = self.selection.subscribe or self.selection.assign or ()
        if not wanted:
            return
        option = self.selection.named_by if self.selection.subscribe else "assign"
        known = self.known_topics(wanted, consumed=consumed)
        for topic in sorted(wanted):
            check_topic(option, topic, known)

    def known_topics(self, wanted: Iterable[str], *, consumed: bool) -> frozenset[str]:
        """Return ``topics``; if they lack a ``wanted`` one, also those that groups ``consumed``."""
        if not consumed or self.topics.issuperset(wanted):
            return self.topics
        return self.topics | {t for s in self.sources for t, _ in s.config.consumer_offsets()}

    def check_queue(
        self, option: str, snapshots: Sequence[Snapshot], queue: tuple[str | None, str, int]
    ) -> None:
        """Raise UnknownTopicError unless a store holds that queue, or is configured to have it.

        ``queue`` is a broker's name (None: of any), a topic and a queueId.
        """
        broker, topic, queue_id = queue
        held: set[int] = set()
        for source, snapshot in zip(self.sources, snapshots, strict=True):
            if broker in (None, snapshot.broker_name):
                held |= {q.queue_id for q in snapshot.queues if q.topic == topic}
                known = source.topic_configs().get(topic)
                if known is not None:
                    held |= set(range(max(known.read_queue_nums, known.write_queue_nums)))
        if queue_id not in held:
            there = ", ".join(map(str, sorted(held)[:_SHOWN_NAMES])) + (
                ", …" if len(held) > _SHOWN_NAMES else ""
            )
            raise UnknownTopicError(
                f"option {option}: topic {shown(topic)} has no queue {queue_id}; "
                f"its queues are {there}"
            )

    def committed(
        self, group: str, *, option: str = "startingGroup"
    ) -> list[dict[TopicQueue, int]]:
        """Return for each store the group's next queue offset by topic and queue.

        Raises UnknownGroupError for a group that no store knows.
        """
        tables = [source.config.consumer_offsets() for source in self.sources]
        known = {name for table in tables for _, name in table}
        for source in self.sources if group not in known else ():
            known |= source.config.groups()
        if group not in known:
            raise UnknownGroupError(unknown(option, "group", group, known))
        return [
            {
                (topic, queue_id): queue_offset
                for (topic, name), queues in table.items()
                if name == group
                for queue_id, queue_offset in queues.items()
            }
            for table in tables
        ]

    def _check_refused(self, snapshots: Sequence[Snapshot]) -> None:
        """Raise the refusal of a named topic that cannot be read, or the first if none is left."""
        named = self.selection.subscribe or self.selection.assign or ()
        refused = [pair for one in snapshots for pair in one.refused]
        for topic, error in refused:
            if topic in named and isinstance(error, UnsupportedTopicError):
                raise error
        if refused and not any(one.queues for one in snapshots):
            raise refused[0][1]

    def _check_queues(self, snapshots: Sequence[Snapshot]) -> None:
        for topic, queue_ids in (self.selection.assign or {}).items():
            for queue_id in queue_ids:
                self.check_queue("assign", snapshots, (None, topic, queue_id))


def _name_test(selection: Selection, own: Set[str]) -> Callable[[str], bool]:
    """Return the test of a topic's name; ``own`` are topics of brokers, which are hidden."""
    if selection.subscribe or selection.assign is not None:
        return frozenset(selection.subscribe or selection.assign or ()).__contains__
    pattern = re.compile(selection.subscribe_pattern or ".*", re.DOTALL)

    def chosen(topic: str) -> bool:
        visible = selection.include_system_topics or not (is_system_topic(topic) or topic in own)
        return visible and pattern.fullmatch(topic) is not None

    return chosen


def check_topic(option: str, topic: str, known: Iterable[str]) -> None:
    """Raise UnknownTopicError unless ``topic`` is one of ``known``."""
    known = set(known)
    if topic not in known:
        raise UnknownTopicError(unknown(option, "topic", topic, known))


def broker_names(selection: Selection) -> tuple[str | None, ...]:
    """Return the name asked for each store, or None: InvalidOptionError if they do not fit."""
    count = len(selection.roots)
    _check_roots_differ(selection.roots)
    if selection.commit_log and count > 1:
        raise InvalidOptionError(
            "storePathCommitLog",
            ",".join(selection.commit_log),
            f"is for one store, and path names {count}: read them one by one and union",
        )
    if not selection.broker_names:
        return (None,) * count
    if len(selection.broker_names) != count:
        named = [root.name for root in selection.roots]
        raise InvalidOptionError(
            "brokerName",
            ",".join(selection.broker_names),
            f"must have one name for each store; there are {count}: {listed(named)}",
        )
    return selection.broker_names


def check_names_differ(stores: Iterable[tuple[str, str]]) -> None:
    """Raise InvalidOptionError if two stores, each a broker's name and a root, have one name."""
    roots: dict[str, str] = {}
    for name, root in stores:
        first = roots.setdefault(name, root)
        if first is not root:
            raise InvalidOptionError(
                "brokerName",
                name,
                f"two stores have this name: {first} and {root}; set brokerName to "
                'a JSON list with a name for each, such as ["broker-a","broker-b"] (brokers of '
                "clusters keep theirs: read such clusters apart, and union)",
            )


def _check_roots_differ(roots: Sequence[Folder]) -> None:
    seen: dict[str, Folder] = {}
    for root in roots:
        place = root.real_path
        if place in seen:
            expected = f"is a store that {seen[place]} names already: its messages would come twice"
            raise InvalidOptionError("path", root.name, expected)
        seen[place] = root


def _assigned(snapshot: Snapshot, assigned: Mapping[str, tuple[int, ...]]) -> Snapshot:
    def wanted(queue: QueueBounds) -> bool:
        return queue.queue_id in assigned[queue.topic]

    return replace(snapshot, queues=tuple(filter(wanted, snapshot.queues)))

"""Which stores, topics and queues a read is about, and how far a group has read them.

Reference: Spark's ConsumerStrategy (subscribe, subscribePattern, assign).
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mqstore.errors import InvalidOptionError, UnknownTopicError, shown
from mqstore.files.config import broker_config
from mqstore.format.names import is_system_topic
from mqstore.options.grammar import near
from mqstore.read.snapshot import QueueBounds, Snapshot, configured, take, topics_of
from mqstore.read.tail import StoreFilter, Tail

_LOG = logging.getLogger(__name__)
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Stores, and the topics of them that are chosen: by one of three ways, else all.

    ``roots`` are directories, ``broker_names`` as many names or none. ``subscribe`` may name
    system topics; a pattern and the choice of all pass them by unless ``include_system_topics``.
    """

    roots: tuple[str, ...]
    commit_log: tuple[str, ...] = ()
    broker_names: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    include_system_topics: bool = False


def select(selection: Selection, *, strict: bool = True) -> tuple[Snapshot, ...]:
    """Return a snapshot of the chosen queues of each store, in the order of the roots.

    Raises UnknownTopicError for a topic or queue that no store knows, InvalidOptionError for
    names of brokers that do not fit, and what ``take`` raises (which see for ``strict``).
    """
    names = broker_names(selection)
    chosen = topic_test(selection)
    snapshots = [
        take(root, commit_log=selection.commit_log, broker_name=name, topics=chosen, strict=strict)
        for root, name in zip(selection.roots, names, strict=True)
    ]
    check_names_differ((snapshot.broker_name, snapshot.store.root) for snapshot in snapshots)
    if selection.assign is not None:
        _check_queues(snapshots, selection.assign)
        snapshots = [_assigned(snapshot, selection.assign) for snapshot in snapshots]
    return tuple(snapshots)


def follow(
    selection: Selection, *, strict: bool = True, fail_on_data_loss: bool = True
) -> tuple[Tail, ...]:
    """Return the tail of the chosen queues of each store, in the order of the roots.

    Topics and queues that appear later are followed if they are chosen. Raises as ``select``;
    but without ``fail_on_data_loss``, a topic or queue that no store knows is only warned of:
    it may have been read and deleted. See ``check_chosen``.
    """
    chosen, assigned = _name_test(selection), selection.assign

    def is_assigned(topic: str, queue_id: int) -> bool:
        return assigned is None or queue_id in assigned[topic]

    names = broker_names(selection)
    try:
        check_topics(selection)
    except UnknownTopicError as error:
        if fail_on_data_loss:
            raise
        _LOG.warning("%s", error)
    tails = []
    for root, name in zip(selection.roots, names, strict=True):
        source = StoreFilter(
            root=root,
            commit_log=selection.commit_log,
            broker_name=name,
            topics=chosen,
            queues=is_assigned,
            strict=strict,
        )
        tails.append(Tail(source, fail_on_data_loss=fail_on_data_loss))
    snapshots = [tail.snapshot for tail in tails]
    check_names_differ((snapshot.broker_name, snapshot.store.root) for snapshot in snapshots)
    if fail_on_data_loss:
        _check_queues(snapshots, assigned or {})
    return tuple(tails)


def check_chosen(selection: Selection, snapshots: Sequence[Snapshot]) -> None:
    """Raise UnknownTopicError for a named topic or queue that no store knows."""
    check_topics(selection)
    _check_queues(snapshots, selection.assign or {})


def topic_test(selection: Selection) -> Callable[[str], bool]:
    """Return the test of a topic's name; raises UnknownTopicError for one that no store knows."""
    check_topics(selection)
    return _name_test(selection)


def check_topics(selection: Selection, *, consumed: bool = False) -> None:
    """Raise UnknownTopicError for a named topic that no store knows.

    Where it is about what groups ``consumed``, a topic that one has committed in is known too.
    """
    wanted = selection.subscribe or selection.assign or ()
    if not wanted:
        return
    option = "subscribe" if selection.subscribe else "assign"
    known = {t for r in selection.roots for t in topics_of(r, selection.commit_log)}
    if consumed and not known.issuperset(wanted):
        known |= {t for r in selection.roots for t, _ in broker_config.consumer_offsets(r)}
    for topic in sorted(wanted):
        check_topic(option, topic, known)


def _name_test(selection: Selection) -> Callable[[str], bool]:
    if selection.subscribe or selection.assign is not None:
        return frozenset(selection.subscribe or selection.assign or ()).__contains__
    pattern = re.compile(selection.subscribe_pattern or ".*", re.DOTALL)

    def chosen(topic: str) -> bool:
        visible = selection.include_system_topics or not is_system_topic(topic)
        return visible and pattern.fullmatch(topic) is not None

    return chosen


def check_queue(option: str, snapshots: Iterable[Snapshot], topic: str, queue_id: int) -> None:
    """Raise UnknownTopicError unless a store holds that queue or topics.json has room for it."""
    held: set[int] = set()
    for snapshot in snapshots:
        held |= {queue.queue_id for queue in snapshot.queues if queue.topic == topic}
        known = configured(snapshot.store).get(topic)
        if known is not None:
            held |= set(range(max(known.read_queue_nums, known.write_queue_nums)))
    if queue_id not in held:
        there = ", ".join(map(str, sorted(held)[:_SHOWN_NAMES])) + (
            ", …" if len(held) > _SHOWN_NAMES else ""
        )
        raise UnknownTopicError(
            f"option {option}: topic {shown(topic)} has no queue {queue_id}; its queues are {there}"
        )


def check_topic(option: str, topic: str, known: Iterable[str]) -> None:
    """Raise UnknownTopicError unless ``topic`` is one of ``known``."""
    known = set(known)
    if topic not in known:
        raise UnknownTopicError(_unknown(option, "topic", topic, known))


def committed(snapshots: Sequence[Snapshot], group: str) -> list[dict[tuple[str, int], int]]:
    """Return for each store the group's next queue offset by topic and queue.

    Raises UnknownTopicError for a group that no store knows.
    """
    tables = [broker_config.consumer_offsets(snapshot.store.root) for snapshot in snapshots]
    known = {name for table in tables for _, name in table}
    for snapshot in snapshots if group not in known else ():
        known |= broker_config.groups(snapshot.store.root)
    if group not in known:
        raise UnknownTopicError(_unknown("startingGroup", "group", group, known))
    return [
        {
            (topic, queue_id): queue_offset
            for (topic, name), queues in table.items()
            if name == group
            for queue_id, queue_offset in queues.items()
        }
        for table in tables
    ]


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
        raise InvalidOptionError(
            "brokerName",
            ",".join(selection.broker_names),
            f"must have one name for each store; there are {count}: {_listed(selection.roots)}",
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
                'a JSON list with a name for each, such as ["broker-a","broker-b"]',
            )


def _check_roots_differ(roots: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for root in roots:
        place = os.path.realpath(root)
        if place in seen:
            told = f"is a store that {seen[place]} names already: its messages would come twice"
            raise InvalidOptionError("path", root, told)
        seen[place] = root


def _check_queues(snapshots: Sequence[Snapshot], assigned: Mapping[str, tuple[int, ...]]) -> None:
    for topic, queue_ids in assigned.items():
        for queue_id in queue_ids:
            check_queue("assign", snapshots, topic, queue_id)


def _assigned(snapshot: Snapshot, assigned: Mapping[str, tuple[int, ...]]) -> Snapshot:
    def wanted(queue: QueueBounds) -> bool:
        return queue.queue_id in assigned[queue.topic]

    return replace(snapshot, queues=tuple(filter(wanted, snapshot.queues)))


def _unknown(option: str, kind: str, name: str, known: set[str]) -> str:
    close = near(name, known)
    if close:
        return f"option {option}: no {kind} {shown(name)}; did you mean {_listed(close)}?"
    # The user's own first: a broker has a dozen topics that nobody asks for.
    ordered = sorted(known, key=lambda k: (is_system_topic(k), k))
    there = f"the {kind}s are {_listed(ordered)}" if known else f"there is no {kind} at all"
    return f"option {option}: no {kind} {shown(name)}; {there}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(shown, names[:_SHOWN_NAMES])) + more

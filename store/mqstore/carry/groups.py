"""The committed offsets of groups, carried from the source of a replay to its target.

A group goes on in a target queue at the first message there that it has not consumed in the source;
where it has consumed all of them, behind the last. Where messages of several source queues went to
one queue, those that it has consumed may lie behind that place, and come again: none is skipped.

Groups must stand still on both sides, or the offset of a moment would be carried. POP groups have
no such offset: what they acknowledged are single messages.

Reference: ConsumerManageProcessor#updateConsumerOffset; AdminBrokerProcessor
#getConsumerConnectionList.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from mqstore.backlog import BacklogRequest, plan_all
from mqstore.backlog.items import BacklogItem
from mqstore.carry.marks import GroupMarks
from mqstore.deliver.replay.destinations import holds_failures
from mqstore.deliver.replay.rows import SourceQueue
from mqstore.errors import InvalidOptionError, shown
from mqstore.format.names import RETRY_PREFIX
from mqstore.live.origin import groups as group_requests
from mqstore.live.origin.group_publish import commit_offset
from mqstore.live.origin.proxied_groups import ProxiedGroups
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.routes import MASTER_ID
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.send.requests import Queue
from mqstore.pop.state import PULL
from mqstore.read.capabilities import check_here
from mqstore.read.selection import OpenStores

GROUPS_OPTION: Final = "--groups"


@dataclass(frozen=True, slots=True)
class StandingOffset:
    """A queue offset that a stopped group committed in a source queue that holds [low, high)."""

    group: str
    queue: SourceQueue
    committed: int
    low: int
    high: int

    @property
    def waiting(self) -> int:
        """How many messages it has not consumed."""
        return self.high - min(max(self.committed, self.low), self.high)


@dataclass(frozen=True, slots=True)
class CarriedOffset:
    """Where a group goes on in a target queue, by what it committed in a source queue.

    ``replayed`` of the ``waiting`` messages are there. ``to`` and ``new_offset`` are None where no
    message of the source queue is there. ``again`` is how many queue offsets lie behind the new one
    and not behind what it consumed: at most so many messages come again.
    """

    standing: StandingOffset
    replayed: int
    to: Queue | None = None
    new_offset: int | None = None
    again: int = 0


def standing_offsets(
    stores: OpenStores, groups: Sequence[str], topics: Collection[str] | None
) -> list[StandingOffset]:
    """Return what ``groups`` committed in ``topics`` (None: of all users' topics), by queue.

    Raises InvalidOptionError for a group that has consumers, that pops, that has messages waiting
    for another delivery, or that committed nothing there, and what ``backlog.plan_all`` raises.
    """
    snapshots = stores.held_of(lambda _: True)
    check_here(stores.sources)  # Offsets of a broker that is away would be lost.
    items = plan_all(stores.sources, snapshots, BacklogRequest(groups=",".join(groups)))
    found = []
    for item in items:
        is_wanted = not holds_failures(item.topic) if topics is None else item.topic in topics
        _check_still(item)
        if is_wanted:
            _check_pulls(item)
        else:
            _check_retries(item)
        if is_wanted and item.consumer_offset is not None and not item.topic_gone:
            queue = item.broker_name, item.topic, item.queue_id
            found.append(StandingOffset(item.group, queue, item.consumed, item.low, item.high))
    for group in groups:
        if not any(one.group == group for one in found):
            expected = "has committed no offset in a topic that is replayed"
            raise InvalidOptionError(GROUPS_OPTION, group, expected)
    return found


def _check_still(item: BacklogItem) -> None:
    if item.consumers:
        raise InvalidOptionError(
            GROUPS_OPTION,
            item.group,
            f"{item.consumers} consumers of {shown(item.broker_name)} are in this group: stop "
            "them, so that its offsets stand still",
        )


def _check_pulls(item: BacklogItem) -> None:
    if item.mode != PULL:
        raise InvalidOptionError(
            GROUPS_OPTION,
            item.group,
            f"pops {shown(item.topic)}: what it acknowledged are single messages, which no offset "
            "tells; let it acknowledge all, and begin at the end of the target",
        )


def _check_retries(item: BacklogItem) -> None:
    if item.topic.startswith(RETRY_PREFIX) and item.lag:
        raise InvalidOptionError(
            GROUPS_OPTION,
            item.group,
            f"{item.lag} messages of {shown(item.topic)} wait for another delivery, which no "
            "offset carries: let the group consume them first, or name that topic with --topic, "
            "beside the others, and --to-origin",
        )


def check_target(settings: ClusterSettings, groups: Sequence[str]) -> None:
    """Raise InvalidOptionError for a group that has consumers in the target, and for a proxy.

    Consumers are those of brokers, and of the proxies that ``proxies`` names.
    """
    with Cluster(settings) as cluster, closing(ProxiedGroups(cluster)) as proxied:
        brokers = _masters(cluster)
        for (broker, group), found in group_requests.online(cluster, brokers, groups).items():
            if found.clients:
                expected = (
                    f"{found.clients} consumers of {shown(broker)} in the target are in this "
                    "group: stop them, or they would go on from where they are"
                )
                raise InvalidOptionError(GROUPS_OPTION, group, expected)
        for group in groups:
            proxied.check_idle(group, GROUPS_OPTION, "stop them, or they would go on")


def check_stood_still(before: Iterable[StandingOffset], now: Iterable[StandingOffset]) -> None:
    """Raise InvalidOptionError for a group whose offsets changed between two looks."""
    known = {(one.group, one.queue): one.committed for one in before}
    for one in now:
        if known.get((one.group, one.queue)) != one.committed:
            expected = "committed offsets meanwhile: stop its consumers, and run it again"
            raise InvalidOptionError(GROUPS_OPTION, one.group, expected)


def carried_offsets(standing: Iterable[StandingOffset], marks: GroupMarks) -> list[CarriedOffset]:
    """Return where groups go on, a row for each source queue and target queue.

    Raises InvalidOptionError where it is not known where a waiting message is in the target.
    """
    by_target: defaultdict[tuple[str, Queue], list[StandingOffset]] = defaultdict(list)
    found = []
    for one in standing:
        of_offset = marks.of(one.queue, one.committed)
        if of_offset.unknown:
            expected = (
                f"of {of_offset.unknown} messages of {shown(one.queue[1])} that it has not "
                "consumed it is not known where they are in the target: they may have expired"
            )
            raise InvalidOptionError(GROUPS_OPTION, one.group, expected)
        for target in of_offset.by_queue:
            by_target[one.group, target].append(one)
        if not of_offset.by_queue:
            found.append(CarriedOffset(one, 0))
    for (_, target), sources in by_target.items():
        own = [marks.of(one.queue, one.committed).by_queue[target] for one in sources]
        firsts = [mark.first for mark in own if mark.first is not None]
        behind = max(mark.behind or 0 for mark in own)
        at = min(firsts) if firsts else behind
        found += [
            CarriedOffset(one, mark.waiting, target, at, max(0, (mark.behind or 0) - at))
            for one, mark in zip(sources, own, strict=True)
        ]
    return sorted(found, key=lambda one: (one.standing.group, one.standing.queue))


def commit_carried(settings: ClusterSettings, carried: Iterable[CarriedOffset]) -> int:
    """Commit the offsets in the target; return how many were not there yet.

    Raises InvalidOptionError, before anything is committed, for a group that has consumers there,
    or another offset in one of the queues; and as Cluster#ask.
    """
    wanted = {
        (one.standing.group, one.to): one.new_offset
        for one in carried
        if one.to is not None and one.new_offset is not None
    }
    groups = sorted({group for group, _ in wanted})
    check_target(settings, groups)
    with Cluster(settings) as cluster:
        known = group_requests.committed(cluster, _masters(cluster))
        left = []
        for (group, to), at in wanted.items():
            before = known.get(to.broker, {}).get((to.topic, group), {}).get(to.queue_id)
            if before is not None and before != at:
                expected = (
                    f"has committed {before:,} in queue {to.queue_id} of {shown(to.topic)} of "
                    f"{shown(to.broker)}, and would go on at {at:,}: nothing is changed. Delete "
                    "it there (mqadmin deleteSubGroup -r true) if it is to go on there"
                )
                raise InvalidOptionError(GROUPS_OPTION, group, expected)
            if before is None:
                left.append((group, to, at))
        for group, to, at in left:
            queue = to.topic, to.queue_id
            commit_offset(cluster, to.broker, group, queue, at, option=GROUPS_OPTION)
    return len(left)


def _masters(cluster: Cluster) -> list[str]:
    if cluster.is_proxy:
        address = ", ".join(cluster.settings.name_servers)
        expected = "is a proxy, which tells no offsets of groups: give the name servers"
        raise InvalidOptionError("ADDRESS", address, expected)
    return sorted(name for name, hosts in cluster.brokers().items() if MASTER_ID in hosts)

"""A stream's progress as a consumer group's, on brokers: the only requests that change one.

A broker takes any offset: backwards, behind the end, of a queue that is not there. So offsets are
clamped to what the queue holds, and one that is behind what the group committed is not sent.
A 5.x broker refuses a group that it does not have: it is created, which takes the right to.

Reference: ConsumerManageProcessor#updateConsumerOffset, ConsumerOffsetManager#commitOffset;
AdminBrokerProcessor#updateAndCreateSubscriptionGroup, SubscriptionGroupConfig.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.format.arrays import TopicQueue
from mqstore.live.origin import groups
from mqstore.live.origin.broker_queues import BrokerQueues
from mqstore.live.origin.proxied_groups import ProxiedGroups
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokerUnavailableError, NoMasterError, RequestRefusedError
from mqstore.live.remoting.requests import SUB_RIGHTS, Kind
from mqstore.read.capabilities import COMMIT_GROUP

_LOG = logging.getLogger(__name__)
_AWAY_S: Final = 1.0
_MADE_BY_ADMIN: Final = (
    "the brokers have no such group, and a proxy makes none: mqadmin updateSubGroup -c CLUSTER -g "
    "GROUP makes it"
)
GROUP_NOT_EXIST: Final = 26  # ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

UPDATE_CONSUMER_OFFSET: Final = Kind(
    "UPDATE_CONSUMER_OFFSET",
    15,
    ("consumerGroup", "topic", "queueId", "commitOffset"),
    rights=SUB_RIGHTS,
)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = Kind(
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
    200,
    rights="to be an administrator, unless the group of commitGroup is created before",
)

Positions = Mapping[TopicQueue, int]
"""Next queue offsets by (topic, queueId)."""


class GroupPublisher:
    """Publishes one group's offsets on one broker; ``queues`` do not wait for the broker."""

    def __init__(self, queues: BrokerQueues) -> None:
        """Ask for nothing yet."""
        self._queues = queues
        self._proxied = ProxiedGroups(queues.cluster)
        self._sent: dict[TopicQueue, int] = {}
        self._known: dict[TopicQueue, int] | None = None
        self._next_try = float("-inf")
        self._is_claimed = False

    def close(self) -> None:
        """Close the connections; the next offset opens them again."""
        self._queues.cluster.close()
        self._proxied.close()

    def claim(self, group: str) -> None:
        """Raise InvalidOptionError for a group that has consumers now: both would write.

        Those of the broker and of the proxies that ``proxies`` names; a warning says where others
        may be. A broker that is away is asked before the first offset is sent.
        """
        if time.monotonic() < self._next_try:
            return
        broker = self._queues.broker
        try:
            found = groups.online(self._queues.cluster, [broker], [group])
        except (BrokerUnavailableError, NoMasterError) as error:
            self._wait(error)
            return
        self._is_claimed = True
        if found:
            clients = found[broker, group].clients
            expected = f"{clients} consumers of {broker} are in this group: choose another name"
            raise InvalidOptionError(COMMIT_GROUP, group, expected)
        self._proxied.check_idle(group, COMMIT_GROUP, "choose another name")

    def publish(self, group: str, positions: Positions) -> bool:
        """Send what changed since the last time; False where the broker is away, for a while.

        Raises as ``claim``, AccessDeniedError, RequestRefusedError, BrokenAnswerError.
        """
        changed = {queue: at for queue, at in positions.items() if self._sent.get(queue) != at}
        if not changed:
            return True
        if not self._is_claimed:
            self.claim(group)
        if time.monotonic() < self._next_try:
            return False
        try:
            self._publish(group, changed)
        except (BrokerUnavailableError, NoMasterError) as error:
            self._wait(error)
            return False
        self._sent |= changed
        return True

    def _wait(self, error: StoreError) -> None:
        """Try again after a moment, from what the broker then has.

        A broker that is killed forgets the commits of up to five seconds
        (BrokerConfig#flushConsumerOffsetInterval).
        """
        self._sent, self._known = {}, None
        _LOG.warning("option %s: %s; it is tried again", COMMIT_GROUP, error)
        self._queues.cluster.forget(self._queues.broker)
        self._next_try = time.monotonic() + _AWAY_S

    def _publish(self, group: str, changed: Positions) -> None:
        if self._known is None:
            self._known = self._committed(group, changed)
        routes = self._queues.routes({topic for topic, _ in changed}.__contains__)
        for held in self._queues.bounds(routes):
            queue = held.topic, held.queue_id
            at = changed.get(queue)
            if at is None:
                continue
            at = min(max(at, held.low), held.high)
            known = self._known.get(queue, -1)
            # A 4.9 broker keeps the offsets of a topic that was deleted and made again.
            if at > known or known > held.high:
                self._send(group, queue, at)
                self._known[queue] = at

    def _committed(self, group: str, changed: Positions) -> dict[TopicQueue, int]:
        broker, cluster = self._queues.broker, self._queues.cluster
        if cluster.is_proxy:
            topics = sorted({topic for topic, _ in changed})
            routes = filter(None, map(cluster.route, topics))
            queues = [
                (route.topic, queue_id)
                for route in routes
                for queue_id in range(route.queues.get(broker, 0))
            ]
            return groups.committed_by(cluster, broker, group, queues)
        return {
            (topic, queue_id): at
            for (topic, name), found in groups.committed(cluster, [broker])[broker].items()
            if name == group
            for queue_id, at in found.items()
        }

    def _send(self, group: str, queue: TopicQueue, at: int) -> None:
        place = self._queues.cluster, self._queues.broker
        commit_offset(*place, group, queue, at, option=COMMIT_GROUP)


def commit_offset(
    cluster: Cluster, broker: str, group: str, queue: TopicQueue, at: int, *, option: str
) -> None:
    """Have a broker note that a group consumed a queue up to the queue offset ``at``.

    A group that the broker does not have is made. ``option`` is what named the group. Raises
    InvalidOptionError where a proxy has no such group, and as Cluster#ask.
    """
    topic, queue_id = queue
    request = UPDATE_CONSUMER_OFFSET(
        consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=at
    )
    try:
        cluster.ask(broker, request)
    except RequestRefusedError as error:
        if error.code != GROUP_NOT_EXIST:
            raise
        if cluster.is_proxy:
            raise InvalidOptionError(option, group, _MADE_BY_ADMIN) from None
        body = json.dumps({"groupName": group}).encode()
        cluster.ask(broker, replace(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP(), body=body))
        cluster.ask(broker, request)

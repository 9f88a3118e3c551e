"""The topics and groups of one broker of a cluster: a BrokerState.

Reference: TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager and
ScheduleMessageService#encode, as AdminBrokerProcessor gives them; ConsumerManager.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from mqstore.files.config import checkpoint
from mqstore.files.config.broker_config import CommittedOffsets, FilterExpression, TopicConfig
from mqstore.files.config.pop_files import PopFacts, pop_modes
from mqstore.format.pop import KvPops
from mqstore.live.origin import groups as group_requests
from mqstore.live.origin.fleet_look import FleetLook
from mqstore.live.origin.proxied_groups import ProxiedGroups
from mqstore.live.remoting.answers import number, table, value
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError, BrokenAnswerError
from mqstore.live.remoting.requests import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_MESSAGE_REQUEST_MODE,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_TIMER_CHECK_POINT,
    SUCCESS,
)
from mqstore.live.remoting.topics import reading_settings
from mqstore.live.remoting.topics import topics as configured_topics
from mqstore.read.broker_state import ConnectedGroup, LeftOut

SOURCE: Final = "broker"
"""Where CommittedOffsets of a cluster are written: in the broker's memory."""
_OffsetsBy = Mapping[tuple[str, str], Mapping[int, int]]


class ClusterState:
    """A BrokerState. Raises as Cluster#ask_all."""

    lists_groups = True

    def __init__(
        self,
        broker: str,
        cluster: Cluster,
        fleet: FleetLook | None = None,
        proxied: ProxiedGroups | None = None,
    ) -> None:
        """``fleet``: what the last look at the whole cluster found."""
        self._broker = broker
        self._cluster = cluster
        self._fleet = fleet
        self._proxied = proxied or ProxiedGroups(cluster)

    def topics(self) -> dict[str, TopicConfig]:
        """Return the configured topics."""
        found = configured_topics(self._cluster, [self._broker])[self._broker]
        return {
            name: TopicConfig(topic.read_queues, topic.write_queues, topic.perm, topic.order)
            for name, topic in found.items()
        }

    def groups(self) -> set[str]:
        """Return the configured consumer groups."""
        request = GET_ALL_SUBSCRIPTIONGROUP_CONFIG()
        answer, address = self._cluster.ask(self._broker, request)
        found = value(address, request, answer)
        return {str(name) for name in table(address, found, "subscriptionGroupTable")}

    def committed(self) -> dict[tuple[str, str], CommittedOffsets]:
        """Return what groups committed."""
        offsets_by = self.consumer_offsets()
        return {pair: CommittedOffsets(dict(at), SOURCE) for pair, at in offsets_by.items()}

    def consumer_offsets(self) -> _OffsetsBy:
        """Return the same by queueId."""
        return group_requests.committed(self._cluster, [self._broker])[self._broker]

    def offsets_now(self) -> _OffsetsBy:
        """Return the same, asked anew."""
        self._cluster.ahead.forget(self._broker, GET_ALL_CONSUMER_OFFSET())
        return self.consumer_offsets()

    def pull_offsets(self) -> _OffsetsBy:
        """Return what groups pulled; nothing of brokers before 5.1."""
        return group_requests.pulled(self._cluster, [self._broker])[self._broker] or {}

    def pulled(self, pairs: Collection[tuple[str, str]]) -> _OffsetsBy:
        """Return the same of those pairs: of each alone where the broker does not tell of all."""
        found = group_requests.pulled(self._cluster, [self._broker])[self._broker]
        if found is not None:
            return {pair: found.get(pair, {}) for pair in pairs}
        return group_requests.pulled_by(self._cluster, self._broker, pairs)

    def pop_facts(self) -> PopFacts:
        """Return the pairs that were switched to POP, and the settings of POP that matter.

        A broker tells neither its batches in order nor the entries of its KV service. A user who
        may not ask for its settings gets those of a broker with the defaults.
        """
        request = GET_ALL_MESSAGE_REQUEST_MODE()
        answer, address = self._cluster.ask(self._broker, request)
        modes: frozenset[tuple[str, str]] = frozenset()
        if answer.code == SUCCESS:
            modes = pop_modes(value(address, request, answer))
        try:
            settings = reading_settings(self._cluster, self._broker)
        except AccessDeniedError:
            settings = {}
        with_kv = settings.get("popConsumerKVServiceEnable") == "true"
        is_buffered = settings.get("enablePopBufferMerge") == "true"
        return PopFacts(None, modes, None if with_kv else KvPops(), is_buffered)

    def delay_offsets(self) -> dict[int, int]:
        """Return how far each delay level was delivered."""
        request = GET_ALL_DELAY_OFFSET()
        answer, address = self._cluster.ask(self._broker, request)
        levels = table(address, value(address, request, answer), "offsetTable")
        found = {}
        for level in levels:
            digits = str(level)
            if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
                raise BrokenAnswerError(address, "offsetTable names a delay level by no number")
            found[int(digits)] = number(address, levels, level)
        return found

    def timers_delivered_ms(self) -> int:
        """Return the time (epoch ms) up to which timers were delivered; 0 without a timer wheel."""
        answer, address = self._cluster.ask(self._broker, GET_TIMER_CHECK_POINT())
        if answer.code != SUCCESS:
            return 0
        found = checkpoint.timer_of(bytes(answer.body))
        if found is None:
            raise BrokenAnswerError(address, "the checkpoint of timers is too short")
        return int(found["last_read_time_ms"])

    def online(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> dict[str, ConnectedGroup]:
        """Return those that have consumers now, at the broker or at the proxies that are named."""
        groups = list(groups)
        found = self._online(groups, left_out)
        for group, its in self._proxied.of(groups).items():
            found[group] = found[group].merged(its) if group in found else its
        return {
            group: ConnectedGroup(
                one.clients,
                one.model,
                {
                    its.topic: FilterExpression(its.expression_type, its.expression)
                    for its in one.subscriptions
                },
                one.is_pulling,
            )
            for group, one in found.items()
        }

    def hidden_consumers(self) -> str:
        """Return why a group may have consumers at a proxy; empty where it cannot."""
        return self._proxied.hidden()

    def _online(
        self, groups: Sequence[str], left_out: LeftOut | None
    ) -> dict[str, group_requests.OnlineGroup]:
        known: dict[str, group_requests.OnlineGroup] = {}
        unknown = []
        for group in groups:
            kept = None if self._fleet is None else self._fleet.member(self._broker, group)
            if kept is None:
                unknown.append(group)
            elif kept[0] is not None:
                known[group] = kept[0]
        found = group_requests.online(self._cluster, [self._broker], unknown, left_out)
        return known | {group: one for (_, group), one in found.items()}

    def filter_expressions(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> dict[tuple[str, str], FilterExpression]:
        """Return what those groups subscribe to that have a consumer now, by tag or not."""
        return {
            (topic, group): expression
            for group, found in self.online(groups, left_out).items()
            for topic, expression in found.expressions.items()
        }


class AwayState:
    """A BrokerState of a broker that is away: nothing is known of it."""

    lists_groups = True

    def topics(self) -> dict[str, TopicConfig]:
        """Return nothing."""
        return {}

    def groups(self) -> set[str]:
        """Return nothing."""
        return set()

    def committed(self) -> dict[tuple[str, str], CommittedOffsets]:
        """Return nothing."""
        return {}

    def consumer_offsets(self) -> _OffsetsBy:
        """Return nothing."""
        return {}

    def offsets_now(self) -> _OffsetsBy:
        """Return nothing."""
        return {}

    def pull_offsets(self) -> _OffsetsBy:
        """Return nothing."""
        return {}

    def pulled(self, pairs: Collection[tuple[str, str]]) -> _OffsetsBy:
        """Return nothing."""
        del pairs
        return {}

    def pop_facts(self) -> PopFacts:
        """Return nothing."""
        return PopFacts(None, frozenset(), KvPops(), is_buffered=False)

    def delay_offsets(self) -> dict[int, int]:
        """Return nothing."""
        return {}

    def timers_delivered_ms(self) -> int:
        """Return 0."""
        return 0

    def online(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> dict[str, ConnectedGroup]:
        """Return nothing."""
        del groups, left_out
        return {}

    def hidden_consumers(self) -> str:
        """Return nothing."""
        return ""

    def filter_expressions(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> dict[tuple[str, str], FilterExpression]:
        """Return nothing."""
        del groups, left_out
        return {}

"""One look at all brokers of a cluster at once: what is the same is not asked again.

A look asks every broker a few things in one pipeline: how far its CommitLog is, its topics, what
groups committed. What queues hold is asked of brokers whose CommitLog moved since their bounds were
asked; of others the bounds stand, for ``BOUNDS_S`` at most. A broker that is away, silent or
tells nonsense is left out with a warning, until a later look finds it.

Offsets are asked before bounds, so that no group is ahead of what was stored meanwhile.

Reference: AdminBrokerProcessor#getBrokerRuntimeInfo (commitLogMinOffset, commitLogMaxOffset,
dispatchBehindBytes, bootTimestamp); CleanConsumeQueueService#deleteExpiredFiles.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.origin.bounds import LiveBounds, held_of, stats_request
from mqstore.live.origin.groups import (
    OnlineGroup,
    committed,
    connections_request,
    online_of,
)
from mqstore.live.remoting import requests
from mqstore.live.remoting.ahead import body_digest
from mqstore.live.remoting.answers import denies, refusal
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.each import Told, ask_each
from mqstore.live.remoting.errors import NoMasterError, RequestRefusedError, ServerError
from mqstore.live.remoting.topics import BrokerInfo, broker_infos, topics

_LOG = logging.getLogger(__name__)
BOUNDS_S: Final = 600.0
SETTINGS_S: Final = 60.0
MEMBERS_S: Final = 30.0
"""So long stands which groups have consumers, and what those subscribe to."""
SHRINKING_S: Final = 60.0
"""So long after files were deleted the first offsets of queues still change."""
_BROKERS_AT_ONCE: Final = 100
"""Of so many brokers the answers about groups are in memory."""
_RUNTIME: Final = requests.GET_BROKER_RUNTIME_INFO()
_BY_LOOK: Final = (
    _RUNTIME,
    requests.GET_ALL_CONSUMER_OFFSET(),
    requests.GET_ALL_TOPIC_CONFIG(),
    requests.GET_ALL_MESSAGE_REQUEST_MODE(),
)
_RARELY: Final = (requests.GET_BROKER_CONFIG(),)
GroupTest = Callable[[str], object]


@dataclass(slots=True)
class _Kept:
    """What is known of a broker's queues: by topic, and the state of its log when they were asked.

    ``state`` None: nothing tells whether they still stand. ``low`` is the log's first byte.
    """

    state: Hashable = None
    asked_s: float = float("-inf")
    low: int = -1
    low_since_s: float = float("-inf")
    topics: dict[str, list[LiveBounds]] = field(default_factory=dict)
    refused: dict[str, StoreError] = field(default_factory=dict)


class FleetLook:
    """The brokers of one cluster as of the last look; their sources share it."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._settings: dict[str, tuple[float, list[Told]]] = {}
        self._members: dict[tuple[str, str], tuple[float, OnlineGroup | None]] = {}
        self._warned: set[str] = set()
        self._number = 0
        self._answers: dict[tuple[str, int], tuple[int, bytes] | None] = {}
        self._changed: dict[str, int] = {}
        """The look that last found a change of a broker."""
        self.away: dict[str, StoreError] = {}
        """The brokers that told nothing at the last look, and why."""

    def take(
        self,
        brokers: Sequence[str],
        chosen: Callable[[str], bool] | None,
        groups: GroupTest | None = None,
    ) -> None:
        """Look at those brokers, and at the queues of the ``chosen`` topics; None: at no queue.

        With ``groups``, also at the consumers of those that committed an offset.
        If all are away, none counts as such. Raises what asking the name servers raises.
        """
        self._cluster.ahead.begin()
        self.away = {}
        self._number += 1
        self._ask(brokers, _BY_LOOK)
        now = self._clock()
        due = [
            b for b in brokers if b not in self._settings or self._settings[b][0] + SETTINGS_S < now
        ]
        self._ask_rarely([broker for broker in due if broker not in self.away], now)
        here = [broker for broker in brokers if broker not in self.away]
        found = [(broker, info) for broker in here if (info := self._told(broker)) is not None]
        if chosen is not None:
            self._ask_bounds(found, chosen)
        if groups is not None:
            self._ask_members([broker for broker in here if broker not in self.away], groups)
        if chosen is None or groups is None:  # What was not asked for may have changed.
            self._changed |= dict.fromkeys(brokers, self._number)
        self._changed |= dict.fromkeys(self.away, self._number)
        self._cluster.ahead.settle()
        if len(self.away) == len(brokers):
            self.away = {}  # The plan tries them for ``retry_timeout_ms``, and says what is wrong.
        self._warn()

    def held(
        self, broker: str, wanted: Iterable[str]
    ) -> tuple[list[LiveBounds], dict[str, StoreError]] | None:
        """Return what the queues of those topics hold, and refusals by topic; None: not known."""
        kept = self._kept.get(broker)
        wanted = list(wanted)
        if kept is None or not all(t in kept.topics or t in kept.refused for t in wanted):
            return None
        found = [queue for topic in sorted(wanted) for queue in kept.topics.get(topic, ())]
        return found, {topic: kept.refused[topic] for topic in wanted if topic in kept.refused}

    def member(self, broker: str, group: str) -> tuple[OnlineGroup | None] | None:
        """Return the consumers of a group, None in a tuple if it has none; None: not known."""
        kept = self._members.get((broker, group))
        return None if kept is None or kept[0] + MEMBERS_S < self._clock() else kept[1:]

    def changed_at(self, broker: str) -> int | None:
        """Return the number of the look that last found a change of a broker; None: not known."""
        return None if broker in self.away else self._changed.get(broker)

    def _ask(self, brokers: Sequence[str], asked: Sequence[requests.Request]) -> None:
        pairs = [(broker, request) for broker in brokers for request in asked]
        for (broker, request), told in zip(pairs, ask_each(self._cluster, pairs), strict=True):
            self._note(broker, request, told)

    def _ask_rarely(self, brokers: Sequence[str], now: float) -> None:
        """Ask for settings; those that are known stand for SETTINGS_S."""
        pairs = [(broker, request) for broker in brokers for request in _RARELY]
        for (broker, _), told in zip(pairs, ask_each(self._cluster, pairs), strict=True):
            if not isinstance(told, StoreError):
                self._settings[broker] = now, [told]
        for broker, (_, answers) in self._settings.items():
            for request, told in zip(_RARELY, answers, strict=True):
                self._note(broker, request, told)

    def _note(self, broker: str, request: requests.Request, told: Told) -> None:
        if not isinstance(told, StoreError):
            self._cluster.ahead.note(broker, request, told)
        if request != _RUNTIME:
            self._note_answer(broker, request, told)
        if isinstance(told, StoreError) and not isinstance(told, RequestRefusedError):
            self.away.setdefault(broker, told)

    def _note_answer(self, broker: str, request: requests.Request, told: Told) -> None:
        """Note a change where a broker answers otherwise than at the look before."""
        known: tuple[int, bytes] | None = None
        if not isinstance(told, StoreError):
            known = told[0].code, body_digest(told[0])
        if self._answers.get((broker, request.code), ()) != known:
            self._answers[broker, request.code] = known
            self._changed[broker] = self._number

    def _told(self, broker: str) -> BrokerInfo | None:
        """Read what a broker told; None, and it is away, if that cannot be read."""
        try:
            topics(self._cluster, [broker])
            committed(self._cluster, [broker])
            return broker_infos(self._cluster, [broker])[0]
        except RequestRefusedError:
            return BrokerInfo(broker, "", "", -1, -1, {})  # Who may not ask is told by the plan.
        except (ServerError, NoMasterError) as error:
            self.away[broker] = error
            return None

    def _ask_bounds(
        self, found: Sequence[tuple[str, BrokerInfo]], chosen: Callable[[str], bool]
    ) -> None:
        """Ask what queues hold where that may have changed, of all brokers at once."""
        asked: list[tuple[str, requests.Request]] = []
        states: dict[str, Hashable] = {}
        for broker, info in found:
            there = topics(self._cluster, [broker])[broker]
            kept, state = self._kept.setdefault(broker, _Kept()), _state_of(info)
            self._note_low(kept, info.low)
            stands = self._stands(kept, state)
            for gone in set(kept.topics).difference(there):
                del kept.topics[gone]
            if not stands:
                kept.topics.clear()
                states[broker] = state
            kept.refused.clear()
            asked += [
                (broker, stats_request(topic, is_deniable=True))
                for topic in sorted(filter(chosen, there))
                if topic not in kept.topics
            ]
        now = self._clock()
        self._changed |= dict.fromkeys((broker for broker, _ in asked), self._number)
        for pair, told in zip(asked, ask_each(self._cluster, asked), strict=True):
            self._note_bounds(*pair, told)
        for broker, state in states.items():
            self._kept[broker].state, self._kept[broker].asked_s = state, now
        for broker in self.away:
            self._kept.pop(broker, None)

    def _note_bounds(self, broker: str, request: requests.Request, told: Told) -> None:
        kept, topic = self._kept[broker], request.fields["topic"]
        if broker in self.away:
            return
        try:
            if isinstance(told, StoreError):
                raise told
            answer, address = told
            if denies(answer):
                kept.refused[topic] = refusal(address, request, answer)
            else:
                kept.topics[topic] = held_of(broker, request, answer, address)
        except (ServerError, NoMasterError) as error:
            self.away[broker] = error
        except RequestRefusedError:
            kept.topics.pop(topic, None)  # The plan asks once more, and tells.

    def _ask_members(self, brokers: Sequence[str], groups: GroupTest) -> None:
        """Ask for the consumers of groups of which that was not asked for MEMBERS_S."""
        now = self._clock()
        before = self._members
        fresh = {pair: kept for pair, kept in before.items() if kept[0] + MEMBERS_S >= now}
        self._members = fresh
        for start in range(0, len(brokers), _BROKERS_AT_ONCE):
            asked = []
            some = brokers[start : start + _BROKERS_AT_ONCE]
            for broker, pairs in committed(self._cluster, some).items():
                names = sorted({group for _, group in pairs if groups(group)})
                asked += [
                    (broker, connections_request(group, is_deniable=True))
                    for group in names
                    if (broker, group) not in fresh
                ]
            now = self._clock()
            for pair, told in zip(asked, ask_each(self._cluster, asked), strict=True):
                self._note_member(*pair, told, before, now)

    def _note_member(
        self,
        broker: str,
        request: requests.Request,
        told: Told,
        before: Mapping[tuple[str, str], tuple[float, OnlineGroup | None]],
        now: float,
    ) -> None:
        """Keep the consumers of a group; ``before`` are those of the look before."""
        if isinstance(told, StoreError):
            if not isinstance(told, RequestRefusedError):
                self.away.setdefault(broker, told)
            return
        answer, address = told
        try:
            if denies(answer):
                return
            is_online = answer.code == requests.SUCCESS
            found = online_of(address, request, answer) if is_online else None
        except ServerError as error:
            self.away.setdefault(broker, error)
            return
        pair = broker, request.fields["consumerGroup"]
        if pair not in before or before[pair][1] != found:
            self._changed[broker] = self._number
        self._members[pair] = now, found

    def _note_low(self, kept: _Kept, low: int) -> None:
        if low != kept.low:
            kept.low_since_s = float("-inf") if kept.low < 0 else self._clock()
            kept.low = low

    def _stands(self, kept: _Kept, state: Hashable) -> bool:
        now = self._clock()
        is_settled = kept.low_since_s + SHRINKING_S < now
        is_same = state is not None and state == kept.state
        return is_same and is_settled and now < kept.asked_s + BOUNDS_S

    def _warn(self) -> None:
        """Warn of brokers that are away, once as long as they are."""
        for broker in sorted(self.away.keys() - self._warned):
            _LOG.warning("broker %s is left out, it did not answer: %s", broker, self.away[broker])
        self._warned = set(self.away)


def _state_of(info: BrokerInfo) -> Hashable:
    """Return what changes with each message of a broker; None while its queues lack some."""
    if info.low < 0 or info.dispatched != info.high or not info.high:
        return None
    return info.address, info.runtime.get("bootTimestamp"), info.low, info.high

"""The knowledge of a broker beside messages: topics, groups, committed offsets."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from mqstore.errors import StoreError, shown
from mqstore.files.config.broker_config import CommittedOffsets, FilterExpression, TopicConfig
from mqstore.files.config.pop_files import PopFacts

_LOG = logging.getLogger(__name__)
_NAMED: Final = 5
LeftOut: TypeAlias = Callable[[str, StoreError], None]
"""Takes the name of a topic or group that this user may not see, and the refusal."""


def note_left_out(refused: Mapping[str, StoreError], named: Set[str] = frozenset()) -> None:
    """Warn of topics or groups that were left out for want of rights, in one line.

    Raises the refusal of one that the user ``named``.
    """
    names = sorted(refused)
    for name in names:
        if name in named:
            raise refused[name]
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        told = f"{', '.join(map(shown, names[:_NAMED]))}{more}"
        _LOG.warning("left out for want of rights: %s. %s", told, refused[names[0]])


@dataclass(frozen=True, slots=True)
class ConnectedGroup:
    """A group with consumers connected to a broker; ``model`` is CLUSTERING or BROADCASTING.

    ``expressions`` are what they subscribe to, by topic. ``is_pulling``: all of them are clients
    that pull, unless an administrator switched a topic of theirs to POP.
    """

    clients: int
    model: str
    expressions: Mapping[str, FilterExpression] = field(default_factory=dict)
    is_pulling: bool = False


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group, by what it says itself: its subscriptions by topic.

    ``locked`` has the queues that it was given, by broker, topic and queueId, and whether it holds
    the lock of each, which it needs to consume in order.
    """

    client_id: str
    expressions: Mapping[str, FilterExpression]
    is_ordered: bool
    locked: Mapping[tuple[str, str, int], bool]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker: its directory or address, its version if known, the bytes of its CommitLog.

    ``away`` is why nothing of it is known.
    """

    place: str
    version: str | None
    low: int
    high: int
    away: StoreError | None = None


class BrokerState(Protocol):
    """The topics and groups of a broker. Each call reads them again; raises CorruptConfigError.

    (topic, group) is the key of what is by group. Groups that this user may not see are
    ``left_out``; without it, the refusal of one is raised.
    """

    @property
    def lists_groups(self) -> bool:
        """Whether all groups, and all that they committed, are known: else those that are named."""

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return the configured topics by name."""

    def groups(self) -> set[str]:
        """Return the configured consumer groups."""

    def committed(self) -> Mapping[tuple[str, str], CommittedOffsets]:
        """Return the next queue offsets that groups committed, and where that is written."""

    def consumer_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the same by queueId, without where it is written."""

    def offsets_now(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the same as they are now: what was asked for ahead does not count."""

    def pull_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the next queue offsets that groups pulled, by queueId."""

    def pulled(
        self, pairs: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the same of those pairs; one that it is not told of is left out.

        As consumerProgress has it: AdminBrokerProcessor#getConsumeStats.
        """

    def pop_facts(self) -> PopFacts:
        """Return what the broker keeps of POP groups beside their checkpoints."""

    def delay_offsets(self) -> Mapping[int, int]:
        """Return by delay level the next queue offset to deliver of its queue."""

    def online(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> Mapping[str, ConnectedGroup] | None:
        """Return those of the groups that have consumers now; None where that is not known."""

    def hidden_consumers(self) -> str:
        """Return why a group may have consumers that ``online`` lacks; empty: it has none."""

    def filter_expressions(
        self, groups: Iterable[str], left_out: LeftOut | None = None
    ) -> Mapping[tuple[str, str], FilterExpression]:
        """Return what those groups subscribe to, as far as it is known."""

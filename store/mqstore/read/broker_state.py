"""The knowledge of a broker beside messages: topics, groups, committed offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mqstore.files.config.broker_config import CommittedOffsets, FilterExpression, TopicConfig


@dataclass(frozen=True, slots=True)
class ConnectedGroup:
    """A group with consumers connected to a broker; ``model`` is CLUSTERING or BROADCASTING.

    ``expressions`` are what they subscribe to, by topic.
    """

    clients: int
    model: str
    expressions: Mapping[str, FilterExpression] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker: its directory or address, its version if known, the bytes of its CommitLog."""

    place: str
    version: str | None
    low: int
    high: int


class BrokerState(Protocol):
    """The topics and groups of a broker. Each call reads them again; raises CorruptConfigError.

    (topic, group) is the key of what is by group.
    """

    def topics(self) -> Mapping[str, TopicConfig]:
        """Return the configured topics by name."""

    def groups(self) -> set[str]:
        """Return the configured consumer groups."""

    def committed(self) -> Mapping[tuple[str, str], CommittedOffsets]:
        """Return the next queue offsets that groups committed, and where that is written."""

    def consumer_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the same by queueId, without where it is written."""

    def pull_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return the next queue offsets that groups pulled, by queueId."""

    def delay_offsets(self) -> Mapping[int, int]:
        """Return by delay level the next queue offset to deliver of its queue."""

    def online(self, groups: Iterable[str]) -> Mapping[str, ConnectedGroup] | None:
        """Return those of the groups that have consumers now; None where that is not known."""

    def filter_expressions(
        self, groups: Iterable[str]
    ) -> Mapping[tuple[str, str], FilterExpression]:
        """Return what those groups subscribe to, as far as it is known."""

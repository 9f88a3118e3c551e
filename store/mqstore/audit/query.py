"""What an audit compares: its options, and the two sides that they choose of opened places."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias

from mqstore.audit.offset_maps import MapPlace
from mqstore.audit.relation import MAP_OPTION, OffsetRelation
from mqstore.audit.rows import AuditRule, default_left_out
from mqstore.audit.sides import AuditSide, mapped_sides, matched, unconsumed
from mqstore.audit.stale_replicas import warn_of_stale
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar
from mqstore.options.option import any_text, one_of, option, options_of
from mqstore.read.message_query import check_known
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.read.system_topics import without_system

OpenOther: TypeAlias = Callable[[Collection[str] | None], AbstractContextManager[OpenStores]]
"""Opens the other place of an audit; with these topics, if they are given."""
_ONLY_MAPPED: Final = "onlyMapped"
_UNCONSUMED: Final = "unconsumed"


def _names(name: str, text: str) -> tuple[str, ...]:
    return grammar.names(name, text) if text.strip() else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of an audit: what makes two messages the same, and which are compared."""

    identity: str = option("identity", one_of("offset", "id"), "offset")
    ignored_properties: tuple[str, ...] | None = option("ignoredProperties", _names)
    offset_map: MapPlace | None = option(MAP_OPTION, MapPlace.here)
    only_mapped: bool = option(_ONLY_MAPPED, grammar.boolean, False)
    unconsumed: str | None = option(_UNCONSUMED, any_text)

    def check_together(self, given: Mapping[str, str]) -> None:
        """Raise InvalidOptionError for options that contradict each other.

        ``given`` are the options that the user set, as typed.
        """
        if self.offset_map is None:
            if self.only_mapped:
                raise InvalidOptionError(_ONLY_MAPPED, given[_ONLY_MAPPED], "needs an offset map")
            return
        for name, expected in (
            ("identity", "says which message is which: no other identity can be chosen"),
            ("assign", "takes whole topics: choose them by subscribe"),
        ):
            if name in given:
                raise InvalidOptionError(MAP_OPTION, given[MAP_OPTION], expected)

    def check_brokers(self, table: str) -> None:
        """Raise InvalidOptionError for what only places of brokers have, and a ``table`` has not.

        ``table`` is what the user named.
        """
        if self.offset_map is not None:
            expected = f"is for two places of brokers, and {shown(table)} is none"
            raise InvalidOptionError(MAP_OPTION, str(self.offset_map), expected)
        if self.unconsumed is not None:
            expected = f"{shown(table)} has no offsets of groups"
            raise InvalidOptionError(_UNCONSUMED, self.unconsumed, expected)

    @property
    def rule(self) -> AuditRule:
        """What makes two messages the same."""
        by = self.identity if self.offset_map is None else "map"
        names = self.ignored_properties
        return AuditRule(by, default_left_out(by) if names is None else frozenset(names))

    def sides(self, first: OpenStores, other: OpenOther) -> tuple[AuditSide, AuditSide]:
        """Return both sides, of the opened place and of the ``other``, which is closed again.

        One broker on each is the same broker, whatever their names are. Raises InvalidOptionError
        for an offset map that cannot be read or has no message of the topics, UnknownTopicError,
        UnknownGroupError, and what a snapshot raises.
        """
        relation = None if self.offset_map is None else self.offset_map.relation()
        if relation is None:
            with other(None) as second:
                sides = self.side(first), self.side(second)
                warn_of_stale(*([one.snapshot.origin for one in side.brokers] for side in sides))
                return matched(*sides)
        old = _mapped_topics(first, relation)
        new = relation.topics(old)
        here = self._not_consumed(first, _of_topics(first, old))
        with other(new) as second:
            there = self._not_consumed(second, _of_topics(second, new))
            return mapped_sides(here, there, relation, only_mapped=self.only_mapped)

    def side(self, stores: OpenStores) -> AuditSide:
        """Return what is chosen of an opened place. Raises as ``sides``."""
        return AuditSide.of(self._not_consumed(stores, chosen_snapshots(stores)))

    def _not_consumed(
        self, stores: OpenStores, snapshots: Iterable[Snapshot]
    ) -> list[tuple[BoundsSource, Snapshot]]:
        brokers = list(zip(stores.sources, snapshots, strict=True))
        if self.unconsumed is None:
            return brokers
        stores.committed(self.unconsumed, option=_UNCONSUMED)  # It must be known.
        return unconsumed(brokers, self.unconsumed)


AUDIT_OPTIONS: Final = options_of(AuditOptions)


def chosen_snapshots(stores: OpenStores) -> list[Snapshot]:
    """Return what is chosen of each broker; RocketMQ's own topics only where they are named."""
    chosen, found = stores.selection, list(stores.snapshots)
    hides = not (chosen.subscribe or chosen.assign or chosen.include_system_topics)
    return list(map(without_system, found)) if hides else found


def _mapped_topics(stores: OpenStores, relation: OffsetRelation) -> frozenset[str]:
    """Return the topics of a map: those that are chosen by name or pattern, else all."""
    chosen, known = stores.selection, frozenset(topic for _, topic, _ in relation.sources)
    if not (chosen.subscribe or chosen.subscribe_pattern):
        return known
    name = "subscribe" if chosen.subscribe else "subscribePattern"
    found = frozenset(filter(stores.topic_test(), known))
    for text in chosen.subscribe or (chosen.subscribe_pattern or "",):
        if not found or (chosen.subscribe and text not in found):
            raise InvalidOptionError(name, text, "the offset map has no message of it")
    return found


def _of_topics(stores: OpenStores, topics: Collection[str]) -> tuple[Snapshot, ...]:
    found = stores.snapshots_of(frozenset(topics).__contains__)
    held = {queue.topic for snapshot in found for queue in snapshot.queues}
    for topic in sorted(set(topics) - held):
        check_known(stores, topic)
    return found

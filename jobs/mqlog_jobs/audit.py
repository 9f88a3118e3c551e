"""The command ``audit``: are the messages of two places the same, and if not, which differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs import render
from mqlog_jobs.amounts import several, size
from mqlog_jobs.form import Form
from mqlog_jobs.offset_files import offset_place, offset_rows
from mqlog_jobs.places import Named
from mqlog_jobs.render import FieldView, Row
from mqstore.audit.differences import differences
from mqstore.audit.found import Difference, MessagePlace
from mqstore.audit.relation import MAP_OPTION, OffsetRelation, relation_of
from mqstore.audit.rows import AuditRule, default_left_out
from mqstore.audit.sides import audit_sides, mapped_sides, unconsumed
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar
from mqstore.read.message_query import check_known, snapshots_of
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.read.system_topics import without_system

_WAYS: Final = ("offset", "id")
_VIEW: Final = (
    FieldView("difference", "DIFFERENCE"),
    FieldView("messageId", "MESSAGE ID", rank=1),
    FieldView("first", "FIRST PLACE", stretch=True),
    FieldView("second", "SECOND PLACE", stretch=True),
    FieldView("storeTimestamp", "STORED (UTC)", "time", rank=2),
    FieldView("fields", "FIELDS", stretch=True),
)


def rule_of(by: str, ignored: str | None, *, by_map: bool) -> AuditRule:
    """Return what makes two messages the same. Raises InvalidOptionError."""
    if by_map:
        by = "map"
    elif by not in _WAYS:
        raise InvalidOptionError("--by", by, f"must be {' or '.join(_WAYS)}")
    if ignored is None:
        return AuditRule(by, default_left_out(by))
    return AuditRule(by, frozenset(grammar.names("--ignore", ignored)) if ignored else frozenset())


@dataclass(frozen=True, slots=True)
class Audited:
    """Which messages of two places are compared.

    ``relation`` is that of a replay from the first to the second; ``only_mapped``: of it alone.
    ``group``: what this group has not consumed.
    """

    topic: str | None = None
    system: bool = False
    group: str | None = None
    relation: OffsetRelation | None = None
    only_mapped: bool = False


def relation_in(
    by: str | None, offset_map: str | None, *, only_mapped: bool
) -> OffsetRelation | None:
    """Return the relation of the offset map at ``FORMAT:DIR``. Raises InvalidOptionError."""
    if offset_map is None:
        if only_mapped:
            raise InvalidOptionError("--only-mapped", "true", f"is for {MAP_OPTION}")
        return None
    if by is not None:
        raise InvalidOptionError(MAP_OPTION, offset_map, "is another identity than --by")
    found = relation_of(offset_rows(*offset_place(MAP_OPTION, offset_map)))
    if not found.sources:
        raise InvalidOptionError(MAP_OPTION, offset_map, "has no message")
    return found


def audit(first: Named, second: Named, rule: AuditRule, wanted: Audited, form: Form) -> bool:
    """Print how two places differ; tell whether they do.

    Raises UnknownTopicError for a topic that one of them lacks, and what a read raises.
    """
    topics = _topics(wanted)
    groups = None if wanted.group is None else (wanted.group,)
    with (
        first.opened(topics[0], groups=groups) as here,
        second.opened(topics[1], groups=groups) as there,
    ):
        opened = _held(here, topics[0], wanted), _held(there, topics[1], wanted)
        if wanted.relation is None:
            sides = audit_sides(opened[0], opened[1])
        else:
            sides = mapped_sides(*opened, wanted.relation, only_mapped=wanted.only_mapped)
        digests = sides[0].digests(rule), sides[1].digests(rule)
        found = differences(sides, digests, rule)
        if form.as_json:
            return bool(render.json_lines(map(row_of_difference, found)))
        if form.as_csv:
            rows = [row_of_difference(one) for one in found]
            render.comma_separated(list(row_of_difference(Difference("", None, None))), rows)
            return bool(rows)
        shown_rows = [_shown(one) for one in found]
    console = render.terminal()
    names = " and ".join(shown(", ".join(named.paths)) for named in (first, second))
    counts = [several(one.count, "message") for one in digests]
    if not shown_rows:
        total = size(sum(one.bytes for one in digests[0].buckets.values()))
        told = f"{names}: the same {counts[0]}, {total} of bodies"
        console.print(told, markup=False, soft_wrap=True)
        return False
    render.table(console, _VIEW, shown_rows)
    told = f"{names}: {several(len(shown_rows), 'difference')}; {counts[0]} and {counts[1]}"
    console.print(told, markup=False, soft_wrap=True)
    return True


def _topics(wanted: Audited) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the topics of each place; None: all."""
    if wanted.relation is None:
        names = None if wanted.topic is None else (wanted.topic,)
        return names, names
    old, new = (
        tuple(sorted(wanted.relation.topics(wanted.topic, new=new))) for new in (False, True)
    )
    if not old:
        expected = "the offset map has no message of it"
        raise InvalidOptionError("--topic", wanted.topic or "", expected)
    return old, new


def _held(
    stores: OpenStores, topics: tuple[str, ...] | None, wanted: Audited
) -> list[tuple[BoundsSource, Snapshot]]:
    if topics is None:
        found = snapshots_of(stores)
        found = found if wanted.system else tuple(map(without_system, found))
    else:
        found = stores.snapshots_of(frozenset(topics).__contains__)
        held = {queue.topic for snapshot in found for queue in snapshot.queues}
        for topic in set(topics) - held:
            check_known(stores, topic)
    brokers = list(zip(stores.sources, found, strict=True))
    if wanted.group is None:
        return brokers
    stores.committed(wanted.group, option="--unconsumed")  # It must be known.
    return unconsumed(brokers, wanted.group)


def row_of_difference(found: Difference) -> dict[str, object]:
    """Return a difference as a row: where the message is in each place, null where it is not."""
    row: dict[str, object] = {"difference": found.kind, "messageId": found.message_id}
    for name, place in (("first", found.first), ("second", found.second)):
        row |= {
            f"{name}Broker": place.broker if place else None,
            f"{name}Topic": place.topic if place else None,
            f"{name}QueueId": place.queue_id if place else None,
            f"{name}QueueOffset": place.queue_offset if place else None,
            f"{name}StoreTimestamp": _time(place) if place else None,
        }
    return {**row, "fields": list(found.fields)}


def _shown(found: Difference) -> Row:
    known = found.first or found.second
    return {
        "difference": found.kind,
        "messageId": found.message_id,
        "first": "".join(_text(found.first)),
        "second": "".join(_text(found.second)),
        "storeTimestamp": _time(known) if known else None,
        "fields": ", ".join(found.fields),
    }


def _text(place: MessagePlace | None) -> Iterator[str]:
    if place is not None:
        yield f"{place.broker} {place.topic}/{place.queue_id}@{place.queue_offset}"


def _time(place: MessagePlace) -> datetime:
    return datetime.fromtimestamp(place.stored_ms / 1000, UTC)

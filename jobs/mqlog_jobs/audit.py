"""The command ``audit``: are the messages of two places the same, and if not, which differ."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs import render
from mqlog_jobs.amounts import several, size
from mqlog_jobs.form import Form
from mqlog_jobs.places import Named
from mqlog_jobs.render import FieldView, Row
from mqstore.audit.differences import Difference, MessagePlace, differences
from mqstore.audit.digests import AuditRule, default_left_out
from mqstore.audit.sides import audit_sides
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar
from mqstore.read.message_query import snapshots_of
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


def rule_of(by: str, ignored: str | None) -> AuditRule:
    """Return what makes two messages the same. Raises InvalidOptionError."""
    if by not in _WAYS:
        raise InvalidOptionError("--by", by, f"must be {' or '.join(_WAYS)}")
    if ignored is None:
        return AuditRule(by, default_left_out(by))
    return AuditRule(by, frozenset(grammar.names("--ignore", ignored)) if ignored else frozenset())


def audit(
    first: Named, second: Named, rule: AuditRule, topic: str | None, form: Form, *, system: bool
) -> bool:
    """Print how two places differ; tell whether they do.

    Raises UnknownTopicError for a topic that one of them lacks, and what a read raises.
    """
    with first.opened(topic) as here, second.opened(topic) as there:
        opened = [_held(stores, topic, system=system) for stores in (here, there)]
        sides = audit_sides(opened[0], opened[1])
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


def _held(
    stores: OpenStores, topic: str | None, *, system: bool
) -> list[tuple[BoundsSource, Snapshot]]:
    found = snapshots_of(stores, topic)
    if topic is None and not system:
        found = tuple(map(without_system, found))
    return list(zip(stores.sources, found, strict=True))


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

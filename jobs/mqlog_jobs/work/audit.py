"""The command ``audit``: are the messages of two places the same, and if not, which differ."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqlog_jobs.output import render
from mqlog_jobs.output.amounts import several, size
from mqlog_jobs.output.form import Form
from mqlog_jobs.output.render import FieldView, Row
from mqlog_jobs.places import Named
from mqlog_jobs.replays.offset_files import offset_place, offset_rows
from mqstore.audit.differences import differences
from mqstore.audit.digests import AuditDigests
from mqstore.audit.found import Difference, MessagePlace
from mqstore.audit.parquet import TableSide, TopicsWanted
from mqstore.audit.parquet_files import AS_FILES
from mqstore.audit.relation import MAP_OPTION, OffsetRelation, relation_of
from mqstore.audit.rows import AuditRule, default_left_out
from mqstore.audit.sides import AuditSide, Side, audit_sides, mapped_sides, matched, unconsumed
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import grammar
from mqstore.read.message_query import check_known, snapshots_of
from mqstore.read.selection import OpenStores
from mqstore.read.source import BoundsSource, Snapshot
from mqstore.read.system_topics import system_topics, without_system

_WAYS: Final = ("offset", "id")
_PARQUET: Final = "parquet"
_OTHER_TABLES: Final = ("delta", "iceberg")
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
    with ExitStack() as stack:
        sides = _sides(stack, (first, second), wanted)
        digests = sides[0].digests(rule), sides[1].digests(rule)
        _check_topic((first, second), digests, wanted)
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


def _sides(stack: ExitStack, named: tuple[Named, Named], wanted: Audited) -> tuple[Side, Side]:
    """Return the sides, open until ``stack`` is left."""
    tables = [table_of(place.paths[0]) for place in named]
    if any(tables):
        _check_tables(named, tables, wanted)
    groups = None if wanted.group is None else (wanted.group,)
    brokers = [
        [] if table else _held(stack.enter_context(place.opened(of, groups=groups)), of, wanted)
        for place, table, of in zip(named, tables, _topics(wanted), strict=True)
    ]
    if wanted.relation is not None:
        return mapped_sides(brokers[0], brokers[1], wanted.relation, only_mapped=wanted.only_mapped)
    if not any(tables):
        return audit_sides(brokers[0], brokers[1])
    own = {topic for side in brokers for _, snapshot in side for topic in system_topics(snapshot)}
    topics = TopicsWanted(wanted.topic, wanted.system, frozenset(own))
    return matched(
        *(
            TableSide.at(table, topics) if table else AuditSide.of(held)
            for table, held in zip(tables, brokers, strict=True)
        )
    )


def table_of(text: str) -> Path | None:
    """Return the directory of ``parquet:DIR``, None for any other place.

    Raises InvalidOptionError for another format of tables.
    """
    kind, colon, where = text.partition(":")
    if colon and kind in _OTHER_TABLES:
        raise InvalidOptionError("PLACE", text, f"{kind} tables are not audited: {AS_FILES}")
    if kind != _PARQUET or not colon:
        return None
    if not where or "://" in where:
        raise InvalidOptionError("PLACE", text, "write parquet:DIR, a directory of this machine")
    return Path(where)


def _check_tables(
    named: tuple[Named, Named], tables: Sequence[Path | None], wanted: Audited
) -> None:
    """Raise InvalidOptionError for what only brokers know."""
    text = next(n.paths[0] for n, table in zip(named, tables, strict=True) if table is not None)
    if wanted.relation is not None:
        raise InvalidOptionError(MAP_OPTION, text, "is for two places of brokers, and this is none")
    if wanted.group is not None:
        expected = f"{shown(text)} has no offsets of groups"
        raise InvalidOptionError("--unconsumed", wanted.group, expected)
    if all(tables) and named[0].options:
        raise InvalidOptionError("--option", named[0].options[0], "tables take none")


def _check_topic(
    named: tuple[Named, Named], digests: tuple[AuditDigests, AuditDigests], wanted: Audited
) -> None:
    """Raise InvalidOptionError for a topic that a table has no row of: it may be a slip."""
    for place, digest in zip(named, digests, strict=True):
        if wanted.topic is not None and not digest.count and table_of(place.paths[0]):
            expected = f"{shown(place.paths[0])} has no message of it"
            raise InvalidOptionError("--topic", wanted.topic, expected)


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

"""The command ``audit``: are the messages of two places the same, and if not, which differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs.output import render
from mqlog_jobs.output.amounts import several, size
from mqlog_jobs.output.form import Form
from mqlog_jobs.output.render import FieldView, Row
from mqlog_jobs.places import option_texts, own_advice
from mqstore.audit.differences import differences
from mqstore.audit.digests import AuditDigests
from mqstore.audit.found import NOT_IN_FIRST, NOT_IN_SECOND, Difference, MessagePlace
from mqstore.audit.parquet import TableSide, topics_wanted
from mqstore.audit.sides import Side, matched
from mqstore.audit.table_addresses import TableAddress
from mqstore.errors import InvalidOptionError, shown
from mqstore.request.audits import audit_options, broker_sides

_VIEW: Final = (
    FieldView("difference", "DIFFERENCE"),
    FieldView("messageId", "MESSAGE ID", rank=1),
    FieldView("first", "FIRST PLACE", stretch=True),
    FieldView("second", "SECOND PLACE", stretch=True),
    FieldView("storeTimestamp", "STORED (UTC)", "time", rank=2),
    FieldView("fields", "FIELDS", stretch=True),
)

_NO_COMMON_ID: Final = (
    "No message id is in both places. A replay that sends exactly once gives each message a new "
    "id: compare by its --offset-map. A message without UNIQ_KEY has its position as its id."
)


@dataclass(frozen=True, slots=True)
class Audited:
    """Two places as typed, and which of their messages are compared.

    ``asked`` are options of an audit, ``options`` those of connections, as NAME=VALUE.
    """

    places: tuple[str, str]
    asked: Mapping[str, str] = field(default_factory=dict)
    topic: str | None = None
    system: bool = False
    options: Sequence[str] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The options of the reads."""
        found = {"includesystemtopics": str(self.system).lower()}
        found |= {} if self.topic is None else {"subscribe": json.dumps([self.topic])}
        connected = option_texts(self.options, "--option")
        return found | {name.lower(): text for name, text in connected.items()}


def audit(wanted: Audited, form: Form) -> bool:
    """Print how two places differ; tell whether they do.

    Raises UnknownTopicError for a topic that one of them lacks, and what a read raises.
    """
    rule = audit_options(wanted.asked).rule
    with own_advice():
        sides = _sides(wanted)
    digests = sides[0].digests(rule), sides[1].digests(rule)
    _check_topic(wanted, digests)
    found = differences(sides, digests, rule)
    if form.as_json:
        return bool(render.json_lines(map(row_of_difference, found)))
    if form.as_csv:
        rows = [row_of_difference(one) for one in found]
        render.comma_separated(list(row_of_difference(Difference("", None, None))), rows)
        return bool(rows)
    shown_rows = [_shown(one) for one in found]
    console = render.terminal()
    names = " and ".join(map(shown, wanted.places))
    counts = [several(one.count, "message") for one in digests]
    if not shown_rows:
        total = size(sum(one.bytes for one in digests[0].buckets.values()))
        told = f"{names}: the same {counts[0]}, {total} of bodies"
        console.print(told, markup=False, soft_wrap=True)
        return False
    render.table(console, _VIEW, shown_rows)
    told = f"{names}: {several(len(shown_rows), 'difference')}; {counts[0]} and {counts[1]}"
    console.print(told, markup=False, soft_wrap=True)
    if rule.by == "id" and _has_no_common_id(shown_rows, digests):
        console.print(_NO_COMMON_ID, markup=False, soft_wrap=True)
    return True


def _has_no_common_id(
    shown_rows: Sequence[Row], digests: tuple[AuditDigests, AuditDigests]
) -> bool:
    """Tell whether each place has messages, and none of their ids is in the other one."""
    is_alone = all(row["difference"] in (NOT_IN_FIRST, NOT_IN_SECOND) for row in shown_rows)
    counts = [digest.count for digest in digests]
    return is_alone and all(counts) and len(shown_rows) == sum(counts)


def _sides(wanted: Audited) -> tuple[Side, Side]:
    """Return the sides, each with what it has now."""
    tables = [TableAddress.of(path) for path in wanted.places]
    paths = [path for path, table in zip(wanted.places, tables, strict=True) if table is None]
    if not any(tables):
        first, second = broker_sides(paths, wanted.asked, wanted.texts)
        return first, second
    text = next(path for path in wanted.places if path not in paths)
    audit_options(wanted.asked).check_brokers(text)
    if not paths and wanted.options:
        raise InvalidOptionError("--option", wanted.options[0], "tables take none")
    brokers = list(broker_sides(paths, wanted.asked, wanted.texts) if paths else ())
    topics = topics_wanted(wanted.topic, brokers, system=wanted.system)
    return matched(*(TableSide.at(table, topics) if table else brokers.pop(0) for table in tables))


def _check_topic(wanted: Audited, digests: tuple[AuditDigests, AuditDigests]) -> None:
    """Raise InvalidOptionError for a topic that a table has no row of: it may be a slip."""
    for path, digest in zip(wanted.places, digests, strict=True):
        if wanted.topic is not None and not digest.count and TableAddress.of(path):
            expected = f"{shown(path)} has no message of it"
            raise InvalidOptionError("--topic", wanted.topic, expected)


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

"""The output of ``mqlog schema``: a schema for the bodies of a topic, and what is unsure."""

import json
import sys
from dataclasses import dataclass
from typing import Final

from mqlog_jobs.output import render
from mqlog_jobs.output.amounts import count
from mqlog_jobs.output.form import Form
from mqlog_jobs.output.render import FieldView, Row
from mqlog_jobs.places import Named, own_advice, with_read_options
from mqstore.bodies.infer import BodyReport, instant
from mqstore.errors import InvalidOptionError, printable, shown
from mqstore.request.body_schema import schema_report
from mqstore.request.read_options import MESSAGES

_FIELD_VIEW: Final = (
    FieldView("field", "FIELD"),
    FieldView("type", "TYPE", stretch=True),
    FieldView("share", "SHARE", rank=1),
    FieldView("since", "SINCE", rank=2),
    FieldView("until", "UNTIL", rank=3),
)
_BY_ARGUMENT: Final = dict.fromkeys(("subscribe", "assign"), "is for the argument TOPIC")


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """How many bodies are looked at; ``only_ddl`` prints no more than the DDL."""

    sample: int
    only_ddl: bool = False


def show(named: Named, form: Form, topic: str, request: SchemaRequest) -> None:
    """Print the schema of a topic's bodies.

    Raises InvalidOptionError, UnknownTopicError, and what opening places and reading raises.
    """
    if form.as_json and request.only_ddl:
        raise InvalidOptionError("--ddl", "true", "choose either --ddl or --json")
    places, others = with_read_options(named, _BY_ARGUMENT)
    given = {name: text for name, text in others.items() if text is not None}
    texts = {"body": "json", **given, "subscribe": json.dumps([topic])}
    with own_advice():
        report = schema_report(places.read_options(MESSAGES, texts), request.sample)
    if form.as_json:
        render.json_lines([as_row(report, topic)])
    elif request.only_ddl:
        if not report.ddl:
            raise InvalidOptionError("TOPIC", topic, _no_schema(report))
        sys.stdout.write(f"{printable(report.ddl)}\n")
    else:
        _draw(report, topic)


def as_row(report: BodyReport, topic: str) -> Row:
    """Return a report as the object that ``--json`` prints."""
    return {
        "topic": topic,
        "ddl": report.ddl,
        "jsonSchema": report.json_schema,
        "sampled": report.sampled,
        "empty": report.empty,
        "fit": report.fit,
        "bad": report.bad,
        "fields": [
            {
                "name": field.name,
                "type": field.type,
                "share": round(field.share, 4),
                "since": _time(field.since),
                "until": _time(field.until),
                "remarks": list(field.remarks),
            }
            for field in report.fields
        ],
        "shapes": [
            {"tag": shape.tag, "bodies": shape.bodies, "ownFields": list(shape.own_fields)}
            for shape in report.shapes
        ],
        "changes": report.changes,
        "unsure": list(report.unsure),
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else instant(time_ms)


def _draw(report: BodyReport, topic: str) -> None:
    console = render.terminal()
    words = [f"{count(report.fit)} of {count(report.sampled)} bodies fit"]
    words += [f"{count(number)} {reason}" for reason, number in sorted(report.bad.items())]
    if report.empty:
        words.append(f"{count(report.empty)} empty")
    render.heading(console, topic, ", ".join(words))
    lines = [""]
    for name, tables in report.changes.items():
        listed = ", ".join(f"{table} ({count(number)})" for table, number in tables.items())
        lines.append(
            f"{count(sum(tables.values()))} bodies are changes of a database, of {name}, of "
            f"{len(tables)} tables: {shown(listed, 500)}. What follows is of the messages, not of "
            "the tables: -o changes=auto makes rows of their changes."
        )
    if not report.ddl:
        lines.append(_no_schema(report))
    lines += [report.ddl, ""]
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    rows = [
        {
            "field": field.name,
            "type": field.type,
            "share": f"{100 * field.share:.0f} %",
            "since": _time(field.since),
            "until": _time(field.until),
        }
        for field in report.fields
    ]
    if rows:
        render.table(console, _FIELD_VIEW, rows)
    if report.unsure:
        sys.stdout.write("\n")
        sys.stdout.writelines(f"-- {printable(note)}\n" for note in report.unsure)
    for shape in report.shapes:
        own = ", ".join(shape.own_fields) or "none"
        line = f"-- tag {shape.tag}: {count(shape.bodies)} bodies; fields of its own: {own}"
        sys.stdout.write(f"{printable(line)}\n")


def _no_schema(report: BodyReport) -> str:
    if not report.sampled:
        return "the topic has no message"
    return f"none of {count(report.sampled)} bodies is an object of JSON with fields"

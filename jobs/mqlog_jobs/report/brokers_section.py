"""The section about the brokers of a report: directories of stores, and brokers that run."""

from mqlog_jobs.output.amounts import count, several
from mqlog_jobs.report.cells import (
    Head,
    address,
    bytes_cell,
    cell,
    note,
    row,
    section,
    table,
    when,
)
from mqlog_jobs.report.facts import BrokerHeld, Facts
from mqlog_jobs.report.markup import Element

_NOT_CLOSED = "not closed: its broker runs, or crashed"


def brokers_title(facts: Facts) -> str:
    """Return the section's title."""
    return "Brokers" if facts.has_cluster else "Stores"


def brokers_section(facts: Facts) -> Element:
    """Return what was looked at."""
    heads = (
        Head("Broker"), Head("Place"), Head("Messages", number=True), Head("Queues", number=True),
        Head("CommitLog", number=True), Head("First stored (UTC)"), Head("Last stored (UTC)"),
        Head("State"),
    )  # fmt: skip
    rows = [
        row(
            place.broker,
            cell(address(place.name), class_="place"),
            cell(count(place.messages), number=True),
            cell(count(place.queues), number=True),
            bytes_cell(place.log_bytes) if place.log_bytes else cell("–", number=True),
            when(place.first_ms),
            when(place.last_ms),
            cell(_state(place), class_="state"),
        )
        for place in facts.places
    ]
    title = brokers_title(facts)
    return section(
        "brokers", title, table(f"The {title.lower()} of this report", heads, [rows]), _own(facts)
    )


def _state(place: BrokerHeld) -> str:
    if place.is_live:
        return f"running, {place.version}" if place.version else "running"
    return _NOT_CLOSED if place.is_unclean else "closed cleanly"


def _own(facts: Facts) -> Element | None:
    """Return the remark about RocketMQ's own topics, which the table leaves out."""
    queues = sum(place.system_queues for place in facts.places)
    messages = sum(place.system_messages for place in facts.places)
    if not queues:
        return None
    others = f"{several(queues, 'queue')} with {several(messages, 'message')}"
    return note(f"Of users’ topics. RocketMQ’s own topics have {others} beside them.")

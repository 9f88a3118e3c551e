"""The producers by name, and which one a message is of, by its own marks."""

from collections.abc import Callable
from typing import Final, TypeAlias

from mqstore.bodies.change_marks import (
    CANAL,
    DEBEZIUM,
    DEBEZIUM_FLAT,
    PACKET,
    change_of,
)
from mqstore.changes.canal import canal_changes, flat_changes
from mqstore.changes.canal_packet import canal_packet_changes
from mqstore.changes.change import OTHER, Change, ChangeMessage
from mqstore.changes.debezium import (
    debezium_changes,
    envelope_changes,
    no_change,
    object_of,
    without_schema,
)
from mqstore.changes.debezium_flat import debezium_flat_changes, flattened_changes
from mqstore.changes.told import Told

Decode: TypeAlias = Callable[[ChangeMessage, Told], list[Change]]


def auto_changes(message: ChangeMessage, told: Told) -> list[Change]:
    """Return the changes of a message of any producer; raises ValueError for what is none."""
    if message.body.startswith(PACKET):
        return canal_packet_changes(message, told)
    value = object_of(message.body)
    if value is None:
        return [Change(op=OTHER)]
    marks = change_of(value)
    name = marks[0] if marks else None
    if name == CANAL:
        return flat_changes(value, told)
    if name == DEBEZIUM:
        return envelope_changes(value, message, told)
    if name == DEBEZIUM_FLAT:
        return flattened_changes(value, message, told)
    if name is not None:
        raise ValueError(f"a message of {name}, which is not decoded")
    noise = no_change(without_schema(value)[1])
    if noise is None:
        raise ValueError("no message of a producer of changes that is known")
    return [noise]


AUTO_FORMAT: Final = "auto"
CHANGE_FORMATS: Final[dict[str, Decode]] = {
    "canal": canal_changes,
    "canalProtobuf": canal_packet_changes,
    "debezium": debezium_changes,
    "debeziumFlat": debezium_flat_changes,
    AUTO_FORMAT: auto_changes,
}
"""By the value of the option ``changes``."""


def decoded(decode: Decode, message: ChangeMessage, told: Told) -> list[Change]:
    """Return the changes of a message: at least one, which has ``op`` None if it is no change."""
    try:
        return decode(message, told)
    except ValueError as error:
        return [Change(op=None, reason=str(error))]
    except RecursionError:
        return [Change(op=None, reason="nested too deeply")]

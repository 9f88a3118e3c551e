"""The producers by name, and which one a message is of, by its own marks."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from mqstore.bodies.change_marks import (
    CANAL,
    DEBEZIUM,
    DEBEZIUM_FLAT,
    MAXWELL,
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
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.maxwell import maxwell_changes, row_changes

Decode: TypeAlias = Callable[[ChangeMessage, DecodeContext], list[Change]]

_Parsed: TypeAlias = Callable[[Mapping[str, Any], ChangeMessage, DecodeContext], list[Change]]
_BY_MARKS: Final[dict[str, _Parsed]] = {
    CANAL: lambda value, _, context: flat_changes(value, context),
    DEBEZIUM: envelope_changes,
    DEBEZIUM_FLAT: flattened_changes,
    MAXWELL: lambda value, _, context: row_changes(value, context),
}
"""What makes changes of an object that was parsed, by the marks that it has."""


def auto_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a message of any producer; raises ValueError for what is none."""
    if message.body.startswith(PACKET):
        return canal_packet_changes(message, context)
    value = object_of(message.body)
    if value is None:
        return [Change(op=OTHER)]
    marks = change_of(value)
    if marks is None:
        noise = no_change(without_schema(value)[1])
        if noise is None:
            raise ValueError("no message of a producer of changes that is known")
        return [noise]
    if marks[0] not in _BY_MARKS:
        raise ValueError(f"a message of {marks[0]}, which is not decoded")
    return _BY_MARKS[marks[0]](value, message, context)


AUTO_FORMAT: Final = "auto"
CHANGE_FORMATS: Final[dict[str, Decode]] = {
    "canal": canal_changes,
    "canalProtobuf": canal_packet_changes,
    "debezium": debezium_changes,
    "debeziumFlat": debezium_flat_changes,
    "maxwell": maxwell_changes,
    AUTO_FORMAT: auto_changes,
}
"""By the value of the option ``changes``."""


def decoded(decode: Decode, message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a message: at least one, which has ``op`` None if it is no change."""
    try:
        return decode(message, context)
    except ValueError as error:
        return [Change(op=None, reason=str(error))]
    except RecursionError:
        return [Change(op=None, reason="nested too deeply")]

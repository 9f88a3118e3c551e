"""Refuses options of a write that would change nothing without others beside them."""

import pyarrow as pa

from mqstore.errors import InvalidOptionError
from mqstore.files.txn.ledger import Key
from mqstore.write.stage.settings import MessageSettings, rooms_of


def check_effect(settings: MessageSettings, columns: pa.Schema, *, carries_read: bool) -> None:
    """Raise InvalidOptionError for an option that could change nothing in any row."""
    _check_rooms(settings)
    there = set(columns.names)
    keyed = "shardingKey" in there or (carries_read and "properties" in there)
    timed = not there.isdisjoint({"bornTimestamp", "storeTimestamp"})
    no_key = "needs the column shardingKey, which the rows do not have"
    for option, value, takes_effect, expected in (
        ("partitioner", settings.partitioner, keyed or settings.partitioner != "hash", no_key),
        (
            "batchBuilder",
            settings.batch_builder,
            keyed or settings.batch_builder != "keyBased",
            no_key,
        ),
        (
            "timestamps",
            settings.timestamps,
            timed or settings.timestamps != "preserve",
            "needs the column bornTimestamp or storeTimestamp, and the rows have neither",
        ),
        (
            "compressOver",
            settings.compress_over,
            settings.compression != "none" or settings.compress_over is None,
            "needs the option compression too: nothing is compressed without it",
        ),
    ):
        if not takes_effect:
            raise InvalidOptionError(option, value, expected)


def _check_rooms(settings: MessageSettings) -> None:
    """Raise InvalidOptionError unless the three options of machine rooms make sense together."""
    rooms, room = settings.machine_rooms, settings.machine_room
    is_wanted = settings.partitioner == "machineRoom"
    for option, value in (("machineRooms", rooms), ("machineRoom", room)):
        if value is not None and not is_wanted:
            raise InvalidOptionError(option, value, "needs partitioner=machineRoom too")
    if is_wanted and room not in rooms_of(settings):
        expected = (
            "needs machineRooms, the names of all rooms, the same for every writer, and "
            "machineRoom, which of them this one is in"
        )
        raise InvalidOptionError("partitioner", "machineRoom", expected)


def key_of(settings: MessageSettings) -> Key | None:
    """Return the key of the commit, None if the options give none.

    Raises InvalidOptionError where one of the two options is given without the other.
    """
    app_id, version = settings.txn_app_id, settings.txn_version
    if app_id is not None and version is not None:
        return Key(app_id, version)
    for option, value, other in (
        ("txnAppId", app_id, "txnVersion"),
        ("txnVersion", version, "txnAppId"),
    ):
        if value is not None:
            expected = f"needs {other} too: the two together make a write happen once"
            raise InvalidOptionError(option, value, expected)
    return None

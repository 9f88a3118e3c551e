"""Damage in the middle of a CommitLog, distinguished from its end before anything is changed.

A log ends at the first record that is not whole. Where one byte of it went bad, all messages
behind that byte would be taken for what lies behind an end: their units and keys would go.

Reference: CommitLog#recoverAbnormally cuts a log there, and loses them.
"""

from enum import Enum
from typing import Final

from mqstore.derive.sound_record import SoundRecord, sound_records_in
from mqstore.files.log.log_end import data_behind
from mqstore.files.store import Store
from mqstore.format.names import is_topic


class BeyondLogEnd(Enum):
    """Which sound records may lie behind the end of a log."""

    NONE = "none"
    TORN = "torn"
    """Those of a commit that was not published, of a log that was torn as the power was cut, or
    that a broker cut off: the first that belongs into a queue is not there, or was not flushed."""
    ANY = "any"
    """Whatever there is: the user gives it up."""


def refuse_damage(store: Store, tail: int, behind: BeyondLogEnd) -> None:
    """Raise CorruptStoreError if a log, walked up to ``tail``, ends before messages of its own."""
    if behind is BeyondLogEnd.ANY:
        return
    log = store.log
    for position, chunk in data_behind(log, tail):
        for record in sound_records_in(log, position, chunk):
            is_lost = _is_dispatched(store, record)
            if behind is BeyondLogEnd.NONE or is_lost:
                found = f"the first at {record.physical_offset} of {record.topic}/{record.queue_id}"
                raise log.corrupt(tail, _REASON.format(found, _DAMAGE if is_lost else _TORN))
            if record.in_queue:
                return


_REASON: Final = "no sound record here, but sound ones behind it, {}: {}. Nothing was changed"
_DAMAGE: Final = (
    "this is damage, not the log's end. What lies behind can still be read (onCorrupt=skip); mqlog "
    "recover --cut-at-damage lets the log end here, with the rest in .mqlog/quarantine"
)
_TORN: Final = (
    "a broker cut them off, or the log was torn as it was killed. mqlog recover --recover-unclean, "
    "or recoverUnclean=true, clears them, with a copy in .mqlog/quarantine"
)


def _is_dispatched(store: Store, record: SoundRecord) -> bool:
    """Tell whether a record was flushed, by the checkpoint, and its queue has its unit."""
    checkpoint = store.checkpoint()
    if checkpoint is None or record.store_timestamp_ms > int(checkpoint["physic_msg_timestamp"]):
        return False
    if not is_topic(record.topic) or record.queue_offset < 0:
        return False
    queue = store.queue(record.topic, record.queue_id)
    if record.queue_offset >= queue.bounds(0)[1]:
        return False
    unit = queue.read(record.queue_offset, record.queue_offset + 1)[0]
    return int(unit["physical_offset"]) == record.physical_offset

"""One record of the CommitLog at a time: read and checked, or looked for in bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

from mqstore.codec.gather import RecordHeaders
from mqstore.derive.records import SOUND_CHECKS, fetch_at
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Bytes
from mqstore.format.message import HEADER, RECORD_MAGICS
from mqstore.format.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

assert HEADER.fields is not None
_MAGIC_POSITION = HEADER.fields["magic"][1]


@dataclass(frozen=True, slots=True)
class SoundRecord:
    """One record of the CommitLog that is whole, sound and where it says."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp_ms: int
    in_queue: bool
    """Whether it belongs into a ConsumeQueue: prepared and rolled back messages have no unit."""
    store_ip: bytes
    store_port: int

    @property
    def position(self) -> tuple[str, int, int]:
        """Topic, queue id and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


def read_record(log: CommitLog, physical_offset: int) -> SoundRecord | None:
    """Return the sound record that starts there, or None."""
    headers = fetch_at(log, physical_offset, SOUND_CHECKS)
    return None if headers is None else _record(headers, physical_offset)


def sound_records_in(log: CommitLog, position: int, chunk: Bytes) -> Iterator[SoundRecord]:
    """Yield the sound records that start in ``chunk``, which lies at physical ``position``.

    As `data_behind` gives chunks: a magic may lie across two, and the next one starts a little
    before this one's end.
    """
    for magic in RECORD_MAGICS:
        data, word = chunk.tobytes(), magic.to_bytes(4, "big", signed=True)
        found = data.find(word)
        while found >= 0:
            record = read_record(log, position + found - _MAGIC_POSITION)
            if record is not None:
                yield record
            found = data.find(word, found + 1)


def _record(headers: RecordHeaders, physical_offset: int) -> SoundRecord:
    begin, length = int(headers.topic_starts[0]), int(headers.topic_lengths[0])
    kind = int(headers.sys_flags[0]) & TRANSACTION_MASK
    port = int(headers.field("store_port")[0])
    ip_at, port_at = (int(headers.position(name)[0]) for name in ("store_ip", "store_port"))
    return SoundRecord(
        physical_offset=physical_offset,
        size=int(headers.sizes[0]),
        topic=headers.buffer[begin : begin + length].tobytes().decode(errors="replace"),
        queue_id=int(headers.field("queue_id")[0]),
        queue_offset=int(headers.field("queue_offset")[0]),
        store_timestamp_ms=int(headers.field("store_timestamp_ms")[0]),
        in_queue=kind not in {TRANSACTION_PREPARED, TRANSACTION_ROLLBACK},
        store_ip=headers.buffer[ip_at:port_at].tobytes(),
        store_port=port,
    )

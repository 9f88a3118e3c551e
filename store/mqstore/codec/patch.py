"""Put into encoded records what only the commit knows: their places and the store's clock.

None of the three fields is under the body's CRC, so nothing else of a record changes.

Reference: CommitLog.DefaultAppendMessageCallback#doAppend, which does the same to the bytes
that the encoder left.
"""

from mqstore.codec.checksum import renew_record_crcs
from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.format.arrays import Bytes, Int64s
from mqstore.format.message import HEADER, HEADERS


def patch(
    records: Bytes,
    starts: Int64s,
    *,
    queue_offsets: Int64s,
    physical_offsets: Int64s,
    store_timestamps_ms: Int64s,
    host_variant: int,
) -> None:
    """Write the fields of the records that start at ``starts``, in place.

    All records are of one ``host_variant`` (see message.HEADERS): the store timestamp's place
    depends on it.
    """
    fields = HEADERS[host_variant].fields
    assert fields is not None
    names = ("queue_offset", "physical_offset", "store_timestamp_ms")
    values = (queue_offsets, physical_offsets, store_timestamps_ms)
    for name, each in zip(names, values, strict=True):
        dtype, position = fields[name][:2]
        sliding(records, dtype)[starts + position] = each


def move(headers: RecordHeaders, by: int | Int64s) -> None:
    """Add ``by``, or one value for each, to PHYSICALOFFSET of records; their buffer is writable."""
    fields = HEADER.fields
    assert fields is not None
    dtype, position = fields["physical_offset"][:2]
    sliding(headers.buffer, dtype)[headers.starts + position] += by
    renew_record_crcs(headers)


assert HEADER.fields is not None

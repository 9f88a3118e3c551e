"""Reads headers of single records by physical offset: times, properties, queue and id.

Store timestamps and properties are read without the bodies. Records that cannot be read (deleted,
cut off, not where their unit says) have neither: these functions serve counts of messages, and a
consumer would not get such records either.

Reference: AbstractConsumeQueueStore#getStoreTime; ExpressionMessageFilter.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import topics_on_disk
from mqstore.codec.gather import RecordHeaders, lengths_at, widths_of
from mqstore.codec.properties import PropertyBlocks
from mqstore.codec.schema import FIRST_MS, LAST_MS
from mqstore.derive.records import IN_PLACE, WHOLE, RecordChecks, fetch, record_sizes
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.message import (
    HEADERS,
    MAX_PROPERTIES_BYTES,
    PROPERTIES_LENGTHS,
    TOPIC_LENGTHS,
    version_indices,
)
from mqstore.format.properties import TAGS, UNIQ_KEY
from mqstore.read.units import cut

NO_TIMESTAMP: Final = np.iinfo(np.int64).min
_HEAD_BYTES: Final = HEADERS[-1].itemsize
_MAX_LENGTH_BYTES: Final = max(dtype.itemsize for dtype in (*TOPIC_LENGTHS, *PROPERTIES_LENGTHS))
_MAX_TAIL_BYTES: Final = 2 * (_MAX_LENGTH_BYTES + MAX_PROPERTIES_BYTES)
_WHOLE_BYTES: Final = 4096  # up to a page, one read of all is cheaper than two of the ends
AT_ONCE_BYTES: Final = 8 << 20

ColumnOf: TypeAlias = Callable[[PropertyBlocks], pa.Array]


@dataclass(frozen=True, slots=True)
class LocatedRecord:
    """A record: its queue, its place there, its id if it has one, its storeTimestamp in ms."""

    topic: str
    queue_id: int
    queue_offset: int
    uniq_key: str | None
    store_timestamp_ms: int


def store_timestamps(log: CommitLog, physical_offsets: Int64s, sizes: Int64s) -> Int64s:
    """Return the storeTimestamp in ms of each record; NO_TIMESTAMP if it cannot be read."""
    found = np.full(len(sizes), NO_TIMESTAMP, np.int64)
    for rows in _batches(log, physical_offsets, sizes, _head_bytes):
        heads, valid = _heads(log, physical_offsets[rows], sizes[rows])
        times = heads.field("store_timestamp_ms").astype(np.int64)
        valid &= (times >= FIRST_MS) & (times <= LAST_MS)
        found[rows[valid]] = times[valid]
    return found


def read_columns(
    log: CommitLog, physical_offsets: Int64s, sizes: Int64s, column_of: ColumnOf
) -> Iterator[tuple[Int64s, pa.Array]]:
    """Yield rows of the given records, and what ``column_of`` makes of their properties.

    Rows of records that cannot be read never come. At most 8 MiB are read at a time; of a
    record larger than a page the body is left out.
    """
    small = sizes <= _WHOLE_BYTES
    chosen = np.flatnonzero(small)
    for batch in _batches(log, physical_offsets[chosen], sizes[chosen], lambda size: size):
        rows = chosen[batch]
        for part, column in _of_whole(log, physical_offsets[rows], sizes[rows], column_of):
            yield rows[part], column
    chosen = np.flatnonzero(~small)
    for batch in _batches(log, physical_offsets[chosen], sizes[chosen], _head_bytes):
        rows = chosen[batch]
        for part, column in _of_ends(log, physical_offsets[rows], sizes[rows], column_of):
            yield rows[part], column


def locate(
    log: CommitLog, physical_offsets: Iterable[int], checks: RecordChecks = IN_PLACE
) -> dict[int, LocatedRecord]:
    """Return the records that start at those places and pass ``checks``, by place, in log order.

    About 8 MiB are read at a time, or one record that is larger. Raises FileNotFoundError if a
    running broker deletes a file meanwhile.
    """
    inside = sorted({place for place in physical_offsets if 0 <= place < log.high})
    places = np.array(inside, np.int64)
    sizes = record_sizes(log, places)
    found: dict[int, LocatedRecord] = {}
    for rows in _batches(log, places, sizes, lambda size: size):
        records = fetch(log, places[rows], sizes[rows], checks)
        headers = records.headers
        columns = zip(
            places[rows[records.rows]].tolist(),
            topics_on_disk(headers).to_pylist(),
            headers.field("queue_id").tolist(),
            headers.field("queue_offset").tolist(),
            PropertyBlocks.of(headers).column(UNIQ_KEY).to_pylist(),
            headers.field("store_timestamp_ms").tolist(),
            strict=True,
        )
        found |= {place: LocatedRecord(*rest) for place, *rest in columns}
    return found


def _head_bytes(sizes: Int64s) -> Int64s:
    return np.full_like(sizes, _HEAD_BYTES)


def tags_of(blocks: PropertyBlocks) -> pa.StringArray:
    """Return the property TAGS."""
    return blocks.column(TAGS)


def _of_whole(
    log: CommitLog, places: Int64s, sizes: Int64s, column_of: ColumnOf
) -> Iterator[tuple[Int64s, pa.Array]]:
    found = fetch(log, places, sizes, WHOLE)
    yield found.rows, column_of(PropertyBlocks.of(found.headers))


def _of_ends(
    log: CommitLog, places: Int64s, sizes: Int64s, column_of: ColumnOf
) -> Iterator[tuple[Int64s, pa.Array]]:
    heads, valid = _heads(log, places, sizes)
    skipped = heads.body_starts - heads.starts + heads.body_lengths
    lengths = sizes - skipped
    valid &= (lengths > 0) & (lengths <= _MAX_TAIL_BYTES)
    versions = version_indices(heads.magics)
    chosen = np.flatnonzero(valid)
    for batch in cut(lengths[chosen], AT_ONCE_BYTES):
        rows = chosen[batch]
        gathered = log.gather(places[rows] + skipped[rows], lengths[rows])
        starts, block_lengths, sound = _blocks(
            gathered.buffer, gathered.starts, lengths[rows], versions[rows]
        )
        blocks = PropertyBlocks(gathered.buffer, starts[sound], block_lengths[sound])
        yield rows[sound], column_of(blocks)


def _heads(log: CommitLog, places: Int64s, sizes: Int64s) -> tuple[RecordHeaders, Mask]:
    """Return the headers of those records and which of them a record stands behind."""
    lengths = np.minimum(sizes, _HEAD_BYTES)
    gathered = log.gather(places, lengths)
    heads = RecordHeaders(gathered.buffer, gathered.starts, lengths)
    known = version_indices(heads.magics) >= 0
    return heads, known & (heads.field("total_size") == sizes)


def _blocks(
    buffer: Bytes, tails: Int64s, lengths: Int64s, versions: Int64s
) -> tuple[Int64s, Int64s, Mask]:
    """Return start and length of each tail's property block, and whether its lengths add up."""
    topic = lengths_at(buffer, tails, versions, TOPIC_LENGTHS)
    places = tails + widths_of(versions, TOPIC_LENGTHS) + topic
    block_lengths = lengths_at(buffer, places, versions, PROPERTIES_LENGTHS)
    starts = places + widths_of(versions, PROPERTIES_LENGTHS)
    adds_up = (starts + block_lengths == tails + lengths) & (topic > 0) & (block_lengths >= 0)
    return starts, block_lengths, adds_up


def _batches(
    log: CommitLog, places: Int64s, sizes: Int64s, cost: Callable[[Int64s], Int64s]
) -> Iterator[Int64s]:
    """Yield the rows of records that are held, in the order of the log, 8 MiB at a time."""
    held = np.flatnonzero(log.holds(places, sizes))
    ordered = held[np.argsort(places[held], kind="stable")]
    for batch in cut(cost(sizes[ordered]), AT_ONCE_BYTES):
        yield ordered[batch]

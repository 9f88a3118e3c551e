"""Records that hold a batch of messages, taken apart as a client does: a record for each message.

The body of such a record is the messages as their producer encoded them, end to end (see
format.client_message). A message has its own flag, body and properties; of the record it has
topic, queue, place, sysFlag, times and hosts, and its queue offset counts on from the record's. As
in the client, it has no storeSize, bodyCRC, reconsumeTimes and preparedTransactionOffset: they
are 0. What is no batch stays as it is.

Reference: PullAPIWrapper#processPullResult, MessageDecoder#decodeMessage(MessageExt, List),
#decodeMessages.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.codec.slices import slices
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.client_message import (
    CLIENT_HEAD,
    CLIENT_LENGTHS,
    LEAST_CLIENT_BYTES,
    MAX_BATCH_MESSAGES,
    SHORT_LENGTH,
)
from mqstore.format.message import HEADER
from mqstore.format.sys_flag import COMPRESSED, INNER_BATCH, NEED_UNWRAP

_WRAPPED: Final = INNER_BATCH | NEED_UNWRAP
_NOT_IN_CLIENT: Final = (
    "total_size",
    "body_crc",
    "reconsume_times",
    "prepared_transaction_offset",
)

NOT_FILLED: Final = "lengths of the batch's messages do not add up to its body"
TOO_MANY: Final = f"the batch holds more than {MAX_BATCH_MESSAGES} messages"
PACKED: Final = "the batch is compressed as a whole: no client of RocketMQ does that"
NOT_IN_BATCH: Final = "the batch of that place holds no message of that queue offset"


class MessageHeaders(RecordHeaders):
    """The headers of n messages: of the record ``records[owners[i]]``, or in its batch."""

    def __init__(
        self, buffer: Bytes, starts: Int64s, sizes: Int64s, records: RecordHeaders, owners: Int64s
    ) -> None:
        super().__init__(buffer, starts, sizes)
        self.records = records
        self.owners = owners

    def take(self, rows: Int64s | Mask) -> "MessageHeaders":
        """Return the headers of those rows only."""
        parts = self.starts[rows], self.sizes[rows], self.records, self.owners[rows]
        return MessageHeaders(self.buffer, *parts)


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The messages of some of the rows that were asked for, and why there are none of the others.

    ``rows[i]`` is the row of the message whose header is ``headers[i]``.
    """

    headers: MessageHeaders
    rows: Int64s
    problems: dict[int, str]


def unwrap(records: RecordHeaders, owners: Int64s, queue_offsets: Int64s) -> Unwrapped:
    """Return the messages of those queue offsets in whole records: ``owners[i]`` is row i's."""
    wraps, parts = _taken_apart(records)
    numbers = queue_offsets - records.field("queue_offset").astype(np.int64)[owners]
    counts = np.array([len(part) if isinstance(part, list) else 0 for part in parts], np.int64)
    inside = (numbers >= 0) & (numbers < counts[owners])
    problems = {}
    for row in np.flatnonzero(~inside).tolist():
        part = parts[int(owners[row])]
        problems[row] = part if isinstance(part, str) else NOT_IN_BATCH
    rows = np.flatnonzero(inside)
    firsts = np.cumsum(counts) - counts
    every = np.array([at for part in parts if isinstance(part, list) for at in part], np.int64)
    places = every[firsts[owners[rows]] + numbers[rows]]
    headers = _build(records, wraps, owners[rows], places, queue_offsets[rows])
    return Unwrapped(headers, rows, problems)


def message_counts(records: RecordHeaders, of_broken: int = 1) -> Int64s:
    """Return how many messages each record holds; ``of_broken`` of a batch that breaks a rule."""
    _, parts = _taken_apart(records)
    counts = [len(part) if isinstance(part, list) else of_broken for part in parts]
    return np.array(counts, np.int64)


def _taken_apart(records: RecordHeaders) -> tuple[Mask, list[list[int] | str]]:
    """Return which records are batches, and of each where in the buffer its messages start.

    Of a batch that breaks a rule, the rule.
    """
    wraps: Mask = (records.sys_flags & _WRAPPED) == _WRAPPED
    is_batch = wraps.tolist()
    return wraps, [_messages(records, n, is_batch=is_batch[n]) for n in range(len(records))]


def _messages(records: RecordHeaders, number: int, *, is_batch: bool) -> list[int] | str:
    if not is_batch:
        return [int(records.starts[number])]
    if records.sys_flags[number] & COMPRESSED:
        return PACKED
    start = int(records.body_starts[number])
    return _starts(records.buffer.data, start, start + int(records.body_lengths[number]))


def _starts(data: memoryview, at: int, end: int) -> list[int] | str:
    starts: list[int] = []
    while at < end:
        if end - at < LEAST_CLIENT_BYTES:
            return NOT_FILLED
        total, body = CLIENT_LENGTHS.unpack_from(data, at)
        if not LEAST_CLIENT_BYTES + body <= total <= end - at or body < 0:
            return NOT_FILLED
        properties = SHORT_LENGTH.unpack_from(data, at + CLIENT_HEAD.itemsize + body)[0]
        if properties < 0 or LEAST_CLIENT_BYTES + body + properties != total:
            return NOT_FILLED
        if len(starts) == MAX_BATCH_MESSAGES:
            return TOO_MANY
        starts.append(at)
        at += total
    return starts


def _build(
    records: RecordHeaders, batches: Mask, owners: Int64s, places: Int64s, queue_offsets: Int64s
) -> MessageHeaders:
    """Return a record for each message at ``places``: of ``batches``, a new one around it."""
    wraps = batches[owners]
    lengths = _at(records.buffer, places, wraps, "body_length")
    totals = _at(records.buffer, places, wraps, "total_size")
    bodies = places + CLIENT_HEAD.itemsize
    tails = np.where(wraps, totals - CLIENT_HEAD.itemsize - lengths, 0)
    heads, topics = _around(records, batches)
    parts = (
        heads.take(pa.array(owners)),
        slices(records.buffer, bodies, lengths),
        topics.take(pa.array(owners)),
        _wider_lengths(records, batches).take(pa.array(owners)),
        slices(records.buffer, bodies + lengths, tails),
    )
    _, edges, data = pc.binary_join_element_wise(*parts, b"").buffers()
    ends = np.frombuffer(edges, np.int32)[: len(owners) + 1].astype(np.int64)
    starts, sizes = ends[:-1], np.diff(ends)
    buffer = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
    changed = RecordHeaders(buffer, starts[wraps], sizes[wraps])
    flags = _at(records.buffer, places, wraps, "flag")[wraps]
    values = {"flag": flags, "body_length": lengths[wraps], "queue_offset": queue_offsets[wraps]}
    values |= dict.fromkeys(_NOT_IN_CLIENT, np.zeros(len(flags), np.int64))
    _write(changed, values)
    return MessageHeaders(buffer, starts, sizes, records, owners)


def _around(records: RecordHeaders, batches: Mask) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return what lies before the body of each record, and its topic; all of one that is no batch.

    In the second all that is between body and properties.
    """
    before = np.where(batches, records.body_starts - records.starts, records.sizes)
    topics = records.body_starts + records.body_lengths
    ends = records.topic_starts + records.topic_lengths
    return (
        slices(records.buffer, records.starts, before),
        slices(records.buffer, topics, np.where(batches, ends - topics, 0)),
    )


def _wider_lengths(records: RecordHeaders, batches: Mask) -> pa.BinaryArray:
    """Return the zeros that make a client's length of properties as wide as the record has it."""
    own = records.properties_starts - records.topic_starts - records.topic_lengths
    more = np.where(batches, own - SHORT_LENGTH.size, 0)
    kinds, which = np.unique(more, return_inverse=True)
    return pa.array([bytes(int(count)) for count in kinds], pa.binary()).take(pa.array(which))


def _write(headers: RecordHeaders, values: dict[str, Int64s]) -> None:
    if not len(headers):
        return
    assert HEADER.fields is not None
    for name, each in values.items():
        window = sliding(headers.buffer, HEADER.fields[name][0])
        window[headers.position(name)] = each


def _at(buffer: Bytes, places: Int64s, chosen: Mask, name: str) -> Int64s:
    """Return a field of the client messages at the chosen places; 0 elsewhere."""
    assert CLIENT_HEAD.fields is not None
    dtype, position = CLIENT_HEAD.fields[name][:2]
    found = np.zeros(len(places), np.int64)
    found[chosen] = sliding(buffer, dtype)[places[chosen] + position]
    return found

"""Tags: how many messages of each queue have which tag.

The tag is read from each record, for hashes collide; of a record larger than a page the body is
left out. A queue may have as many tags as messages, so a pass over it keeps at most
``_MAX_KEYS`` of them: where there are more, the tags are divided by their hash, and each share
gets a pass of its own.

Reference: ExpressionMessageFilter (hash, then tag); MessageExtBrokerInner#tagsString2tagsCode.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import InvalidOptionError, shown
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.format.hashing import tags_code
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.read.heads import NO_TIMESTAMP, store_timestamps, tags
from mqstore.read.plan import QueueSlice
from mqstore.read.tags import TagFilter, parse_tags
from mqstore.read.units import Chunk, chunks
from mqstore.tables.columns import BATCH_ROWS, BROKER_NAME, US, Columns, Row, batch, schema

COLUMNS: Final[Columns] = (
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("tag", pa.string(), True, "property TAGS; null: none, or its record cannot be read"),
    ("tagsCode", pa.int64(), False, "hash of the tag; 0 for none"),
    ("messageCount", pa.int64(), False, "messages with it"),
    ("bytes", pa.int64(), False, "bytes of their records"),
    ("firstStoreTimestamp", TIMESTAMP, True, "of the first of them in the queue"),
    ("lastStoreTimestamp", TIMESTAMP, True, "of the last of them in the queue"),
    BROKER_NAME,
)
SCHEMA: Final = schema(COLUMNS)

_MAX_KEYS: Final = 200_000
_MAX_CHARS: Final = 32 << 20
_TASK_MESSAGES: Final = 500_000
_QUEUE_MESSAGES: Final = 500  # what opening a queue costs, in messages
_INT32: Final = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class TagsPart:
    """Queues whose tags are counted; ``tags`` is a tag expression. Pickles into a task."""

    slices: tuple[QueueSlice, ...]
    tags: str = "*"
    max_keys: int = _MAX_KEYS

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each tag of each queue, tags in the order of their first message."""
        timed = not {"firstStoreTimestamp", "lastStoreTimestamp"}.isdisjoint(columns)
        wanted = parse_tags(self.tags)
        for piece in self.slices:
            for counts in _passes(piece, wanted, self.max_keys):
                yield from counts.batches(piece, timed=timed)


def plan(slices: Sequence[QueueSlice], expression: str) -> list[TagsPart]:
    """Return the parts: a queue is in one of them, small queues share one."""
    parts: list[list[QueueSlice]] = [[]]
    cost = 0
    for piece in slices:
        cost += piece.end - piece.start + _QUEUE_MESSAGES
        parts[-1].append(piece)
        if cost >= _TASK_MESSAGES:
            parts.append([])
            cost = 0
    return [TagsPart(tuple(part), expression) for part in parts if part]


def _passes(piece: QueueSlice, wanted: TagFilter | None, max_keys: int) -> Iterator["_Counts"]:
    """Yield the counts of each share of the tags: the messages whose code is ``rest`` mod N."""
    shares = [(1, 0)]
    while shares:
        modulus, rest = shares.pop()
        try:
            counts = _count(piece, wanted, (modulus, rest), max_keys)
        except FileNotFoundError:
            # A running broker deleted expired files: what is left is listed anew.
            counts = _count(piece, wanted, (modulus, rest), max_keys)
        if not counts.is_over(max_keys):
            yield counts
        elif counts.is_divisible and modulus < 2**32:
            shares += [(2 * modulus, rest + modulus), (2 * modulus, rest)]
        else:
            raise InvalidOptionError(
                "table",
                "tags",
                f"queue {piece.queue_id} of {shown(piece.topic)} has more than {max_keys:,} tags "
                "that no hash tells apart: read fewer messages (startingOffsets, endingOffsets)",
            )


def _count(
    piece: QueueSlice, wanted: TagFilter | None, share: tuple[int, int], max_keys: int
) -> "_Counts":
    """Return the counts of one share of the tags; not all of them if there are too many."""
    queue = ConsumeQueue(piece.root, piece.topic, piece.queue_id)
    counts = _Counts(piece.topic)
    with CommitLog(piece.commit_log) as log:
        for chunk in chunks(queue, piece.start, piece.end):
            # What expired since this was planned is not there any more.
            rows = np.flatnonzero((chunk.sizes > 0) & (chunk.physical_offsets >= log.low))
            if wanted is not None:
                rows = rows[wanted.may_match(piece.topic, chunk.tags_codes[rows])]
            rows = rows[chunk.tags_codes[rows] % share[0] == share[1]]
            if len(rows):
                counts.add(log, chunk, rows)
            if counts.is_over(max_keys):
                break
    if wanted is not None:
        counts.keep(wanted.tags)
    return counts


class _Counts:
    """Messages by (tag, tagsCode), each with the units of its first and its last message."""

    def __init__(self, topic: str) -> None:
        self._has_hashes = topic != SCHEDULE_TOPIC  # There, units hold times of delivery.
        self._numbers: dict[tuple[str | None, int], int] = {}
        # count, bytes, place and size of the first, place and size of the last
        self._table = np.zeros((6, 0), np.int64)
        self._chars = 0
        self.is_divisible = self._has_hashes

    def is_over(self, max_keys: int) -> bool:
        """Tell whether these are more tags than are kept in one pass."""
        return len(self._numbers) > max_keys or self._chars > _MAX_CHARS

    def add(self, log: CommitLog, chunk: Chunk, rows: Int64s) -> None:
        """Count those rows of the chunk, at least one."""
        places, sizes = chunk.physical_offsets[rows], chunk.sizes[rows]
        names, number = _names(log, places, sizes)
        codes = self._codes(chunk.tags_codes[rows], names, number)
        distinct, code_number = np.unique(codes, return_inverse=True)
        pairs = code_number * len(names) + number
        used, first, which = np.unique(pairs, return_index=True, return_inverse=True)
        last = np.zeros(len(used), np.int64)
        last[which] = np.arange(len(pairs))  # Of several assignments the last stands.
        keys = np.zeros(len(used), np.int64)
        for position in np.argsort(first).tolist():
            code, name = divmod(int(used[position]), len(names))
            keys[position] = self._number(names[name], int(distinct[code]))
        new = keys >= self._table.shape[1]
        self._widen()
        self._table[0, keys] += np.bincount(which)
        # Sums of floats are exact here: a chunk's bytes are far below 2**53.
        self._table[1, keys] += np.bincount(which, weights=sizes).astype(np.int64)
        self._table[2:4, keys[new]] = places[first[new]], sizes[first[new]]
        self._table[4:6, keys] = places[last], sizes[last]

    def keep(self, names: frozenset[str]) -> None:
        """Forget all tags but these."""
        kept = [(key, n) for key, n in self._numbers.items() if key[0] in names]
        self._table = self._table[:, [n for _, n in kept]]
        self._numbers = {key: n for n, (key, _) in enumerate(kept)}

    def batches(self, piece: QueueSlice, *, timed: bool) -> Iterator[pa.RecordBatch]:
        """Yield a row for each tag; without times unless ``timed``."""
        keys = list(self._numbers)
        for start in range(0, len(keys), BATCH_ROWS):
            part = keys[start : start + BATCH_ROWS]
            table = self._table[:, start : start + len(part)]
            first, last = (_times(piece, *table[at : at + 2], timed=timed) for at in (2, 4))
            rows: list[Row] = [
                (piece.topic, piece.queue_id, *key, *told, piece.broker_name)
                for key, told in zip(
                    part,
                    zip(table[0].tolist(), table[1].tolist(), first, last, strict=True),
                    strict=True,
                )
            ]
            yield batch(rows, SCHEMA)

    def _codes(self, codes: Int64s, names: list[str | None], number: Int64s) -> Int64s:
        """Return the hash of each row: of its unit, or of its tag where the unit has none."""
        hashed = (codes >= _INT32.min) & (codes <= _INT32.max) & self._has_hashes
        if hashed.all():
            return codes
        self.is_divisible = False
        own = np.array([tags_code(name) if name else 0 for name in names], np.int64)
        return np.where(hashed, codes, own[number])

    def _number(self, name: str | None, code: int) -> int:
        number = self._numbers.setdefault((name, code), len(self._numbers))
        self._chars += len(name or "") if number == len(self._numbers) - 1 else 0
        return number

    def _widen(self) -> None:
        more = len(self._numbers) - self._table.shape[1]
        self._table = np.pad(self._table, ((0, 0), (0, more)))


def _names(log: CommitLog, places: Int64s, sizes: Int64s) -> tuple[list[str | None], Int64s]:
    """Return the tags of those records and which one each has."""
    numbers: dict[str | None, int] = {None: 0}
    number = np.zeros(len(places), np.int64)
    for part, found in tags(log, places, sizes):
        encoded = found.dictionary_encode(null_encoding="encode")
        of = [numbers.setdefault(name, len(numbers)) for name in encoded.dictionary.to_pylist()]
        number[part] = np.array(of, np.int64)[encoded.indices.to_numpy()]
    return list(numbers), number


def _times(piece: QueueSlice, places: Int64s, sizes: Int64s, *, timed: bool) -> list[int | None]:
    if not timed:
        return [None] * len(places)
    with CommitLog(piece.commit_log) as log:
        try:
            found = store_timestamps(log, places, sizes).tolist()
        except FileNotFoundError:  # They expired meanwhile.
            return [None] * len(places)
    return [None if ms == NO_TIMESTAMP else ms * US for ms in found]

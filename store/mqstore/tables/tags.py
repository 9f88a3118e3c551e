"""Tags: how many messages of each queue have which tag.

The tag is read from each record, for hashes collide; of a record larger than a page the body is
left out. A queue may have as many tags as messages, so a pass over it keeps at most
``_MAX_KEYS`` of them: where there are more, the tags are divided by their hash, and each share
gets a pass of its own.

Reference: ExpressionMessageFilter (hash, then tag); MessageExtBrokerInner#tagsString2tagsCode.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import InvalidOptionError, shown
from mqstore.format.arrays import Int64s, Span
from mqstore.format.hashing import tags_code
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.read.source import QueueSlice
from mqstore.read.tags import TagFilter, are_hashes, parse_tags
from mqstore.read.units import UnitBatch, units_at
from mqstore.tables.columns import (
    BROKER_NAME,
    TABLE_BATCH_ROWS,
    Columns,
    TableRow,
    batch,
    known_us,
    packed,
    schema,
)
from mqstore.tables.owners import OF_TOPIC
from mqstore.tables.table import BY_QUEUE, BY_RANGE, FROM_LOG, Table

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
    shares = packed(slices, lambda p: p.end - p.start + _QUEUE_MESSAGES, _TASK_MESSAGES)
    return [TagsPart(share, expression) for share in shares]


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


def _count(piece: QueueSlice, wanted: TagFilter | None, share: Span, max_keys: int) -> "_Counts":
    """Return the counts of one share of the tags; not all of them if there are too many."""
    counts = _Counts(piece.topic)
    queue = (piece.topic, piece.queue_id), piece.start, piece.end
    with closing(piece.origin.records()) as source:
        for units, found in source.tagged(
            queue, wanted, lambda codes: codes % share[0] == share[1]
        ):
            counts.add(units, found)
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
        # count, bytes; queue offset, place and size of the first and of the last
        self._table = np.zeros((8, 0), np.int64)
        self._chars = 0
        self.is_divisible = self._has_hashes

    def is_over(self, max_keys: int) -> bool:
        """Tell whether these are more tags than are kept in one pass."""
        return len(self._numbers) > max_keys or self._chars > _MAX_CHARS

    def add(self, units: UnitBatch, tags: pa.StringArray) -> None:
        """Count the messages of units, at least one, with those tags."""
        names, number = _names(tags)
        codes = self._codes(units.tags_codes, names, number)
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
        self._table[1, keys] += np.bincount(which, weights=units.record_bytes).astype(np.int64)
        where = np.array([units.positions.queue_offsets, units.physical_offsets, units.sizes])
        self._table[2:5, keys[new]] = where[:, first[new]]
        self._table[5:8, keys] = where[:, last]

    def keep(self, names: frozenset[str]) -> None:
        """Forget all tags but these."""
        kept = [(key, n) for key, n in self._numbers.items() if key[0] in names]
        self._table = self._table[:, [n for _, n in kept]]
        self._numbers = {key: n for n, (key, _) in enumerate(kept)}

    def batches(self, piece: QueueSlice, *, timed: bool) -> Iterator[pa.RecordBatch]:
        """Yield a row for each tag; without times unless ``timed``."""
        keys = list(self._numbers)
        for start in range(0, len(keys), TABLE_BATCH_ROWS):
            part = keys[start : start + TABLE_BATCH_ROWS]
            table = self._table[:, start : start + len(part)]
            first, last = (_times(piece, table[at : at + 3], timed=timed) for at in (2, 5))
            rows: list[TableRow] = [
                (piece.topic, piece.queue_id, *key, *amounts, piece.broker_name)
                for key, amounts in zip(
                    part,
                    zip(table[0].tolist(), table[1].tolist(), first, last, strict=True),
                    strict=True,
                )
            ]
            yield batch(rows, SCHEMA)

    def _codes(self, codes: Int64s, names: list[str | None], number: Int64s) -> Int64s:
        """Return the hash of each row: of its unit, or of its tag where the unit has none."""
        hashed = are_hashes(codes) & self._has_hashes
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


def _names(tags: pa.StringArray) -> tuple[list[str | None], Int64s]:
    """Return the different tags and which one each message has."""
    encoded = tags.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _times(piece: QueueSlice, where: Int64s, *, timed: bool) -> list[int | None]:
    """Return the storeTimestamps in µs at those queue offsets, places and sizes: int64[3, n]."""
    if not timed:
        return [None] * where.shape[1]
    units = units_at((piece.topic, piece.queue_id, piece.broker_name), *where)
    with closing(piece.origin.records()) as source:
        try:
            return known_us(source.store_timestamps(units).tolist())
        except FileNotFoundError:  # They expired meanwhile.
            return [None] * len(units)


TAG_COUNTS: Final = Table(
    "tags",
    (*COLUMNS, *OF_TOPIC),
    lambda request: plan(request.slices(), request.tags),
    options=BY_RANGE | BY_QUEUE | FROM_LOG,
    owner="topic",
)

"""Records as a walk over the CommitLog finds them, and what a broker derives from each.

A broker dispatches every record twice: to ConsumeQueues, its own and those of light queues it
names, and to the IndexFile. What it derives follows from the record alone.

Reference: CommitLog#checkMessageAndReturnSize (tagsCode, keys), IndexService#buildIndex,
CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#multiDispatchLmqQueue, MultiDispatchUtils.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.decode import topics_on_disk
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.hashing import hash_strings, hash_text, key_hashes, tags_codes
from mqstore.codec.picked import PickedProperties
from mqstore.format import names
from mqstore.format.arrays import Int32s, Int64s, Mask, TopicQueue
from mqstore.format.config import DELAY_LEVELS_MS
from mqstore.format.index_file import TAG_KEY_PREFIX, TOPIC_KEY_SEPARATOR
from mqstore.format.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    TAGS,
    UNIQ_KEY,
)
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

_DISPATCHED_BY: Final = (TAGS, KEYS, UNIQ_KEY, DELAY, MULTI_DISPATCH, MULTI_QUEUE_OFFSET)
_DELAYS_MS: Final = np.array([0, *DELAY_LEVELS_MS], np.int64)
_COMMA: Final = ","
_LENGTH_DIGITS: Final = 18  # More than any queue offset has, and still an int64.
# MultiDispatchUtils#isNeedHandleMultiDispatch: records of these topics have no light queues.
_NEVER_LIGHT: Final = (names.RETRY_PREFIX, "rmq_sys_")


@dataclass(frozen=True)
class DispatchRecords:
    """Sound records of one chunk, in log order."""

    headers: RecordHeaders
    physical_offsets: Int64s

    def __len__(self) -> int:
        return len(self.physical_offsets)

    def first(self, count: int) -> "DispatchRecords":
        """Return the first ``count`` records only."""
        return DispatchRecords(self.headers.take(np.arange(count)), self.physical_offsets[:count])

    @cached_property
    def topic_names(self) -> list[str]:
        """The topics there are: what ``topic_codes`` are indices of."""
        return [str(name) for name in self._topics.dictionary.to_pylist()]

    @cached_property
    def topic_codes(self) -> Int64s:
        """Which of ``topic_names`` each record is of."""
        codes: Int64s = self._topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes

    @cached_property
    def properties(self) -> PickedProperties:
        """Those properties of each record that a broker dispatches by."""
        headers = self.headers
        places = headers.properties_starts, headers.properties_lengths
        return PickedProperties(headers.buffer, *places, _DISPATCHED_BY)

    @cached_property
    def sys_flags(self) -> Int32s:
        """SYSFLAG of each record."""
        return self.headers.sys_flags

    @cached_property
    def transactions(self) -> Int32s:
        """Transaction bits of each record."""
        return self.sys_flags & TRANSACTION_MASK

    @cached_property
    def in_queue(self) -> Mask:
        """Whether a ConsumeQueue must have the record."""
        bits = self.transactions
        found: Mask = (bits != TRANSACTION_PREPARED) & (bits != TRANSACTION_ROLLBACK)
        return found

    @cached_property
    def stated_offsets(self) -> Int64s:
        """PHYSICALOFFSET of each record: where it says that it lies."""
        return self.headers.field("physical_offset").astype(np.int64)

    @cached_property
    def store_timestamps_ms(self) -> Int64s:
        """Store timestamp of each record."""
        return self.headers.field("store_timestamp_ms").astype(np.int64)

    @cached_property
    def queue_ids(self) -> Int64s:
        """TopicQueue id of each record."""
        return self.headers.field("queue_id").astype(np.int64)

    @cached_property
    def queue_offsets(self) -> Int64s:
        """TopicQueue offset of each record."""
        return self.headers.field("queue_offset").astype(np.int64)

    @cached_property
    def tags_codes(self) -> tuple[Int64s, Mask]:
        """The tagsCode of each record, and whether every broker would say the same.

        Delayed messages have their delivery time, which depends on the broker's own levels.
        """
        codes = tags_codes(self.properties.column(TAGS))
        if names.SCHEDULE_TOPIC not in self.topic_names:
            return codes, np.ones(len(codes), np.bool_)
        waiting = self.topic_codes == self.topic_names.index(names.SCHEDULE_TOPIC)
        levels = _levels(self.properties.column(DELAY))
        delayed = waiting & (levels > 0)
        due = deliver_timestamps_ms(self.store_timestamps_ms, levels)
        return np.where(delayed, due, codes), ~delayed

    def queues_of(self, rows: Int64s) -> tuple[list[TopicQueue], Int64s]:
        """Return the queues that the records of ``rows`` name, and which of them each row does."""
        joined = self.topic_codes[rows] << 32 | (self.queue_ids[rows] & 0xFFFFFFFF)
        values, codes = np.unique(joined, return_inverse=True)
        ids = (values & 0xFFFFFFFF).astype(np.int32).tolist()
        topics = [self.topic_names[code] for code in (values >> 32).tolist()]
        return list(zip(topics, ids, strict=True)), codes.astype(np.int64)

    def light_queues(self) -> Iterator[tuple[int, TopicQueue, int]]:
        """Yield (row, queue, queue offset) for each light queue that a record is also put into.

        The broker wrote the offsets into the record when it took it; without them, or with
        another number of them, it dispatches to none.
        """
        queues = self.properties.column(MULTI_DISPATCH)
        numbers = self.properties.column(MULTI_QUEUE_OFFSET)
        both = pc.and_(queues.is_valid(), numbers.is_valid()).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(both & self.in_queue).tolist():
            topic = self.topic_names[int(self.topic_codes[row])]
            if topic.startswith(_NEVER_LIGHT) or topic == names.SCHEDULE_TOPIC:
                continue
            named = queues[row].as_py().split(_COMMA)
            numbered = numbers[row].as_py().split(_COMMA)
            if len(named) != len(numbered):
                continue
            for name, number in zip(named, numbered, strict=True):
                if number.isascii() and number.isdecimal() and len(number) <= _LENGTH_DIGITS:
                    light = name.startswith(names.LMQ_PREFIX)
                    yield row, (name, 0 if light else int(self.queue_ids[row])), int(number)

    @cached_property
    def _topics(self) -> pa.DictionaryArray:
        """Topic of each record, as it says itself."""
        return topics_on_disk(self.headers).dictionary_encode()


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """The keys of n records, in the order in which a broker puts them.

    ``rows`` ascend; ``is_tag`` marks what only brokers since 5.5.0 put.
    """

    rows: Int64s
    hashes: Int32s
    is_tag: Mask

    def take(self, kept: Mask) -> "RecordKeys":
        """Return those keys only."""
        return RecordKeys(self.rows[kept], self.hashes[kept], self.is_tag[kept])


def record_keys(records: DispatchRecords) -> RecordKeys:
    """Return the keys of the records: UNIQ_KEY, each of KEYS, ``T#`` and TAGS.

    Messages that were rolled back have none.
    """
    known = records.topic_names
    indexed = records.transactions != TRANSACTION_ROLLBACK
    plain = np.array([hash_text(f"{n}{TOPIC_KEY_SEPARATOR}") for n in known], np.uint32)
    tagged = np.array(
        [hash_text(f"{n}{TOPIC_KEY_SEPARATOR}{TAG_KEY_PREFIX}") for n in known], np.uint32
    )
    owners, hashes, tags = [], [], []
    for name, prefixes in ((UNIQ_KEY, plain), (KEYS, plain), (TAGS, tagged)):
        rows, strings = _words(records.properties.column(name), split=name == KEYS)
        kept = indexed[rows]
        rows, strings = rows[kept], strings.filter(pa.array(kept))
        hashed = hash_strings(strings).after(prefixes[records.topic_codes[rows]]).values
        owners.append(rows)
        hashes.append(key_hashes(hashed))
        tags.append(np.full(len(rows), name == TAGS))
    joined = np.concatenate(owners)
    order = np.argsort(joined, kind="stable")
    return RecordKeys(joined[order], np.concatenate(hashes)[order], np.concatenate(tags)[order])


def deliver_timestamps_ms(store_timestamps_ms: Int64s, levels: Int64s) -> Int64s:
    """Return when messages of these delay levels are due: the tagsCode of a delayed message.

    As the broker does by default: a level above the last one counts as the last, and 0 is no delay.
    Reference: ScheduleMessageService#computeDeliverTimestamp.
    """
    return store_timestamps_ms + _DELAYS_MS[np.minimum(levels, len(DELAY_LEVELS_MS))]


def _words(column: pa.StringArray, *, split: bool) -> tuple[Int64s, pa.StringArray]:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    present = column.drop_null()
    if split:
        lists = pc.split_pattern(present, KEY_SEPARATOR)
        rows = rows[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
        present = lists.flatten()
        filled = pc.greater(pc.binary_length(present), 0)
        rows, present = rows[filled.to_numpy(zero_copy_only=False)], present.filter(filled)
    return rows, present


def _levels(delays: pa.StringArray) -> Int64s:
    digits = pc.match_substring_regex(delays, "^[0-9]{1,9}$").fill_null(False)
    numbers = pc.if_else(digits, delays, "0").cast(pa.int64())
    found: Int64s = numbers.to_numpy(zero_copy_only=False)
    return found

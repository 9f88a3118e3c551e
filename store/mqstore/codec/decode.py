"""Checked records to one RecordBatch: only the columns that were asked for are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec import compute as pc
from mqstore.codec.bodies import Plain, body_column, compression_names
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.hosts import host_text, offset_msg_id
from mqstore.codec.properties import PropertyBlocks
from mqstore.codec.schema import FIRST_MS, LAST_MS, TIMESTAMP, message_schema
from mqstore.codec.slices import as_text, slices
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_STATES

LOG_APPEND_TIME: Final = 1
"""Kafka's timestampType of every message."""


@dataclass(frozen=True, slots=True)
class QueuePositions:
    """Where n rows come from: parallel arrays, and the queues they name by position.

    ``queues[queue[i]]`` is (topic, queueId, brokerName) of row i; ``queue_offsets[i]`` and
    ``tags_codes[i]`` are its place and its hash in that ConsumeQueue.
    """

    queues: Sequence[tuple[str, int, str]]
    queue: Int64s
    queue_offsets: Int64s
    tags_codes: Int64s

    def take(self, rows: NDArray[Any] | slice) -> "QueuePositions":
        """Return those rows only."""
        return QueuePositions(
            self.queues, self.queue[rows], self.queue_offsets[rows], self.tags_codes[rows]
        )


@dataclass(frozen=True)
class Records:
    """n checked records: their headers, where they come from, what was found out about them."""

    headers: RecordHeaders
    source: QueuePositions
    plain: Plain | None = None
    broken: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))

    @cached_property
    def properties(self) -> PropertyBlocks:
        """All property blocks, parsed once for all columns that need them."""
        return PropertyBlocks.of(self.headers)

    def per_queue(self, item: int, kind: pa.DataType) -> pa.Array:
        """Return a column of what the queue of each row says: topic, queueId or brokerName."""
        values = pa.array([queue[item] for queue in self.source.queues], kind)
        return values.take(pa.array(self.source.queue))


def decode(records: Records, columns: Sequence[str]) -> pa.RecordBatch:
    """Return those columns of ``records``, with the schema ``message_schema(columns)``."""
    arrays = [COLUMN_OF[name](records) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=message_schema(columns))


def timestamps(milliseconds: Int64s) -> pa.Array:
    """Return ms as timestamp[us, UTC]; what lies outside the years 1-9999 stands at their edge."""
    return pa.array(np.clip(milliseconds, FIRST_MS, LAST_MS) * 1000).cast(TIMESTAMP)


def transaction_states(sys_flags: NDArray[np.int32]) -> pa.StringArray:
    """Return the state that the bits of each SYSFLAG name; null for none."""
    names = pa.array([TRANSACTION_STATES.get(bits) for bits in range(TRANSACTION_MASK + 1)])
    return names.take(pa.array(sys_flags & TRANSACTION_MASK))


def topics_on_disk(headers: RecordHeaders) -> pa.StringArray:
    """Return the topic as each record itself says."""
    return as_text(slices(headers.buffer, headers.topic_starts, headers.topic_lengths))


def _header(name: str) -> "Callable[[Records], pa.Array]":
    return lambda records: pa.array(records.headers.field(name))


def _time(name: str) -> "Callable[[Records], pa.Array]":
    return lambda records: timestamps(records.headers.field(name))


def _property(name: str) -> "Callable[[Records], pa.Array]":
    return lambda records: records.properties.column(name)


def _host(which: str) -> "Callable[[Records], pa.Array]":
    return lambda records: host_text(records.headers, which)


def _topic(records: Records) -> pa.Array:
    return records.per_queue(0, pa.string())


def _queue_id(records: Records) -> pa.Array:
    return records.per_queue(1, pa.int32())


def _broker_name(records: Records) -> pa.Array:
    return records.per_queue(2, pa.string())


def _queue_offset(records: Records) -> pa.Array:
    return pa.array(records.source.queue_offsets)


def _body(records: Records) -> pa.Array:
    return body_column(records.headers, records.plain)


def _map(records: Records) -> pa.Array:
    return records.properties.as_map()


def _headers(records: Records) -> pa.Array:
    return records.properties.as_headers()


def _msg_id(records: Records) -> pa.Array:
    unique = records.properties.column(UNIQ_KEY)
    return pc.coalesce(unique, offset_msg_id(records.headers)) if unique.null_count else unique


def _offset_msg_id(records: Records) -> pa.Array:
    return offset_msg_id(records.headers)


def _compression(records: Records) -> pa.Array:
    return compression_names(records.headers.sys_flags)


def _transaction_state(records: Records) -> pa.Array:
    return transaction_states(records.headers.sys_flags)


def _tags_code(records: Records) -> pa.Array:
    return pa.array(records.source.tags_codes)


def _crc_ok(records: Records) -> pa.Array:
    return pa.array(~records.broken)


def _key(records: Records) -> pa.Array:
    return records.properties.column(KEYS).cast(pa.binary())


def _timestamp_type(records: Records) -> pa.Array:
    return pa.array(np.full(len(records.headers), LOG_APPEND_TIME, np.int32))


COLUMN_OF: Final[dict[str, Callable[[Records], pa.Array]]] = {
    "topic": _topic,
    "queueId": _queue_id,
    "queueOffset": _queue_offset,
    "body": _body,
    "storeTimestamp": _time("store_timestamp_ms"),
    "tags": _property(TAGS),
    "keys": _property(KEYS),
    "properties": _map,
    "bornTimestamp": _time("born_timestamp_ms"),
    "msgId": _msg_id,
    "brokerName": _broker_name,
    "offsetMsgId": _offset_msg_id,
    "physicalOffset": _header("physical_offset"),
    "storeSize": _header("total_size"),
    "bornHost": _host("born"),
    "storeHost": _host("store"),
    "flag": _header("flag"),
    "sysFlag": _header("sys_flag"),
    "compression": _compression,
    "transactionState": _transaction_state,
    "reconsumeTimes": _header("reconsume_times"),
    "preparedTransactionOffset": _header("prepared_transaction_offset"),
    "bodyCRC": _header("body_crc"),
    "tagsCode": _tags_code,
    "shardingKey": _property(SHARDING_KEY),
    "crcOk": _crc_ok,
    "key": _key,
    "value": _body,
    "partition": _queue_id,
    "offset": _queue_offset,
    "timestamp": _time("store_timestamp_ms"),
    "timestampType": _timestamp_type,
    "headers": _headers,
}

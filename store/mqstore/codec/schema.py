"""The columns of messages: name, Arrow type, profile, meaning. The one place where disk meets user.

On disk and in store/ names are snake_case; columns are RocketMQ's camelCase. Timestamps are
microseconds, UTC. A nullable column is null where the record has no such property or value.

Reference: org.apache.rocketmq.common.message.MessageExt; KafkaRecordToRowConverter for the
``kafka`` profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import pyarrow as pa

from mqstore.errors import InvalidSchemaError

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
# Years 1 to 9999, in ms: outside, neither Python nor Spark can show a timestamp.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
PROPERTIES: Final = pa.map_(pa.string(), pa.string())
HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column a read can give; ``profile`` is the smallest profile that has it."""

    name: str
    type: pa.DataType
    nullable: bool
    profile: str
    meaning: str


COLUMNS: Final = (
    Column("topic", pa.string(), False, "minimal", "topic of the queue"),
    Column("queueId", pa.int32(), False, "minimal", "queue of the topic"),
    Column("queueOffset", pa.int64(), False, "minimal", "index of the message in its queue"),
    Column("body", pa.binary(), False, "minimal", "body, decompressed; empty if there is none"),
    Column("storeTimestamp", TIMESTAMP, False, "minimal", "the broker's clock at the append"),
    Column("tags", pa.string(), True, "standard", "property TAGS"),
    Column("keys", pa.string(), True, "standard", "property KEYS, as stored: space separated"),
    Column("properties", PROPERTIES, False, "standard", "all properties of the record"),
    Column("bornTimestamp", TIMESTAMP, False, "standard", "the producer's clock at the send"),
    Column("msgId", pa.string(), False, "standard", "property UNIQ_KEY, else offsetMsgId"),
    Column("brokerName", pa.string(), True, "standard", "name of the store's broker"),
    Column("offsetMsgId", pa.string(), False, "full", "hex of storeHost and physicalOffset"),
    Column("physicalOffset", pa.int64(), False, "full", "byte of the CommitLog"),
    Column("storeSize", pa.int32(), False, "full", "bytes of the record"),
    Column("bornHost", pa.string(), False, "full", "producer's ip:port, [ip]:port for IPv6"),
    Column("storeHost", pa.string(), False, "full", "broker's ip:port, [ip]:port for IPv6"),
    Column("flag", pa.int32(), False, "full", "the producer's flag"),
    Column("sysFlag", pa.int32(), False, "full", "bits as on disk"),
    Column("compression", pa.string(), True, "full", "zlib, lz4 or zstd; null if stored plain"),
    Column("transactionState", pa.string(), True, "full", "PREPARED, COMMIT or ROLLBACK"),
    Column("reconsumeTimes", pa.int32(), False, "full", "failed deliveries before this one"),
    Column("preparedTransactionOffset", pa.int64(), False, "full", "byte of the half message"),
    Column("bodyCRC", pa.int32(), False, "full", "CRC-32 of the stored body, as on disk"),
    Column("tagsCode", pa.int64(), False, "full", "hash of tags in the ConsumeQueue"),
    Column("shardingKey", pa.string(), True, "full", "property __SHARDINGKEY"),
    Column("crcOk", pa.bool_(), False, "full", "the checksums hold and the body decompresses"),
)
KAFKA_COLUMNS: Final = (
    Column("key", pa.binary(), True, "kafka", "keys, as bytes"),
    Column("value", pa.binary(), True, "kafka", "body"),
    Column("topic", pa.string(), True, "kafka", "topic"),
    Column("partition", pa.int32(), True, "kafka", "queueId"),
    Column("offset", pa.int64(), True, "kafka", "queueOffset"),
    Column("timestamp", TIMESTAMP, True, "kafka", "storeTimestamp"),
    Column("timestampType", pa.int32(), True, "kafka", "1: log append time"),
    Column("headers", HEADERS, True, "kafka", "properties, values as bytes"),
)
BY_NAME: Final = {column.name: column for column in (*KAFKA_COLUMNS, *COLUMNS)}

_MINIMAL: Final = tuple(c.name for c in COLUMNS if c.profile == "minimal")
_STANDARD: Final = tuple(c.name for c in COLUMNS if c.profile in {"minimal", "standard"})
PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "minimal": _MINIMAL,
    "standard": _STANDARD,
    "full": tuple(c.name for c in COLUMNS),
    "kafka": tuple(c.name for c in KAFKA_COLUMNS),
}


def resolve_columns(text: str) -> tuple[str, ...]:
    """Return the column names of a profile name or of a comma list of columns.

    Raises InvalidSchemaError for an unknown or repeated name, with the nearest known one.
    """
    profile = PROFILES.get(text.strip().lower())
    return profile or check_columns([name.strip() for name in text.split(",")])


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` as they are spelled here (case is not significant), each known and once."""
    known = {name.lower(): name for name in BY_NAME}
    resolved = []
    for name in names:
        column = known.get(name.lower())
        if column is None:
            raise InvalidSchemaError(name, "unknown", _advice(name))
        if column in resolved:
            raise InvalidSchemaError(name, "repeated", "name each column once")
        resolved.append(column)
    return tuple(resolved)


def message_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of those columns, in that order."""
    chosen = (BY_NAME[name] for name in columns)
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in chosen])


def _advice(name: str) -> str:
    near = get_close_matches(name, list(BY_NAME), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}profiles: {', '.join(PROFILES)}; columns: {', '.join(BY_NAME)}"

"""Message properties: ``name 0x01 value 0x02`` repeated, UTF-8, the last 0x02 optional.

Brokers of 4.9.1 to 5.1.4 leave the last separator out, all others write it; readers take
both. Split at 0x02; in each piece the first 0x01 divides name from value; a piece without it,
or with an empty name or value, is dropped; of two equal names the last wins.

Reference: org.apache.rocketmq.common.message.MessageDecoder#string2messageProperties,
#messageProperties2String; MessageConst; MessageAccessor.
"""

from typing import Final

NAME_VALUE_SEPARATOR: Final = 0x01
PROPERTY_SEPARATOR: Final = 0x02
KEY_SEPARATOR: Final = " "  # MessageConst.KEY_SEPARATOR

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"  # of a copy that a 5.5 broker made for a POP group
UNIQ_KEY: Final = "UNIQ_KEY"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANS_OFFSET: Final = "TRANS_OFFSET"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELETE_UNIQ_KEY: Final = "TIMER_DEL_UNIQKEY"
CRC32: Final = "__CRC32#"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"  # light queues, separated by commas
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"  # and their queue offsets
CLUSTER: Final = "CLUSTER"  # brokerClusterName
WRITE_PROPERTY: Final = "MQLOG_WRITE"  # names the exactly-once write of a message
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

# MessageConst.STRING_HASH_SET of 5.5.0: names that Message#putUserProperty refuses. The typed
# columns and options of a write are the only way to set those that a writer may set at all.
RESERVED: Final = frozenset(
    {
        "1ST_POP_TIME",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "INNER_BASE",
        "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET",
        "INNER_NUM",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_ON",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_MSG",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "__CRC32#",
        "__SHARDINGKEY",
        "__transactionId__",
    }
)


def split(block: bytes) -> dict[str, str]:
    """Return the properties of one record, as the broker's decoder does."""
    found: dict[str, str] = {}
    for piece in block.split(bytes([PROPERTY_SEPARATOR])):
        name, separator, value = piece.partition(bytes([NAME_VALUE_SEPARATOR]))
        if separator and name and value:
            found[name.decode(errors="replace")] = value.decode(errors="replace")
    return found


def join(properties: dict[str, str]) -> bytes:
    """Return the block of ``properties``, in their order, with the trailing separator."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()

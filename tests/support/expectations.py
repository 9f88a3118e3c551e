"""What a read must give for a message, column by column, from the oracle alone."""

from typing import Any

import pyarrow as pa

from support import oracle
from support.oracle import Message

CODECS = {0: "zlib", oracle.LZ4: "lz4", oracle.ZSTD: "zstd", oracle.ZLIB: "zlib"}
STATES = {
    0: None,
    oracle.PREPARED: "PREPARED",
    oracle.COMMIT: "COMMIT",
    oracle.ROLLBACK: "ROLLBACK",
}


def row(m: Message, broker: str | None) -> dict[str, Any]:
    """The columns of profile full; timestamps in microseconds."""
    properties = m.properties_map
    compressed = bool(m.sys_flag & oracle.COMPRESSED)
    return {
        "topic": m.topic,
        "queueId": m.queue_id,
        "queueOffset": m.queue_offset,
        "body": oracle.decompress(m.body, m.sys_flag),
        "storeTimestamp": m.store_timestamp_ms * 1000,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "properties": properties,
        "bornTimestamp": m.born_timestamp_ms * 1000,
        "msgId": m.msg_id,
        "brokerName": broker,
        "offsetMsgId": m.offset_msg_id,
        "physicalOffset": m.physical_offset,
        "storeSize": m.size,
        "bornHost": str(m.born_host),
        "storeHost": str(m.store_host),
        "flag": m.flag,
        "sysFlag": m.sys_flag,
        "compression": CODECS[m.sys_flag & 0x700] if compressed else None,
        "transactionState": STATES[m.transaction],
        "reconsumeTimes": m.reconsume_times,
        "preparedTransactionOffset": m.prepared_transaction_offset,
        "bodyCRC": m.crc,
        "tagsCode": oracle.tags_code(m),
        "shardingKey": properties.get("__SHARDINGKEY"),
        "crcOk": True,
    }


def kafka_row(m: Message) -> dict[str, Any]:
    """The columns of profile kafka; headers as a dict, for their order is the record's."""
    full = row(m, None)
    return {
        "key": None if full["keys"] is None else full["keys"].encode(),
        "value": full["body"],
        "topic": m.topic,
        "partition": m.queue_id,
        "offset": m.queue_offset,
        "timestamp": full["storeTimestamp"],
        "timestampType": 1,
        "headers": {name: value.encode() for name, value in full["properties"].items()},
    }


def rows(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows of a batch in the shape of `row` and `kafka_row`."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    table = pa.table(dict(zip(batch.schema.names, plain, strict=True)))
    found = table.to_pylist(maps_as_pydicts="strict")  # a name twice in a map is an error
    for item in found:
        if isinstance(item.get("headers"), list):
            item["headers"] = {pair["key"]: pair["value"] for pair in item["headers"]}
    return found

"""A store read by mqstore, told in the words of the client's dump, so that the two compare."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pyarrow as pa

from broker.harness import Row
from mqstore.codec.schema import PROFILES
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Snapshot, slices_of

COMPRESSED = 0x1


def read(root: Path, snapshot: Snapshot | None = None) -> list[Row]:
    """Every message of a store (system topics too), in the order of topic, queue, offset.

    Keys and values are those of the dump, but for COMPRESSED: see `told`.
    """
    return [as_dumped(row) for row in columns(root, PROFILES["full"], snapshot)]


def columns(root: Path, names: tuple[str, ...], snapshot: Snapshot | None = None) -> list[Row]:
    """Those columns of every message of a store."""
    snapshot = snapshot or take(root)
    slices = slices_of(snapshot)
    settings = ScanSettings(columns=names)
    return [row for batch in scan(slices, settings) for row in rows_of(batch)]


def told(rows: Iterable[Row]) -> list[Row]:
    """Rows of a dump made comparable: the 5.x client clears COMPRESSED when it decompresses."""
    return [row | {"sysFlag": row["sysFlag"] & ~COMPRESSED} for row in rows]


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch; timestamps in microseconds, maps as dicts."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    table = pa.table(dict(zip(batch.schema.names, plain, strict=True)))
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def by_queue(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """Group rows by (topic, queueId), each in the order of its offsets."""
    queues: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        queues[row["topic"], row["queueId"]].append(row)
    for queue in queues.values():
        queue.sort(key=lambda row: int(row["queueOffset"]))
    return dict(queues)


def as_dumped(row: dict[str, Any]) -> Row:
    """Return a row of the full profile in the dump's words, but for COMPRESSED: see `told`."""
    assert row["crcOk"]
    assert (row["compression"] is not None) == bool(row["sysFlag"] & COMPRESSED)
    assert row["tags"] == row["properties"].get("TAGS")
    assert row["keys"] == row["properties"].get("KEYS")
    return {
        "topic": row["topic"],
        "queueId": row["queueId"],
        "queueOffset": row["queueOffset"],
        "physicalOffset": row["physicalOffset"],
        "storeSize": row["storeSize"],
        "flag": row["flag"],
        "sysFlag": row["sysFlag"] & ~COMPRESSED,
        "bodyCRC": row["bodyCRC"],
        "born": row["bornTimestamp"] // 1000,
        "bornHost": _java_host(row["bornHost"]),
        "store": row["storeTimestamp"] // 1000,
        "storeHost": _java_host(row["storeHost"]),
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTxn": row["preparedTransactionOffset"],
        "msgId": row["msgId"],
        "bodySha1": hashlib.sha1(row["body"], usedforsecurity=False).hexdigest(),
        "bodyLen": len(row["body"]),
        "properties": row["properties"],
    }


def _java_host(host: str) -> str:
    """Spell ``ip:port`` as InetSocketAddress#toString does: ``/ip:port``, IPv6 unabridged."""
    if not host.startswith("["):
        return f"/{host}"
    address, _, port = host[1:].rpartition("]:")
    groups = IPv6Address(address).exploded.split(":")
    return f"/[{':'.join(f'{int(group, 16):x}' for group in groups)}]:{port}"

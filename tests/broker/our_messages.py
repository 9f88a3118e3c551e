"""Messages that mqstore writes for the live tests, and how their dump is told from the input."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from broker.harness import LOOPBACK, SMALL_FILES, Row
from mqstore.codec.schema import PROPERTIES_MAP, TIMESTAMP
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import CommitResult
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

NUMBER: Final = "number"
"""The property by which a message is found again, whatever became of it."""

COLUMNS: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", PROPERTIES_MAP),
        ("queueId", pa.int32()),
        ("shardingKey", pa.string()),
        ("flag", pa.int32()),
        ("bornTimestamp", TIMESTAMP),
        ("storeTimestamp", TIMESTAMP),
        ("delayTimeLevel", pa.int32()),
    ]
)
SMALL_SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": int(SMALL_FILES["mappedFileSizeCommitLog"]),
    "mapped_file_size_consume_queue": int(SMALL_FILES["mappedFileSizeConsumeQueue"]),
    "max_hash_slot_num": int(SMALL_FILES["maxHashSlotNum"]),
    "max_index_num": int(SMALL_FILES["maxIndexNum"]),
}
FIRST_BORN_MS: Final = 1_790_000_000_000
TAGS: Final = (None, "TagA", "TagB", "标签C", "😀", "A || B")


@dataclass(slots=True)
class Author:
    """Makes rows to write, each with a number of its own; the same ones for the same seed."""

    prefix: str
    seed: int
    next_number: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    """All rows made so far."""

    def write_rows(self, count: int, delay_levels: Sequence[int] = ()) -> list[dict[str, Any]]:
        """Make ``count`` rows over three topics, and one for each delay level."""
        source = random.Random(self.seed * 1000 + self.next_number)
        made = [self._row(source, f"{self.prefix}{n % 3}", 0) for n in range(count)]
        made += [self._row(source, f"{self.prefix}Late", level) for level in delay_levels]
        self.rows += made
        return made

    def _row(self, source: random.Random, topic: str, delay_level: int) -> dict[str, Any]:
        number, self.next_number = self.next_number, self.next_number + 1
        keys = [[f"k{self.seed}-{number}", f"second{number}"], [f"k{self.seed}-{number}"], None]
        # The 4.9 push consumer fails on an empty body; only the first topic is pushed.
        shortest = 1 if topic == f"{self.prefix}0" else 0
        length = source.choice([shortest, 40, 300, 300, 700])
        if number % 40 == 0:
            length = 9000  # Long enough to be compressed.
        properties = {NUMBER: str(number)}
        if number % 3 == 0:
            properties["用户"] = f"值 {number}"
        if number % 50 == 0:
            properties["long"] = "x" * 3000
        return {
            "body": " ".join(str(source.randrange(3000)) for _ in range(length)).encode()[:length],
            "topic": topic,
            "tags": source.choice(TAGS),
            "keys": keys[number % 3],
            "properties": properties,
            "queueId": source.choice([None, None, 0, 1, 2, 3]),
            "shardingKey": f"order{number % 5}" if number % 7 == 0 else None,
            "flag": source.randrange(-(2**31), 2**31),
            "bornTimestamp": FIRST_BORN_MS * 1000 + number * 1000,
            "storeTimestamp": FIRST_BORN_MS * 1000 + number * 2000,  # Kept if asked to.
            "delayTimeLevel": delay_level,
        }


def write(root: Path, rows: list[dict[str, Any]], **settings: Any) -> CommitResult:
    """Write rows as a job of three tasks: prepare, stage, commit."""
    job = prepare(WriteSettings(root=str(root), **settings), COLUMNS)
    batch = pa.RecordBatch.from_pylist(rows, COLUMNS)
    share = -(-len(rows) // 3)
    manifests = [
        stage(job, [batch.slice(n * share, share)], partition=n, attempt=n) for n in range(3)
    ]
    return commit(job, manifests)


def on_port(port: int, **settings: Any) -> dict[str, Any]:
    """Settings of a new store for a broker on that port: its offsetMsgIds can be looked up."""
    new = {"create_store": True, "store_host": f"{LOOPBACK}:{port}", "born_host": "10.1.2.3:4567"}
    return new | settings


def differences(row: dict[str, Any], pulled: Row) -> dict[str, Any]:
    """What the client pulled that is not what was written; empty when all is as it should be."""
    properties = pulled["properties"]
    expected = {
        "topic": row["topic"],
        "queueId": pulled["queueId"] if row["queueId"] is None else row["queueId"],
        "flag": row["flag"],
        "born": row["bornTimestamp"] // 1000,
        "bodyLen": len(row["body"]),
        "bodySha1": hashlib.sha1(row["body"], usedforsecurity=False).hexdigest(),
        "reconsumeTimes": 0,
        "preparedTxn": 0,
    }
    named = {
        "TAGS": row["tags"],
        "KEYS": None if row["keys"] is None else " ".join(row["keys"]),
        "__SHARDINGKEY": row["shardingKey"],
        **row["properties"],
    }
    wrong = {key: (value, pulled[key]) for key, value in expected.items() if pulled[key] != value}
    for name, value in named.items():
        if properties.get(name) != value:
            wrong[name] = (value, properties.get(name))
    return wrong


def offset_msg_id(row: Row) -> str:
    """The id of a record on an IPv4 broker (MessageDecoder#createMessageId)."""
    address, _, port = row["storeHost"].lstrip("/").rpartition(":")
    packed = bytes(int(part) for part in address.split("."))
    packed += int(port).to_bytes(4, "big") + row["physicalOffset"].to_bytes(8, "big")
    return str(packed.hex().upper())

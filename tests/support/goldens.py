"""The golden stores and what the official tools said about them; see golden/README.md."""

import gzip
import hashlib
import json
import re
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"
VERSIONS = ("4.9.7", "5.5.0")
DLEDGER = "4.9.7-dledger"
"""The last leader of a group; ``killed`` is its first one."""
BATCH = "5.5.0-batch"
"""Has a topic of queue.type=BatchCQ."""
CONTROLLER = "5.5.1-controller"
"""Replicas of a controller's group, an archive each."""
CONTROLLER_DEFAULT = "5.5.1-controller-default"
"""The same with allAckInSyncStateSet=false."""
CONTROLLER_ROCKSDB = "5.5.1-controller-rocksdb"
"""A replica with queues in RocksDB that cut its log: ``r2-rejoined``."""
CONTROLLER_LEFTOVER = "5.5.1-controller-leftover"
"""The same, ``r1-rejoined``: of what it cut, bytes lie behind the end of its log."""
CONTROLLER_RESTARTED = "5.5.1-controller-restarted"
"""A slave that was stopped with records that its group agreed on later: ``r1-restarted``."""
SAMPLES = FOLDER / "5.5.0-samples" / "samples.parquet"
"""What ``mqlog record`` wrote of three groups."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of consumerProgress."""

    broker_offset: int
    consumer_offset: int
    diff: int


def unpack(version: str, directory: Path, archive: str = "store") -> Path:
    """Unpack the store of that version; its root is ``directory/rocketmq-VERSION/store``."""
    target = directory / f"rocketmq-{version}"
    with tarfile.open(FOLDER / version / f"{archive}.tar.gz") as packed:
        # Python 3.11.0 to 3.11.3, as in Debian 12, have no filters.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        packed.extractall(target)
    return target / "store"


def digest(root: Path) -> str:
    """Return a hash over the names and bytes of every file below `root`."""
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        whole.update(str(path.relative_to(root)).encode())
        if path.is_file():
            whole.update(path.read_bytes())
    return whole.hexdigest()


def expected(version: str) -> list[dict[str, Any]]:
    """Return the messages as the client decoded them, in the file's order."""
    with gzip.open(FOLDER / version / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _sections(version: str, file: str, flag: str) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = defaultdict(list)
    name = ""
    for line in (FOLDER / version / file).read_text().splitlines():
        if heading := re.match(rf"## \w+ {flag} (\S+)", line):
            name = heading[1]
        elif " broker-a " in f" {line} ":
            found[name].append(line.split())
    return found


def progress(version: str) -> dict[tuple[str, str, int], Progress]:
    """Return consumerProgress by (group, topic, queueId)."""
    return {
        (group, topic, int(queue_id)): Progress(int(broker), int(consumer), int(diff))
        for group, lines in _sections(version, "progress.txt", "-g").items()
        for topic, _, queue_id, broker, consumer, diff, *_ in lines
    }


def inflight(version: str) -> dict[tuple[str, str, int], int]:
    """Return Inflight of consumerProgress by (group, topic, queueId); 4.9.7 has none."""
    return {
        (group, topic, int(queue_id)): int(more[0])
        for group, lines in _sections(version, "progress.txt", "-g").items()
        for topic, _, queue_id, _, _, _, *more in lines
        if more[0].isdecimal()
    }


def topic_status(version: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return topicStatus by (topic, queueId): (min offset, max offset)."""
    return {
        (topic, int(queue_id)): (int(low), int(high))
        for topic, lines in _sections(version, "topicstatus.txt", "-t").items()
        for _, queue_id, low, high, *_ in lines
    }


def batch_bounds() -> dict[tuple[str, int], tuple[int, int]]:
    """Return what the broker of BATCH said of its queues: (min offset, max offset)."""
    found = json.loads((FOLDER / BATCH / "broker.json").read_text())["queues"]
    split = ((*name.rsplit("/", 1), *of) for name, of in found.items())
    return {(topic, int(queue_id)): (low, high) for topic, queue_id, low, high in split}


def batch_lags(topic: str) -> dict[tuple[str, str, int], int]:
    """Return consumerProgress of a topic of BATCH: brokerOffset - consumerOffset."""
    found = json.loads((FOLDER / BATCH / "broker.json").read_text())["progress"]
    return {
        (group, topic, row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for group, rows in found.items()
        for row in rows
        if row["topic"] == topic
    }


def as_told(row: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a row of profile full, timestamps in microseconds, as expected.jsonl tells it."""
    body: bytes = row["body"]
    return {
        "topic": row["topic"],
        "queueId": row["queueId"],
        "queueOffset": row["queueOffset"],
        "physicalOffset": row["physicalOffset"],
        "storeSize": row["storeSize"],
        "flag": row["flag"],
        # Clients of 5.x clear the bit of what they have decompressed.
        "sysFlag": row["sysFlag"] & ~1 if version == "5.5.0" else row["sysFlag"],
        "bodyCRC": row["bodyCRC"],
        "born": row["bornTimestamp"] // 1000,
        "bornHost": f"/{row['bornHost']}",
        "store": row["storeTimestamp"] // 1000,
        "storeHost": f"/{row['storeHost']}",
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTxn": row["preparedTransactionOffset"],
        "msgId": row["msgId"],
        "bodySha1": hashlib.sha1(body).hexdigest(),
        "bodyLen": len(body),
        "properties": row["properties"],
    }

"""Lays out tiered storage beside a store of `stores.lay_out`, as the POSIX provider writes it."""

import hashlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.oracle import Message, encode, unit
from support.stores import UNIT_BYTES, Laid, Queue, is_consumable, write_json

CLUSTER = "DefaultCluster"
BROKER = "broker-a"


def lay_out_tier(
    tier: Path, laid: Laid, *, log_bytes: int = 1024, units: int = 7
) -> dict[Queue, list[Message]]:
    """Write the tier of a store into `tier`, and its metadata into the store.

    It has every message ever written but those of RocketMQ's own topics. A segment of a queue's log
    has at most `log_bytes`, one of its units as many as `units`. Returns the messages of each
    queue, each with its place in the log of its queue.
    """
    digest = hashlib.md5(CLUSTER.encode(), usedforsecurity=False).hexdigest()[:8]
    broker = tier / f"{digest}_{CLUSTER}" / BROKER
    of_queue: dict[Queue, list[Message]] = defaultdict(list)
    for m in laid.messages:
        if is_consumable(m) and not m.topic.startswith(("SCHEDULE", "RMQ_SYS", "rmq_sys")):
            of_queue[m.topic, m.queue_id].append(m)
    segments: dict[str, Any] = {"commitLogFileSegmentTable": {}, "consumeQueueFileSegmentTable": {}}
    for (topic, queue_id), messages in of_queue.items():
        name = f"{BROKER}/{topic}/{queue_id}"
        folder = broker / topic / str(queue_id)
        files: dict[int, bytes] = {0: b""}
        placed = []
        for m in messages:
            start = max(files)
            if len(files[start]) + m.size > log_bytes and files[start]:
                start += len(files[start])
                files[start] = b""
            at = replace(m, physical_offset=start + len(files[start]))
            files[start] += encode(at)
            placed.append(at)
        segments["commitLogFileSegmentTable"][name] = _write(folder / "COMMIT_LOG", files, name, 0)
        first = messages[0].queue_offset
        files = {
            (first + n) * UNIT_BYTES: b"".join(map(unit, placed[n : n + units]))
            for n in range(0, len(placed), units)
        }
        segments["consumeQueueFileSegmentTable"][name] = _write(
            folder / "CONSUME_QUEUE", files, name, 1
        )
        of_queue[topic, queue_id] = placed
    write_json(laid.root / "config" / "tieredStoreMetadata.json", segments)
    return of_queue


def segment_name(base: int) -> str:
    """Return the name of a segment: a hash of its base offset, then the offset."""
    digest = hashlib.md5(str(base).encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{digest}{base:020d}"


def _write(folder: Path, files: dict[int, bytes], path: str, kind: int) -> dict[str, Any]:
    folder.mkdir(parents=True)
    metadata = {}
    for base, data in files.items():
        (folder / segment_name(base)).write_bytes(data)
        metadata[str(base)] = {
            "baseOffset": base,
            "path": path,
            "size": len(data),
            "status": 0,
            "type": kind,
        }
    return metadata

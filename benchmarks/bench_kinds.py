"""Stores of other kinds beside the same messages in a plain one: rows read in this process.

    python -m benchmarks kinds

The argument is the number of messages, of 1 KiB each, in four queues. ``replica`` is the store with
the files of a controller's group, read up to its confirm offset; what is ``by log`` is read by the
CommitLog alone, cold. ``tier`` is the store without the first half of its CommitLog,
whose messages are in tiered storage.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.rounds import Side, compare
from mqstore.format.checkpoint import CHECKPOINT
from mqstore.format.consume_queue import UNIT
from mqstore.request.plan import plan_read
from mqstore.request.read import read_options

COLUMNS = ("topic", "queueId", "queueOffset", "body", "tags", "keys", "storeTimestamp")
QUEUES = 4
LOG_BYTES = 1 << 24
_BROKER = "broker-a"
_PLACE_AT = 28  # PHYSICALOFFSET of a record.


def main(messages: int) -> None:
    """Lay the stores out in a temporary directory and measure them."""
    shape = Shape(messages, 1024, QUEUES, log_bytes=LOG_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        roots = {name: Path(directory) / name / "store" for name in ("plain", "replica", "tiered")}
        for root in roots.values():
            lay_out(root, shape)
        _join_group(roots["replica"])
        tier = Path(directory) / "tier"
        _move_to_tier(roots["tiered"], tier)
        rows, cache = shape.each * QUEUES, Path(directory) / "cache"
        tiered = {"storepathtiered": str(tier)}
        sides = [
            Side("plain", partial(_read, roots["plain"]), rows),
            Side("replica", partial(_read, roots["replica"]), rows),
            Side("tier", partial(_read, roots["tiered"], **tiered), rows),
            Side("plain by log", partial(_by_log, roots["plain"], cache), rows),
            Side("replica by log", partial(_by_log, roots["replica"], cache), rows),
        ]
        compare("kinds", f"{rows} messages", sides)


def _read(root: Path, **options: str) -> int:
    work = plan_read(read_options((str(root),), options), COLUMNS).work()
    return sum(batch.num_rows for share in work for batch in share.batches())


def _by_log(root: Path, cache: Path) -> int:
    shutil.rmtree(cache, ignore_errors=True)
    return _read(root, queues="log", cachedir=str(cache))


def _units(root: Path, queue_id: int) -> Any:
    files = sorted((root / "consumequeue" / topic_name(0) / str(queue_id)).iterdir())
    units = np.concatenate([np.frombuffer(file.read_bytes(), UNIT) for file in files])
    return units[units["size"] > 0]


def _join_group(root: Path) -> None:
    """Write the files of a replica whose group agreed on all that it has."""
    last = max((_units(root, queue_id)[-1] for queue_id in range(QUEUES)), key=_end)
    record = np.zeros(1, CHECKPOINT)
    record["confirm_phy_offset"] = _end(last)
    (root / "checkpoint").write_bytes(record.tobytes().ljust(4096, b"\0"))
    (root / "brokerIdentity").write_text(f"DefaultCluster#{_BROKER}#1")
    (root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")


def _end(unit: Any) -> int:
    return int(unit["physical_offset"]) + int(unit["size"])


def _move_to_tier(root: Path, tier: Path) -> None:
    """Write the tier of all messages, and delete the first half of the CommitLog."""
    logs = sorted((root / "commitlog").iterdir())
    log = {int(file.name): file.read_bytes() for file in logs}
    digest = hashlib.md5(b"DefaultCluster", usedforsecurity=False).hexdigest()[:8]
    tables: dict[str, Any] = {}
    for queue_id in range(QUEUES):
        units = _units(root, queue_id).copy()
        parts, place = [], 0
        for unit in units:
            start, size = int(unit["physical_offset"]), int(unit["size"])
            record = bytearray(log[start - start % LOG_BYTES][start % LOG_BYTES :][:size])
            record[_PLACE_AT : _PLACE_AT + 8] = place.to_bytes(8)
            unit["physical_offset"] = place
            parts.append(bytes(record))
            place += size
        name = f"{_BROKER}/{topic_name(0)}/{queue_id}"
        folder = tier / f"{digest}_DefaultCluster" / name
        for kind, data in (
            ("COMMIT_LOG", b"".join(parts)),
            ("CONSUME_QUEUE", units.astype(UNIT).tobytes()),
        ):
            (folder / kind).mkdir(parents=True)
            (folder / kind / f"cfcd2084{0:020d}").write_bytes(data)
        segment = {"baseOffset": 0, "path": name, "size": units.nbytes, "status": 0, "type": 1}
        tables[name] = {"0": segment}
    metadata = {"consumeQueueFileSegmentTable": tables}
    (root / "config" / "tieredStoreMetadata.json").write_text(json.dumps(metadata))
    for file in logs[: len(logs) // 2]:
        file.unlink()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

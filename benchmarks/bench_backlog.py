"""ConsumeQueue units counted a second for the backlog, on one core, beside numpy alone.

    python -m benchmarks backlog

``hash`` is lagMatching by tagsCode: no CommitLog is read. ``groups`` is the same queue for a
hundred groups that stand at different places in it. ``exact`` reads the tag of every message
of 1 KiB whose hash matches, half of them; its queue is a hundredth as long. ``numpy`` reads
the files and counts the hashes with isin, and does nothing else. The page cache is warm.
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.rounds import Side, compare
from mqstore.backlog import BacklogItem, BacklogRequest, measure
from mqstore.format.consume_queue import UNIT, UNITS_PER_FILE
from mqstore.format.hashing import java_hash
from mqstore.format.message import HEADER, RECORD_MAGICS
from mqstore.format.names import mapped_file_name
from mqstore.read.directory import open_origin

TAGS = ("paid", "sent", "late", "lost")
EXPRESSION = "paid || lost"
RECORD_BYTES = 1024
GROUPS = 100


def main(units: int) -> None:
    """Make a store of that many units in a temporary directory and measure it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "commitlog").mkdir()
        tags = random.integers(0, len(TAGS), units)
        _write_queue(root, 0, tags)
        few = max(100, units // 100)
        few_tags = random.integers(0, len(TAGS), few)
        _write_records(root, few_tags)
        origin = open_origin(root)
        item = BacklogItem(origin, "b", "g", "T", 0, 0, units, 0, EXPRESSION)
        many = [
            BacklogItem(origin, "b", f"g{n}", "T", 0, 0, units, units * n // GROUPS, EXPRESSION)
            for n in range(GROUPS)
        ]
        exact = BacklogItem(origin, "b", "g", "T", 1, 0, few, 0, EXPRESSION)
        matching, few_matching = _matching(tags), _matching(few_tags)
        sides = [
            Side("hash", partial(_measure, [item], "hash", matching, units), units),
            Side("groups", partial(_measure, many, "hash", matching, units), units),
            Side("exact", partial(_measure, [exact], "exact", few_matching, few), few),
            Side("numpy", partial(_count, root, matching, units), units),
        ]
        compare("backlog", f"{units} units", sides, groups=GROUPS)


def _matching(tags: np.ndarray) -> int:
    return int(np.isin(tags, [TAGS.index(tag) for tag in EXPRESSION.split(" || ")]).sum())


def _measure(items: list[BacklogItem], lag_mode: str, matching: int, units: int) -> int:
    batch = measure(items, BacklogRequest(lag_mode=lag_mode), 0)
    assert batch["lagMatching"][0].as_py() == matching
    return units


def _count(root: Path, matching: int, units: int) -> int:
    codes = [java_hash(tag) for tag in EXPRESSION.split(" || ")]
    found = left = 0
    for file in sorted((root / "consumequeue" / "T" / "0").iterdir()):
        held = np.fromfile(file, UNIT, max(0, units - left))
        left += len(held)
        found += int(np.isin(held["tags_code"].astype(np.int64), codes).sum())
    assert found == matching
    return units


def _write_queue(root: Path, queue_id: int, tags: np.ndarray) -> None:
    codes = np.array([java_hash(tag) for tag in TAGS], np.int64)
    folder = root / "consumequeue" / "T" / str(queue_id)
    folder.mkdir(parents=True)
    for start in range(0, len(tags), UNITS_PER_FILE):
        part = tags[start : start + UNITS_PER_FILE]
        units = np.zeros(UNITS_PER_FILE, UNIT)
        units["physical_offset"][: len(part)] = np.arange(start, start + len(part)) * RECORD_BYTES
        units["size"][: len(part)] = RECORD_BYTES
        units["tags_code"][: len(part)] = codes[part]
        (folder / mapped_file_name(start * UNIT.itemsize)).write_bytes(units.tobytes())


def _write_records(root: Path, tags: np.ndarray) -> None:
    """Write queue 1 and its records, whose bytes but size, magic and tail do not matter here."""
    _write_queue(root, 1, tags)
    template = np.zeros((len(TAGS), RECORD_BYTES), np.uint8)
    for number, tag in enumerate(TAGS):
        block = f"TAGS\x01{tag}\x02UNIQ_KEY\x01{'0' * 32}\x02".encode()
        tail = b"\x01T" + len(block).to_bytes(2, "big") + block
        head = np.zeros(1, HEADER)
        head["total_size"], head["magic"] = RECORD_BYTES, RECORD_MAGICS[0]
        head["body_length"] = RECORD_BYTES - HEADER.itemsize - len(tail)
        record = head.tobytes().ljust(RECORD_BYTES - len(tail), b"x") + tail
        template[number] = np.frombuffer(record, np.uint8)
    (root / "commitlog" / mapped_file_name(0)).write_bytes(template[tags].tobytes())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)

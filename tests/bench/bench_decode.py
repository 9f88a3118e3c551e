"""Messages of 1 KiB decoded a second by the core library, on one core; JSON lines on stdout.

    python tests/bench/bench_decode.py [MESSAGES]

A store is made once in a temporary directory: MESSAGES records with the seven properties a
4.9 or 5.x broker stores for a plain send, in one queue (``queues`` 1, the records of a slice
lie side by side) and in four (as a producer that goes round robin leaves them). Each line is
the best of three full scans, from ConsumeQueue to record batches: read, checked, decoded.
The page cache is warm: what is measured is the codec, not the disk. On a machine that others
use too, look at ``messagesPerCpuSecond``: the time that the one core worked for us.
"""

import json
import os
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
from facts import facts

from mqstore.codec.schema import PROFILES
from mqstore.format.consume_queue import UNIT
from mqstore.format.hashing import tags_code
from mqstore.format.message import CRC_MASK, HEADER, MAGIC_V1, MIN_BLANK_BYTES
from mqstore.format.names import mapped_file_name
from mqstore.format.properties import join
from mqstore.read.plan import QueueSlice
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings

BODY_BYTES = 1024
RUNS = 3
DISTINCT = 512  # bodies that differ; a record's offsets and UNIQ_KEY are its own
COLUMNS = {
    "minimal": PROFILES["minimal"],
    "standard": PROFILES["standard"],
    "full": PROFILES["full"],
    "no body": tuple(name for name in PROFILES["standard"] if name != "body"),
}
HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def main(count: int) -> None:
    """Make the stores and measure each profile in each read mode."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for queues in (1, 4):
        with tempfile.TemporaryDirectory() as directory:
            record_bytes = _lay_out(Path(directory), count, queues)
            for profile, columns in COLUMNS.items():
                for mode in ("pread", "mmap"):
                    settings = ScanSettings(columns=columns, read_mode=mode)
                    _report(Path(directory), count, queues, profile, settings, record_bytes)


def _report(
    root: Path, count: int, queues: int, profile: str, settings: ScanSettings, record_bytes: int
) -> None:
    log = (str(root / "commitlog"),)
    share = count // queues
    slices = [QueueSlice(str(root), log, "b", "T", q, 0, share) for q in range(queues)]
    best = busy = float("inf")
    for _ in range(RUNS):
        begin, begin_busy = time.perf_counter(), time.process_time()
        rows = sum(batch.num_rows for batch in scan(slices, settings))
        best = min(best, time.perf_counter() - begin)
        busy = min(busy, time.process_time() - begin_busy)
        assert rows == share * queues
    found = {
        "bench": "decode",
        "profile": profile,
        "readMode": settings.read_mode,
        "queues": queues,
        "messages": rows,
        "bodyBytes": BODY_BYTES,
        "recordBytes": record_bytes,
        "seconds": round(best, 4),
        "messagesPerSecond": round(rows / best),
        "messagesPerCpuSecond": round(rows / busy),
        "bytesPerSecond": round(rows * record_bytes / best),
        **facts(),
    }
    print(json.dumps(found), flush=True)


def _lay_out(root: Path, count: int, queues: int) -> int:
    """Write `count` records and their units; return the bytes of a record."""
    templates = _templates()
    size = templates.shape[1]
    number = np.arange(count)
    places = number * size
    (root / "commitlog").mkdir()
    with (root / "commitlog" / mapped_file_name(0)).open("wb") as file:
        for start in range(0, count, DISTINCT):
            part = number[start : start + DISTINCT]
            records = templates[: len(part)].copy()
            _put(records, "queue_id", part % queues)
            _put(records, "queue_offset", part // queues)
            _put(records, "physical_offset", places[part])
            _put(records, "store_timestamp_ms", 1_700_000_000_000 + part // 100)
            at = bytes(records[0]).index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01")
            digits = (part[:, None] >> np.arange(28, -1, -4)) & 15
            records[:, at + 24 : at + 32] = HEX[digits]
            file.write(records.tobytes())
        file.write(bytes(MIN_BLANK_BYTES))
    units = np.zeros(count, UNIT)
    units["physical_offset"] = places
    units["size"] = size
    units["tags_code"] = tags_code("TagA")
    for queue_id in range(queues):
        folder = root / "consumequeue" / "T" / str(queue_id)
        folder.mkdir(parents=True)
        (folder / mapped_file_name(0)).write_bytes(units[queue_id::queues].tobytes())
    return size


def _put(records: np.ndarray, field: str, values: np.ndarray) -> None:
    dtype, position = HEADER.fields[field][:2]
    wide = values.astype(dtype).view(np.uint8).reshape(len(values), dtype.itemsize)
    records[:, position : position + dtype.itemsize] = wide


def _templates() -> np.ndarray:
    random = np.random.default_rng(7)
    properties = join(
        {
            "MSG_REGION": "DefaultRegion",
            "UNIQ_KEY": "0" * 32,
            "CLUSTER": "DefaultCluster",
            "WAIT": "true",
            "KEYS": "order-123456",
            "TAGS": "TagA",
            "TRACE_ON": "true",
        }
    )
    tail = b"\x01T" + len(properties).to_bytes(2) + properties
    head = np.zeros(DISTINCT, HEADER)
    bodies = [random.bytes(BODY_BYTES) for _ in range(DISTINCT)]
    head["total_size"] = HEADER.itemsize + BODY_BYTES + len(tail)
    head["magic"], head["body_length"] = MAGIC_V1, BODY_BYTES
    head["body_crc"] = [zlib.crc32(body) & CRC_MASK for body in bodies]
    head["born_ip"] = head["store_ip"] = np.void(bytes([127, 0, 0, 1]))
    head["born_timestamp_ms"] = 1_700_000_000_000
    records = [head[i].tobytes() + body + tail for i, body in enumerate(bodies)]
    return np.frombuffer(b"".join(records), np.uint8).reshape(DISTINCT, -1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)

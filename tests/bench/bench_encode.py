"""Messages of 1 KiB encoded, staged and committed a second, on one core; JSON lines on stdout.

    python tests/bench/bench_encode.py [MESSAGES]

``encode`` is the codec alone: columns to CommitLog records with their CRC. ``stage`` is all
that a task does with Arrow batches as Spark gives them (10,000 rows): cast, validate, choose
queues, compose properties with UNIQ_KEY, batch, encode, hash index keys, checksum and write the
staged file. ``commit`` is what the driver does: verify, append, ConsumeQueue, IndexFile. Each
line is the best of three runs. Files are in memory and ``fsync`` does nothing: what is measured
is the work, not the disk. On a machine that others use too, look at ``messagesPerCpuSecond``.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from facts import facts

from mqstore.codec.encode import Hosts, Messages, encode
from mqstore.codec.properties_block import join_blocks
from mqstore.files import durable
from mqstore.write.commit import commit
from mqstore.write.job import WriteSettings
from mqstore.write.prepare import prepare
from mqstore.write.stage import stage

BODY_BYTES = 1024
BATCH_ROWS = 10_000  # spark.sql.execution.arrow.maxRecordsPerBatch
RUNS = 3
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(count: int) -> None:
    """Measure the three parts of a write, one after the other."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    durable.fsync = lambda _: None
    durable.fsync_directory = lambda _: None
    batches = _batches(count)
    _report("encode", count, *_best(lambda: _encode(batches)))
    parts = [_write(batches) for _ in range(RUNS)]
    _report("stage", count, *_least([staged for staged, _ in parts]))
    _report("commit", count, *_least([committed for _, committed in parts]))


def _write(batches: list[pa.RecordBatch]) -> tuple[tuple[float, float], tuple[float, float]]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        settings = WriteSettings(root=f"{directory}/store", create_store=True, topic="T")
        job = prepare(settings, batches[0].schema)
        manifests = []
        staged = _timed(lambda: manifests.append(stage(job, batches, partition=0, attempt=0)))
        return staged, _timed(lambda: commit(job, manifests))


def _encode(batches: list[pa.RecordBatch]) -> None:
    hosts = Hosts(bytes([127, 0, 0, 1]), 0, bytes([127, 0, 0, 1]), 10911)
    for batch in batches:
        zeros = np.zeros(batch.num_rows, np.int32)
        typed = [("KEYS", batch["keys"]), ("TAGS", batch["tags"]), ("WAIT", "true")]
        blocks = join_blocks(batch.num_rows, None, typed)
        born = np.zeros(batch.num_rows, np.int64)
        encode(Messages(("T",), zeros, zeros, zeros, zeros, born, batch["body"], blocks), hosts)


def _batches(count: int) -> list[pa.RecordBatch]:
    random = np.random.default_rng(7)
    found = []
    for start in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - start)
        data = random.bytes(rows * BODY_BYTES)
        edges = np.arange(rows + 1, dtype=np.int32) * np.int32(BODY_BYTES)
        body = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        keys = pa.array([f"order-{n}" for n in range(start, start + rows)])
        tags = pa.array(["TagA", "TagB", "TagC"]).take(pa.array(np.arange(rows) % 3))
        found.append(pa.RecordBatch.from_pydict({"body": body, "keys": keys, "tags": tags}))
    return found


def _best(work: Callable[[], None]) -> tuple[float, float]:
    return _least([_timed(work) for _ in range(RUNS)])


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    begin, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - busy


def _least(times: list[tuple[float, float]]) -> tuple[float, float]:
    return min(wall for wall, _ in times), min(busy for _, busy in times)


def _report(bench: str, count: int, seconds: float, busy: float) -> None:
    found = {
        "bench": bench,
        "messages": count,
        "bodyBytes": BODY_BYTES,
        "seconds": round(seconds, 4),
        "messagesPerSecond": round(count / seconds),
        "messagesPerCpuSecond": round(count / max(busy, 1e-9)),
        "bytesPerSecond": round(count * BODY_BYTES / seconds),
        **facts(),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)

"""Rows to write: bodies of random bytes, a key and one of three tags, as Spark would give them."""

import numpy as np
import pyarrow as pa

BATCH_ROWS = 10_000  # spark.sql.execution.arrow.maxRecordsPerBatch
TAGS = ("TagA", "TagB", "TagC")
SCHEMA = pa.schema([("body", pa.binary()), ("keys", pa.string()), ("tags", pa.string())])


def batches(count: int, body_bytes: int) -> list[pa.RecordBatch]:
    """Return ``count`` rows in batches; the same ones each time."""
    random = np.random.default_rng(7)
    found = []
    for start in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - start)
        data = random.bytes(rows * body_bytes)
        edges = np.arange(rows + 1, dtype=np.int32) * np.int32(body_bytes)
        body = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        keys = pa.array([f"order-{n}" for n in range(start, start + rows)])
        tags = pa.array(TAGS).take(pa.array(np.arange(rows) % len(TAGS)))
        found.append(pa.RecordBatch.from_arrays([body, keys, tags], schema=SCHEMA))
    return found

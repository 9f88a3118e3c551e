"""The memory of a scan is bounded by batchBytes, whatever the size of the queue."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from mqstore.codec.schema import PROFILES
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin
from support import oracle
from support.oracle import Message
from support.stores import Layout, lay_out

MIB = 1 << 20
COUNT, BODY_BYTES = 640, 100_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue of 64 MB in eight CommitLog files; each fourth body compressed to almost nothing."""
    body = bytes(range(250)) * (BODY_BYTES // 250)
    packed = oracle.compress(body, oracle.ZSTD)
    plain = Message(body=body, properties=b"TAGS\x01A\x02UNIQ_KEY\x010123\x02")
    small = Message(body=packed, sys_flag=1 | oracle.ZSTD)
    messages = [small if i % 4 == 0 else plain for i in range(COUNT)]
    layout = Layout(commit_log_bytes=8 * MIB, queue_units=1000, index=False)
    return lay_out(tmp_path_factory.mktemp("large") / "store", messages, layout).root


@contextmanager
def peaks() -> Iterator[list[int]]:
    """Give, after the block, the most bytes that Python with numpy and that Arrow held in it."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    found: list[int] = []
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield found
        found += [tracemalloc.get_traced_memory()[1], pool.max_memory()]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.mark.parametrize("profile", ["minimal", "full"])
@pytest.mark.parametrize("mode", ["pread", "mmap"])
@pytest.mark.parametrize("batch_bytes", [MIB, 4 * MIB])
def test_a_scan_holds_a_few_batches_at_most(
    large: Path, profile: str, mode: str, batch_bytes: int
) -> None:
    slices = [QueueSlice(StoreOrigin.at(large), "b", "T", 0, 0, COUNT)]
    settings = ScanSettings(columns=PROFILES[profile], read_mode=mode, batch_bytes=batch_bytes)
    next(scan(slices, settings))  # what is imported and cached at first use is no batch's
    with peaks() as found:
        rows, largest = 0, 0
        for batch in scan(slices, settings):
            rows += batch.num_rows
            largest = max(largest, batch.get_total_buffer_size())
            del batch
    assert rows == COUNT
    # Read bytes, and the columns made of them; bodies decompressed are held twice for a moment.
    assert largest <= 3 * batch_bytes
    assert sum(found) <= 10 * batch_bytes + 4 * MIB, f"python {found[0]}, arrow {found[1]}"

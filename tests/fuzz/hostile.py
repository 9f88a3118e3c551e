"""Reads of stores made to harm, in bounded time and memory."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fuzz.in_time import begin
from mqstore.codec.schema import PROFILES
from mqstore.errors import StoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.index.index_file import list_index_files
from mqstore.read import source
from mqstore.read.directory import take
from mqstore.read.offsets import AtTimestamp, Latest, resolve
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from support import expectations
from support.opened import narrowed, source_of, topics_of
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

FULL = PROFILES["full"]
LIMIT_BYTES = 256 << 20
SECRET = b"secret of another directory"


def slices_of(root: Path, *, strict: bool = True) -> list[QueueSlice]:
    snapshot = take(root, broker_name="b", strict=strict)
    return source.slices_of(snapshot)


def read(
    root: Path, on_corrupt: str = "fail", *, strict: bool = True, **more: Any
) -> list[dict[str, Any]]:
    """The whole way a batch read goes."""
    parts = [
        piece
        for part in split(weigh(slices_of(root, strict=strict)), SplitLimits())
        for piece in part
    ]
    settings = ScanSettings(
        columns=FULL, on_corrupt=on_corrupt, fail_on_data_loss=on_corrupt == "fail", **more
    )
    rows: list[dict[str, Any]] = []
    for batch in scan(parts, settings):
        batch.validate(full=True)
        rows += expectations.rows(batch)
    return rows


def everything(root: Path) -> None:
    """Whatever looks at a store."""
    topics_of(root)
    snapshot = take(root)
    resolve(source_of(snapshot), snapshot, lambda _: (AtTimestamp(1_600_000_000_000), Latest()))
    BrokerConfig(StoreDir.at(root)).consumer_offsets()
    BrokerConfig(StoreDir.at(root)).groups()
    list_index_files(StoreDir.at(root))
    narrowed(slices_of(root), ["k1"], ["0" * 32])
    read(root)


def outcome(act: Callable[[], Any]) -> Any:
    """What comes of it: a named error, or the result; within the memory allowed."""
    begin()  # Anew for each: hypothesis makes many.
    pool = pa.default_memory_pool()
    held = pool.bytes_allocated()
    tracemalloc.start()
    try:
        found = act()
    except StoreError as error:
        found = error
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LIMIT_BYTES
    assert pool.bytes_allocated() - held < LIMIT_BYTES
    if isinstance(found, StoreError):
        assert str(found).startswith("[MQLOG_")
        assert SECRET.decode() not in str(found)
    return found


def some(count: int = 20) -> list[Message]:
    return [
        Message(body=str(i).encode() * 20, properties=f"KEYS\x01k{i}\x02TAGS\x01A".encode())
        for i in range(count)
    ]


def whole(tmp_path: Path, count: int = 20, **layout: Any) -> Laid:
    return lay_out(tmp_path / "store", some(count), Layout(**layout))


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)

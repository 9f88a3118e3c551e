"""Stores read by their CommitLog alone: rows, logs that no broker would write, and caches."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqstore.codec.schema import PROFILES
from mqstore.read.log_directory import open_by_log
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Snapshot, slices_of
from support import expectations, oracle
from support.oracle import Message
from support.stores import Laid

FULL = PROFILES["full"]


def snapshot(root: Path, cache: Path, *, strict: bool = True) -> Snapshot:
    """What the log of a store implies now; walks are kept in ``cache``."""
    source = open_by_log(root, (), str(cache)).bounds("b")
    try:
        return source.snapshot(strict=strict)
    finally:
        source.close()


def rows(of: Snapshot, *, on_corrupt: str = "fail", merged: bool = False) -> list[dict[str, Any]]:
    """All messages, with every column, in the order of queues."""
    settings = ScanSettings(columns=FULL, on_corrupt=on_corrupt, merged=merged)
    return [row for batch in scan(slices_of(of), settings) for row in expectations.rows(batch)]


def places(found: Sequence[dict[str, Any]]) -> list[tuple[str, int, int, int]]:
    """Topic, queue, queue offset and physical offset of rows."""
    names = ("topic", "queueId", "queueOffset", "physicalOffset")
    return [tuple(row[name] for name in names) for row in found]  # type: ignore[misc]


def renumber(laid: Laid, numbers: Sequence[int]) -> list[Message]:
    """Give the records of a store other queue offsets, in log order; return the messages."""
    found = []
    for message, number in zip(laid.messages, numbers, strict=True):
        changed = oracle.sealed(replace(message, queue_offset=number))
        path, position = laid.file_of(message)
        data = bytearray(path.read_bytes())
        data[position : position + message.size] = oracle.encode(changed)
        path.write_bytes(data)
        found.append(changed)
    return found

"""Stores whose queues and configuration are in RocksDB, made from others as a broker would.

Keys and values are spelled here once more, as RocketMQ's RocksDBConsumeQueueTable,
RocksDBConsumeQueueOffsetTable and RocksDBConfigManager do.
"""

import json
import re
import shutil
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import rocksdict

Key = tuple[str, int]
Unit = tuple[int, int, int, int, int]
"""Queue offset, physical offset, size, tags code, store timestamp in ms."""

UNIT_BYTES = 20
FILLER = 2**31 - 1
FOLDERS = {
    "topics": ("topic", "topics.json", "topicConfigTable"),
    "subscriptionGroups": (
        "subscriptionGroup",
        "subscriptionGroup.json",
        "subscriptionGroupTable",
    ),
    "consumerOffsets": ("consumerOffset", "consumerOffset.json", "offsetTable"),
}


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """The key of a unit."""
    name = topic.encode()
    return struct.pack(f">I1s{len(name)}s1si1sq", len(name), b"\1", name, b"\1", queue_id, b"\1",
                       queue_offset)  # fmt: skip


def edge_key(topic: str, queue_id: int, edge: bytes = b"max") -> bytes:
    """The key of a queue's last message."""
    name = topic.encode()
    return struct.pack(f">I1s{len(name)}s1s3s1si", len(name), b"\1", name, b"\1", edge, b"\1",
                       queue_id)  # fmt: skip


def write_database(folder: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Make a database, flushed and closed, with what RocksDB itself leaves in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(folder), options)
    for family, rows in families.items():
        if family == "default":
            column = database
        else:
            column = database.create_column_family(family, rocksdict.Options(raw_mode=True))
        for key, value in rows.items():
            column[key] = value
        column.flush()
    database.close()
    for path in folder.iterdir():
        if path.name.startswith("LOG") or path.name == "rocksdict-config.json":
            path.unlink()


def units_in_files(root: Path) -> dict[Key, list[Unit]]:
    """All units of the ConsumeQueues of a store that are no filler, with what their records say."""
    log = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
    found: dict[Key, list[Unit]] = {}
    for folder in sorted((root / "consumequeue").glob("*/*")):
        units = found.setdefault((folder.parent.name, int(folder.name)), [])
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
                place, size, code = struct.unpack_from(">qiq", data, at)
                if size not in (0, FILLER):
                    number = (int(path.name) + at) // UNIT_BYTES
                    units.append((number, place, size, code, stored_ms(log, place)))
    return found


def stored_ms(log: Mapping[int, bytes], place: int) -> int:
    """storeTimestamp of the record at a physical offset; 0 if it expired."""
    starts = [start for start in log if start <= place < start + len(log[start])]
    if not starts:
        return 0
    data, at = log[starts[0]], place - starts[0]
    # magic, crc, queue id, flag, queue offset, physical offset, sysFlag, born: then its host
    born_host = 20 if struct.unpack_from(">i", data, at + 36)[0] & 0x10 else 8
    return int(struct.unpack_from(">q", data, at + 48 + born_host)[0])


def move_queues(
    root: Path, *, before: int | None = None, folder: str = "consumequeue"
) -> dict[Key, list[Unit]]:
    """Put the units of a store into RocksDB: those of records before a physical offset.

    None means all. The ConsumeQueues in files are removed. Returns what was put there.
    """
    units = units_in_files(root)
    if before is not None:
        units = {queue: [u for u in held if u[1] < before] for queue, held in units.items()}
    shutil.rmtree(root / "consumequeue")
    write_queues(root / folder, units)
    return units


def write_queues(
    folder: Path, units: Mapping[Key, Iterable[Unit]], ends: Mapping[Key, int] | None = None
) -> None:
    """Make the database of those units, of the last of each queue, and of where they end.

    ``ends`` are the queue offsets of queues from which on units are left-overs.
    """
    rows, edges, end = {}, {}, 0
    for (topic, queue_id), held in units.items():
        for number, place, size, code, ms in held:
            rows[unit_key(topic, queue_id, number)] = struct.pack(">qiqq", place, size, code, ms)
            if number < (ends or {}).get((topic, queue_id), number + 1):
                edges[edge_key(topic, queue_id)] = struct.pack(">qq", place, number)
            end = max(end, place + size)
    if end:
        edges[edge_key("CHECKPOINT_TOPIC", 0)] = struct.pack(">q", end)
    write_database(folder, {"default": rows, "offset": edges})


def _loaded(path: Path) -> dict[str, Any]:
    """A JSON object whose integer keys have no quotes, as fastjson writes them."""
    quoted = re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', path.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(quoted)
    return found


def move_config(root: Path, *, single: bool = False, counter: int = 1) -> None:
    """Put topics, groups and offsets of a store into RocksDB: three databases, or a single one."""
    version = json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 0}).encode()
    families: dict[str, dict[bytes, bytes]] = {}
    for folder, (family, name, key) in FOLDERS.items():
        path = root / "config" / name
        table: dict[str, Any] = _loaded(path)[key] if path.exists() else {}
        if key == "offsetTable":
            table = {group: {"offsetTable": queues} for group, queues in table.items()}
        rows = {name.encode(): json.dumps(entry).encode() for name, entry in table.items()}
        versions = {b"kvDataVersionKey": version}
        if single:
            families |= {family: rows, f"{family}Version": versions}
        else:
            own = {"default": rows, "kvDataVersion": versions}
            write_database(root / "config" / folder, own)
        for old in (path, path.with_name(f"{name}.bak")):
            old.unlink(missing_ok=True)
    if single:
        write_database(root / "config" / "metadata", families)

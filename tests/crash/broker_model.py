"""What a broker would serve of a store, worked out in Python: thousands of states a minute.

It loads, recovers and dispatches as the Java does, once as 4.9.7 and once as 5.x, of which it
knows what decides whether a message is seen: which files stop it from starting, where its scan
of the log begins and ends, which records it enters into their queues, and which units it drops.
What it says is checked against real brokers where they run (test_broker_model.py); they have the
last word.

Reference: DefaultMessageStore#load and #start, CommitLog#recoverNormally, #recoverAbnormally and
#checkMessageAndReturnSize, ConsumeQueue#recover, #putMessagePositionInfo, #truncateDirtyLogicFiles.
"""

import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support import oracle
from support.oracle import Message
from support.stores import UNIT_BYTES, is_consumable

_UNIT = struct.Struct(">qiq")
_FILES_BACK = 3

Queue = tuple[str, int]


@dataclass
class Units:
    """One ConsumeQueue as a broker has it in memory: its units, from queue offset ``first``."""

    first: int
    units: list[tuple[int, int]] = field(default_factory=list)
    """Physical offset and size of each record."""

    @property
    def end(self) -> int:
        """Physical offset behind the last record it has."""
        return sum(self.units[-1]) if self.units else 0


def serves(root: Path, version: str) -> Counter[bytes] | None:
    """Return the bodies that consumers get; None if the broker does not start."""
    return serve(root, version)[version]


def serve(root: Path, *versions: str) -> dict[str, Counter[bytes] | None]:
    """Return the bodies that consumers get from each version; None if it does not start."""
    log = _files(root / "commitlog")
    folders = [path for path in (root / "consumequeue").glob("*/*") if path.is_dir()]
    queues = {(path.parent.name, int(path.name)): _files(path) for path in folders}
    if log is None or None in queues.values():
        return dict.fromkeys(versions)
    records, end = _scan(log)
    found: dict[str, Counter[bytes] | None] = {}
    for version in versions:
        loaded = {queue: _load(files) for queue, files in queues.items() if files is not None}
        broker = _Broker(records, end, loaded)
        clean = not (root / "abort").exists()
        broker.recover(clean=clean, skips_one=version.startswith("5"))
        found[version] = broker.served()
    return found


def _files(folder: Path) -> list[tuple[int, bytes]] | None:
    """Return (start, content) of mapped files; None if one of them stops the broker."""
    if not folder.exists():
        return []
    found = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    if any(not name.isdecimal() for name, _ in found) or len({len(d) for _, d in found}) > 1:
        return None
    return [(int(name), data) for name, data in found]


def _load(files: list[tuple[int, bytes]]) -> Units:
    """ConsumeQueue#recover: units of the last three files, up to the first that is none."""
    files = files[-_FILES_BACK:]
    loaded = Units(files[0][0] // UNIT_BYTES if files else 0)
    for place, size, _ in _UNIT.iter_unpack(b"".join(data for _, data in files)):
        if place < 0 or size <= 0:
            break
        loaded.units.append((place, size))
    return loaded


def _scan(log: list[tuple[int, bytes]]) -> tuple[dict[int, Message], int]:
    """Return all records up to the first place that has none, and that place."""
    records: dict[int, Message] = {}
    position = 0
    for start, data in log:
        position = start
        while True:
            at = position - start
            if at + 8 > len(data):
                return records, position
            size, magic = struct.unpack_from(">ii", data, at)
            if magic == oracle.BLANK:
                break
            message = _record(data, at)
            if message is None or size <= 0:
                return records, position
            records[position] = message
            position += size
    return records, position


class _Broker:
    def __init__(self, records: dict[int, Message], end: int, queues: dict[Queue, Units]) -> None:
        self._records = records
        self._end = end
        self._queues = queues

    def recover(self, *, clean: bool, skips_one: bool) -> None:
        """Enter what queues lack, cut off what lies behind the end of the log."""
        known = max((units.end for units in self._queues.values()), default=0)
        for place, message in self._records.items():
            if not clean or place > known or (place == known and not skips_one):
                self._enter(message)
        for units in self._queues.values():
            if units.end > self._end:
                units.units = [u for u in units.units if u[0] < self._end]

    def served(self) -> Counter[bytes]:
        """Return what a unit leads to."""
        found = Counter[bytes]()
        for units in self._queues.values():
            for place, size in units.units:
                message = self._records.get(place)
                if message is not None and message.size == size:
                    found[message.body] += 1
        return found

    def _enter(self, message: Message) -> None:
        """ConsumeQueue#putMessagePositionInfo: what it has already is passed over."""
        if not is_consumable(message):
            return
        units = self._queues.setdefault((message.topic, message.queue_id), Units(0))
        place, size = message.physical_offset, message.size
        if place + size <= units.end:
            return
        if message.queue_offset < units.first + len(units.units):
            return
        units.units.append((place, size))


def _record(data: bytes, at: int) -> Message | None:
    try:
        message = oracle.decode(data, at)
    except (oracle.NotARecordError, struct.error, UnicodeDecodeError):
        return None
    return message if message.body_crc is None else None

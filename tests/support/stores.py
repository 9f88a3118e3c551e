"""Lays out a store directory as a broker would, from oracle messages.

`place` gives every message its queue offset and its position in the CommitLog; `lay_out` writes
the files. Small files put a boundary everywhere. What a broker does over weeks is asked for by a
field of Layout: expired heads, queues that did not start at 0, a crash, preallocated files.
"""

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from support.oracle import (
    BLANK,
    FILLER,
    PREPARED,
    ROLLBACK,
    Message,
    blank,
    encode,
    index_files,
    sealed,
    unit,
)

UNIT_BYTES = 20
ENTRY_HEAD = struct.Struct(">iiqqqiiii")
ENTRY_UNIT = struct.Struct(">iqiqq")
TERM = 1
Queue = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The broker's settings and history."""

    commit_log_bytes: int = 4096  # mappedFileSizeCommitLog
    queue_units: int = 16  # mappedFileSizeConsumeQueue / 20
    index_slots: int = 7  # maxHashSlotNum
    index_units: int = 40  # maxIndexNum
    index: bool = True
    index_tags: bool = True  # as 5.5.0
    start: int = 0  # name of the first CommitLog file ever
    expired_files: int = 0  # CommitLog files deleted since, with the queue files only they fill
    first_queue_offsets: Mapping[Queue, int] = field(default_factory=dict)
    preallocated: bool = False  # an all-zero CommitLog file after the last
    checkpoint: bool = True
    abort: bool = False  # the broker runs, or crashed
    lock: bool = True
    config: bool = True
    dledger: str = ""  # dLegerSelfId of a broker in a group: its records lie in entries
    group_offsets: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)

    @property
    def log_folder(self) -> str:
        """The folder of the CommitLog."""
        return f"dledger-{self.dledger}/data" if self.dledger else "commitlog"

    @property
    def head_bytes(self) -> int:
        """Bytes before each record."""
        return ENTRY_HEAD.size if self.dledger else 0


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A store on disk and what is in it. `messages` are all ever written, in log order."""

    root: Path
    layout: Layout
    messages: tuple[Message, ...]
    low: int
    high: int

    @property
    def held(self) -> tuple[Message, ...]:
        """The records that expiry has left."""
        return tuple(m for m in self.messages if m.physical_offset >= self.low)

    @property
    def queues(self) -> dict[Queue, list[Message]]:
        """The messages a consumer can get, queue by queue, in order of queue offset."""
        found: dict[Queue, list[Message]] = {}
        for m in self.messages:
            if is_consumable(m):
                found.setdefault((m.topic, m.queue_id), [])
                found[m.topic, m.queue_id] += [m] if m.physical_offset >= self.low else []
        return found

    @property
    def bounds(self) -> dict[Queue, tuple[int, int]]:
        """(minOffset, maxOffset) of every queue; an all-expired queue keeps its maximum."""
        highs = {
            (m.topic, m.queue_id): m.queue_offset + 1 for m in self.messages if is_consumable(m)
        }
        return {
            queue: (held[0].queue_offset if held else highs[queue], highs[queue])
            for queue, held in self.queues.items()
        }

    def file_of(self, m: Message) -> tuple[Path, int]:
        """Return the CommitLog file of a record and its position in it."""
        size = self.layout.commit_log_bytes
        index, position = divmod(m.physical_offset - self.layout.start, size)
        name = f"{self.layout.start + index * size:020d}"
        return self.root / self.layout.log_folder / name, position

    def unit_of(self, queue: Queue, queue_offset: int) -> tuple[Path, int]:
        """Return the ConsumeQueue file of a unit and its position in it."""
        index, within = divmod(queue_offset, self.layout.queue_units)
        name = f"{index * self.layout.queue_units * UNIT_BYTES:020d}"
        path = self.root / "consumequeue" / queue[0] / str(queue[1]) / name
        return path, within * UNIT_BYTES


class MakeStore(Protocol):
    """Lays out a store of these messages in a fresh directory: the fixture `store`."""

    def __call__(self, messages: Iterable[Message], layout: Layout | None = None) -> Laid: ...


def is_consumable(m: Message) -> bool:
    """CommitLogDispatcherBuildConsumeQueue: prepared and rolled-back records enter no queue."""
    return m.transaction not in (PREPARED, ROLLBACK)


def place(messages: Iterable[Message], layout: Layout | None = None) -> list[Message]:
    """Return the messages with queue offsets, positions and a store time that never goes back."""
    layout = layout or Layout()
    nexts: dict[Queue, int] = defaultdict(int, layout.first_queue_offsets)
    position, now, placed = layout.start, 0, []
    for m in messages:
        room = layout.commit_log_bytes - (position - layout.start) % layout.commit_log_bytes
        size = layout.head_bytes + m.size
        assert size + 8 <= layout.commit_log_bytes, "no file can hold this record"
        if size + 8 > room:
            position += room
        now = max(now, m.store_timestamp_ms)
        queue_offset = 0
        if is_consumable(m):
            queue_offset = nexts[m.topic, m.queue_id]
            nexts[m.topic, m.queue_id] += 1
        start = position + layout.head_bytes
        at = replace(m, queue_offset=queue_offset, physical_offset=start, store_timestamp_ms=now)
        placed.append(sealed(at))
        position += size
    return placed


def lay_out(root: Path, messages: Iterable[Message], layout: Layout | None = None) -> Laid:
    """Write the store of `messages` into `root`, an empty or missing directory."""
    layout = layout or Layout()
    placed = place(messages, layout)
    high = placed[-1].physical_offset + placed[-1].size if placed else layout.start
    low = layout.start + layout.expired_files * layout.commit_log_bytes
    laid = Laid(root=root, layout=layout, messages=tuple(placed), low=low, high=high)
    root.mkdir(parents=True, exist_ok=True)
    if layout.dledger:
        _write_entries(laid)
    else:
        _write_commit_log(laid)
    _write_consume_queues(laid)
    if layout.index:
        _write_index(laid)
    if layout.config:
        _write_config(laid)
    if layout.checkpoint:
        _write_checkpoint(laid)
    if layout.lock:
        (root / "lock").write_bytes(b"lock")
    if layout.abort:
        (root / "abort").write_bytes(b"4711")
    return laid


def _write_commit_log(laid: Laid) -> None:
    folder, size = laid.root / "commitlog", laid.layout.commit_log_bytes
    folder.mkdir()
    files: dict[int, bytes] = {}
    for m in laid.messages:
        start = m.physical_offset - (m.physical_offset - laid.layout.start) % size
        files[start] = files.get(start, b"") + encode(m)
    last = max(files, default=laid.layout.start)
    if laid.layout.preallocated:
        files[last + size] = b""
    for start, data in files.items():
        room = size - len(data)
        if start >= laid.low:
            rest = blank(room) if start < last else bytes(room)
            (folder / f"{start:020d}").write_bytes(data + rest)


def _write_entries(laid: Laid) -> None:
    """Write DLedger's data, index and checkpoint: all entries are committed."""
    size, files, units = laid.layout.commit_log_bytes, defaultdict[int, bytes](bytes), b""
    for number, m in enumerate(laid.messages):
        position = m.physical_offset - ENTRY_HEAD.size
        whole = ENTRY_HEAD.size + m.size
        head = ENTRY_HEAD.pack(1, whole, number, TERM, position, 0, 0, 0, m.size)
        files[position - (position - laid.layout.start) % size] += head + encode(m)
        units += ENTRY_UNIT.pack(1, position, whole, number, TERM)
    last = max(files, default=laid.layout.start)
    data, index = laid.root / laid.layout.log_folder, laid.root / f"dledger-{laid.layout.dledger}"
    data.mkdir(parents=True)
    (index / "index").mkdir()
    for start, written in files.items():
        room = size - len(written)
        rest = struct.pack(">ii", -1, room).ljust(room, b"\0") if start < last else bytes(room)
        (data / f"{start:020d}").write_bytes(written + rest)
    (index / "index" / f"{0:020d}").write_bytes(units.ljust(len(units) + 320, b"\0"))
    end = len(laid.messages) - 1
    (index / "checkpoint").write_text(f"committedIndex={end}\nendIndex={end}\n")
    (index / "currterm").write_text(f"voteLeader={laid.layout.dledger}\ncurrTerm={TERM}\n")


def _write_consume_queues(laid: Laid) -> None:
    per_file = laid.layout.queue_units
    (laid.root / "consumequeue").mkdir()
    units: dict[Queue, dict[int, bytes]] = defaultdict(dict)
    live: dict[Queue, set[int]] = defaultdict(set)
    for m in laid.messages:
        if is_consumable(m):
            queue = (m.topic, m.queue_id)
            units[queue][m.queue_offset] = unit(m)
            live[queue] |= {m.queue_offset} if m.physical_offset >= laid.low else set()
    for (topic, queue_id), of_queue in units.items():
        folder = laid.root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        last = max(of_queue) // per_file
        first = min(live[topic, queue_id], default=max(of_queue)) // per_file
        for number in range(first, last + 1):
            slots = range(number * per_file, (number + 1) * per_file)
            filler = struct.pack(">qiq", *FILLER)
            data = b"".join(
                of_queue.get(k, filler if k < min(of_queue) else bytes(UNIT_BYTES)) for k in slots
            )
            (folder / f"{slots.start * UNIT_BYTES:020d}").write_bytes(data)


def _write_index(laid: Laid) -> None:
    layout, folder = laid.layout, laid.root / "index"
    folder.mkdir()
    files = index_files(
        list(laid.messages),
        slots=layout.index_slots,
        units=layout.index_units,
        tags=layout.index_tags,
    )
    for number, file in enumerate(files):
        # IndexService#deleteExpiredFile: files that end before the log are gone.
        if file.end >= laid.low:
            (folder / f"20261121030{number:06d}").write_bytes(file.bytes())


def _write_checkpoint(laid: Laid) -> None:
    last = laid.messages[-1].store_timestamp_ms if laid.messages else 0
    start = laid.messages[-1].physical_offset if laid.messages else 0
    page = struct.pack(">qqqqqq", last, last, 0, 0, 0, start)
    (laid.root / "checkpoint").write_bytes(page.ljust(4096, b"\0"))


def _write_config(laid: Laid) -> None:
    folder = laid.root / "config"
    folder.mkdir()
    counts: dict[str, int] = {}
    for m in laid.messages:
        counts[m.topic] = max(counts.get(m.topic, 0), m.queue_id + 1)
    write_json(folder / "topics.json", topics_json(counts))
    write_json(
        folder / "consumerOffset.json",
        {
            "offsetTable": {
                f"{topic}@{group}": dict(held)
                for (topic, group), held in laid.layout.group_offsets.items()
            }
        },
    )


def topics_json(queue_counts: Mapping[str, int]) -> dict[str, object]:
    """Return the content of topics.json as 5.x writes it."""
    return {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
        "topicConfigTable": {
            topic: {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            }
            for topic, count in queue_counts.items()
        },
    }


def write_json(path: Path, value: object) -> None:
    """Write `value` as fastjson does, and the same as its .bak."""
    text = fastjson(value)
    path.write_text(text, encoding="utf-8")
    path.with_name(path.name + ".bak").write_text(text, encoding="utf-8")


def fastjson(value: object, depth: int = 0) -> str:
    """Return JSON as brokers write it: tabs, and integer keys without quotes."""
    if isinstance(value, dict):
        parts = [
            f"{key if isinstance(key, int) else _quoted(key)}:{fastjson(item, depth + 1)}"
            for key, item in value.items()
        ]
        return _bracketed("{", parts, "}", depth)
    if isinstance(value, list):
        return _bracketed("[", [fastjson(item, depth + 1) for item in value], "]", depth)
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _bracketed(opening: str, parts: Sequence[str], closing: str, depth: int) -> str:
    if not parts:
        return opening + closing
    tabs = "\t" * depth
    return opening + ",".join(f"\n{tabs}\t{part}" for part in parts) + f"\n{tabs}{closing}"


def stored(root: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of every CommitLog file of a store, in order."""
    for path in sorted((root / "commitlog").iterdir()):
        yield int(path.name), path.read_bytes()


def is_blank(data: bytes) -> bool:
    """Tell whether `data` is nothing but a blank record."""
    return len(data) >= 8 and struct.unpack_from(">ii", data) == (len(data), BLANK)


def packed(messages: Iterable[Message]) -> tuple[bytes, list[int], list[int]]:
    """Return the records of `messages` end to end, and where each starts and how long it is."""
    records = [encode(m) for m in messages]
    sizes = [len(record) for record in records]
    return b"".join(records), [sum(sizes[:i]) for i in range(len(sizes))], sizes

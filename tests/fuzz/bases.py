"""The stores that mutants are made of, and what each of them holds.

Small ones that `stores.lay_out` makes, among them a replica of a controller's group and a store
with its tiered storage, one that was written by mqlog itself, and the two golden ones. A base knows
where each message lies, so that of a mutant the touched messages are known: all others must still
be read as they were.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from fuzz.decided import JOB, made_up, with_sum
from fuzz.looks import TIER, tiered_rows, whole_rows
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config import stream_groups
from mqstore.format.epochs import EPOCH_FILE, IDENTITY_FILE
from support import expectations, goldens, oracle, writing
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, Queue, is_consumable, lay_out, write_json
from support.tiers import lay_out_tier

Key = tuple[str, int, int]
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GOLDEN_UNITS = 200


@dataclass(frozen=True)
class Held:
    """One message: where its record and its unit lie (path, position, bytes), and its row."""

    key: Key
    record: tuple[str, int, int]
    unit: tuple[str, int, int]
    row: int


@dataclass
class Base:
    """A store, whole. `fields` are (position, width) of numbers, by file; `table` its messages."""

    name: str
    root: Path
    files: dict[str, bytes]
    directories: list[str]
    table: pa.Table
    held: dict[Key, Held] = field(default_factory=dict)
    fields: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    is_unclean: bool = False

    @property
    def outside(self) -> Path:
        """A directory beside the store, whose secret must never be seen."""
        return self.root.parent / "outside"


def sound(topic: str, body: bytes = b"", queue_id: int = 0, **properties: str) -> Message:
    return Message(
        topic=topic, body=body, queue_id=queue_id, properties=join_properties(properties)
    )


def some(rng: random.Random, count: int) -> list[Message]:
    """Messages of all kinds: packed, sealed, V2, IPv6, retried, delayed, half ones."""
    body = bytes(rng.randrange(97, 105) for _ in range(40))
    v6 = oracle.Host(ip=bytes(range(16)))
    found = [
        sound("T", b"one", TAGS="A", KEYS="k0 k", UNIQ_KEY="0" * 32),
        sound("%RETRY%g", body, UNIQ_KEY="a", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="0" * 32),
        sound("%DLQ%g", body, UNIQ_KEY="b", RETRY_TOPIC="T"),
        sound(oracle.SCHEDULE_TOPIC, REAL_TOPIC="T", REAL_QID="0", DELAY="1", UNIQ_KEY="c"),
        sound("rmq_sys_wheel_timer", TIMER_OUT_MS="5000", REAL_TOPIC="T", UNIQ_KEY="d"),
        sound(HALF, UNIQ_KEY="e", REAL_TOPIC="T"),
        sound(OP, b"0,", TAGS="d"),
        oracle.with_property_crc(sound("T", b"sealed", TAGS="A")),
        Message(magic=oracle.V2, body=b"v2", properties=b"TAGS\x01B"),
        Message(sys_flag=oracle.BORN_V6 | oracle.STORE_V6, born_host=v6, store_host=v6),
        Message(sys_flag=oracle.PREPARED, body=b"prepared"),
    ]
    for codec in (0, oracle.LZ4, oracle.ZSTD, oracle.ZLIB):
        packed = oracle.compress(body * 4, codec)
        found.append(Message(body=packed, sys_flag=oracle.COMPRESSED | codec, queue_id=1))
    while len(found) < count:
        n = len(found)
        found.append(sound("TU"[n % 2], body, n % 2, TAGS="AB"[n % 2], KEYS=f"k{n}"))
    rng.shuffle(found)
    return found


SMALL: dict[str, Layout] = {
    "small": Layout(commit_log_bytes=8192, index_slots=5, index_units=60),
    "rolled": Layout(commit_log_bytes=2048, queue_units=3, index_slots=3, index_units=9),
    "expired": Layout(commit_log_bytes=1024, queue_units=4, expired_files=2, preallocated=True,
                      index=False, start=2**41),
    "unclean": Layout(commit_log_bytes=2048, queue_units=5, abort=True, first_queue_offsets={
        ("T", 0): 3, ("U", 1): 7}),
    "entries": Layout(commit_log_bytes=2048, queue_units=5, dledger="n0"),
    "replica": Layout(commit_log_bytes=2048, queue_units=5, index_slots=3, index_units=20),
    "tiered": Layout(commit_log_bytes=1024, queue_units=4, expired_files=2),
}  # fmt: skip
GOLDEN = tuple(f"golden-{version}" for version in goldens.VERSIONS)
LOGS = ("commitlog/", "dledger-n0/data/")
NAMES = (*SMALL, "ours", "pending", *GOLDEN)


def make(name: str, folder: Path) -> Base:
    """Make the base of that name in an empty directory."""
    outside = folder / "outside"
    outside.mkdir(parents=True)
    (outside / "secret").write_bytes(SECRET * 300)
    (outside / "linked").write_bytes(bytes(range(256)) * 20)
    (outside / "topics.json").write_bytes(b'{"topicConfigTable":{"STOLEN":{}}}')
    if name in GOLDEN:
        root = goldens.unpack(name.removeprefix("golden-"), folder)
        return _base(name, root, GOLDEN_UNITS)
    if name in ("ours", "pending"):
        root = _ours(folder / "store")
        if name == "pending":
            _decide(root)
        return _base(name, root, units=10)
    layout = SMALL[name]
    offsets = {("T", "g"): {0: 1, 1: 0}, (HALF, "CID_RMQ_SYS_TRANS"): {0: 0}, ("U", "h"): {1: 1}}
    layout = Layout(**{**vars(layout), "group_offsets": offsets})
    messages = some(random.Random(name), 24)
    if name != "small":  # A look opens every queue: few of them make for many mutants.
        messages = [m for m in messages if m.topic in ("T", "U", oracle.SCHEDULE_TOPIC)]
    laid = lay_out(folder / "store", messages, layout)
    write_json(laid.root / "config" / "delayOffset.json", {"offsetTable": {1: 0}})
    groups: dict[str, Any] = {"subscriptionGroupTable": {"g": {"groupName": "g"}}}
    write_json(laid.root / "config" / "subscriptionGroup.json", groups)
    of_topic = {"groupFilterData": {"h": {"expressionType": "SQL92", "expression": "a > 1"}}}
    write_json(laid.root / "config/consumerFilter.json", {"filterDataByTopic": {"U": of_topic}})
    (laid.root / "config" / "timercheck").write_bytes(struct.pack(">qqqq", 6000, 0, 1, 0))
    if name == "replica":
        _join_group(laid)
    base = _base(name, laid.root, layout.queue_units)
    if name == "tiered":
        _with_tier(base, laid)
    read = expectations.rows(base.table)
    for m in filter(is_consumable, laid.held):
        row = expectations.row(m, None)
        del row["brokerName"]
        assert row == read[base.held[m.topic, m.queue_id, m.queue_offset].row]
    return base


SECRET = b"secret of another directory "


def _ours(root: Path) -> Path:
    settings = {**writing.SMALL, "mapped_file_size_commit_log": 2048}
    for n in range(3):
        keys = [f"k{n}", "k", None, "x y"]
        rows = writing.rows(4, topic=["T", "U", "T", "U"], keys=keys, tags="A")
        writing.append(root, rows, **settings)
        settings = {}
    writing.append(root, writing.rows(2), txn_app_id="app", txn_version=3)
    stream_groups.publish(StoreDir.at(root), "stream", {("T", 0): 1, ("U", 0): 2})
    return root


def _decide(root: Path) -> None:
    """Leave a decision that is not carried out yet: what readers see ends where it begins."""
    last = writing.held(root)[-1]
    tail = last.physical_offset + last.size
    body = made_up(tail=tail, first=tail, last=tail, end=tail + 200, commit_log_size=2048)
    (root / ".mqlog" / "txn" / "pending.json").write_text(with_sum(body))
    (root / "abort").write_text(f"mqlog:{JOB}")


def _join_group(laid: Laid) -> None:
    """Make the store one of a replica: two epochs, and the last record is not confirmed."""
    text = f"1-0\n3-{laid.messages[len(laid.messages) // 2].physical_offset}\n"
    for path in (laid.root / EPOCH_FILE, laid.root / f"{EPOCH_FILE}.bak"):
        path.write_text(with_epoch_sum(f"2\n0\n{text}"))
    (laid.root / IDENTITY_FILE).write_text("DefaultCluster#broker-a#1")
    checkpoint = bytearray((laid.root / "checkpoint").read_bytes())
    checkpoint[32:40] = laid.messages[-1].physical_offset.to_bytes(8)
    (laid.root / "checkpoint").write_bytes(checkpoint)


def with_epoch_sum(text: str) -> str:
    """Make the sum in the second line of epochFileCheckpoint right, as whoever means harm would."""
    count, _, rest = text.partition("\n")
    entries = rest.partition("\n")[2]
    return f"{count}\n{zlib.crc32(entries.encode()) & 0x7FFFFFFF}\n{entries}"


def _with_tier(base: Base, laid: Laid) -> None:
    """Lay out its tier in the store's own folder, and let the base have what only the tier has."""
    of_queue = lay_out_tier(base.root / TIER, laid)
    for path in sorted(base.root.rglob("*")):
        name = str(path.relative_to(base.root))
        if path.is_dir() and name not in base.directories:
            base.directories.append(name)
        elif path.is_file() and name not in base.files:
            base.files[name] = path.read_bytes()
    base.table = tiered_rows(base.root)
    rows = {key: row for row, key in enumerate(keys_of(base.table))}
    base.held = {key: replace(held, row=rows[key]) for key, held in base.held.items()}
    for (topic, queue_id), messages in of_queue.items():
        for m in messages:
            key = (topic, queue_id, m.queue_offset)
            record = _in_tier(base, f"{topic}/{queue_id}/COMMIT_LOG", m.physical_offset, m.size)
            unit = _in_tier(base, f"{topic}/{queue_id}/CONSUME_QUEUE", m.queue_offset * 20, 20)
            base.fields.setdefault(record[0], []).extend(_record_fields(record[1], m))
            base.fields.setdefault(unit[0], []).extend((unit[1] + n, w) for n, w in _UNIT_FIELDS)
            base.held.setdefault(key, Held(key, record, unit, rows[key]))


def _in_tier(base: Base, folder: str, position: int, size: int) -> tuple[str, int, int]:
    """Return where in which segment something lies."""
    starts = {
        int(path[-20:]): path for path in base.files if path.startswith(TIER) and folder in path
    }
    start = max(start for start in starts if start <= position)
    return starts[start], position - start, size


def _base(name: str, root: Path, units: int) -> Base:
    paths = sorted(root.rglob("*"))
    files = {str(p.relative_to(root)): p.read_bytes() for p in paths if p.is_file()}
    directories = [str(p.relative_to(root)) for p in paths if p.is_dir()]
    table = whole_rows(root)
    rows = {key: row for row, key in enumerate(keys_of(table))}
    base = Base(name, root, files, directories, table, is_unclean="abort" in files)
    for path, position, m in _records(files):
        key = (m.topic, m.queue_id, m.queue_offset)
        base.fields.setdefault(path, []).extend(_record_fields(position, m))
        if not path.startswith("commitlog/"):
            base.fields[path] += _head_fields(position - 48)
        if is_consumable(m):
            base.held[key] = Held(
                key,
                (path, position, m.size),
                _unit_place(files, (m.topic, m.queue_id), m.queue_offset, units),
                rows[key],
            )
    for path, data in files.items():
        for start, numbers in _TABLES.items():
            if path.startswith(start):
                base.fields[path] = list(numbers(data))
    return base


def keys_of(table: pa.Table) -> list[Key]:
    """Topic, queueId and queueOffset of each row."""
    names = ("topic", "queueId", "queueOffset")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def _records(files: dict[str, bytes]) -> Iterator[tuple[str, int, Message]]:
    for path, data in files.items():
        if path.startswith(LOGS):
            walk = oracle.walk if path.startswith("commitlog/") else oracle.walk_entries
            yield from ((path, position, m) for position, m in walk(data))


def _unit_place(
    files: dict[str, bytes], queue: Queue, queue_offset: int, units: int
) -> tuple[str, int, int]:
    number, within = divmod(queue_offset, units)
    path = f"consumequeue/{queue[0]}/{queue[1]}/{number * units * 20:020d}"
    assert path in files
    return path, within * 20, 20


def _record_fields(position: int, m: Message) -> Iterator[tuple[int, int]]:
    """Each number of a record, whose layout depends on its hosts and its magic code."""
    born, store = len(m.born_host.ip), len(m.store_host.ip)
    topic = 2 if m.magic == oracle.V2 else 1
    widths = [4, 4, 4, 4, 4, 8, 8, 4, 8, born, 4, 8, store, 4, 4, 8, 4]
    widths += [len(m.body), topic, len(m.topic.encode()), 2]
    for width in widths:
        if width in (1, 2, 4, 8):
            yield position, width
        position += width


def _head_fields(position: int) -> Iterator[tuple[int, int]]:
    """Each number of the head of a DLedger entry."""
    for width in (4, 4, 8, 8, 8, 4, 4, 4, 4):
        yield position, width
        position += width


def _ledger_fields(data: bytes) -> Iterator[tuple[int, int]]:
    for at in range(0, len(data) - 31, 32):
        yield from ((at, 4), (at + 4, 8), (at + 12, 4), (at + 16, 8), (at + 24, 8))


def _index_fields(data: bytes) -> Iterator[tuple[int, int]]:
    yield from ((at, 8) for at in range(0, 32, 8))
    yield from ((at, 4) for at in range(32, min(len(data.rstrip(b"\0")), 2000), 4))


_UNIT_FIELDS = ((0, 8), (8, 4), (12, 8))


def _queue_fields(data: bytes) -> Iterator[tuple[int, int]]:
    for at in range(0, min(len(data.rstrip(b"\0")) + 20, len(data)) - 19, 20):
        yield from ((at + within, width) for within, width in _UNIT_FIELDS)


_TABLES: dict[str, Callable[[bytes], Iterator[tuple[int, int]]]] = {
    "consumequeue/": _queue_fields,
    "index/": _index_fields,
    "dledger-n0/index/": _ledger_fields,
    "checkpoint": lambda _: iter([(at, 8) for at in range(0, 48, 8)]),
    "config/timercheck": lambda _: iter([(at, 8) for at in range(0, 32, 8)]),
}

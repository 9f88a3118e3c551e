"""The same messages in each kind of place that a read takes, and what may happen to them there.

96 messages of one topic lie in two queues, four of a queue side by side: a batch ConsumeQueue has
them in one record. A CommitLog file has 4 KiB, a ConsumeQueue file 16 units.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from live.loopback import FakeCluster, FakeQueue
from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import LocalBacking
from support import batch_stores, oracle, rocksdb
from support.oracle import Message
from support.s3_server import BUCKET, S3Server
from support.stores import Layout, lay_out, place, topics_json, write_json

TOPIC: Final = "shop.orders 订单@1"
"""A name that each kind of place can have, although nobody can make it today."""
START_MS: Final = 1_700_000_000_000
TOGETHER: Final = 4
_COUNT: Final = 96
_LAYOUT: Final = Layout()
_UNITS: Final = _LAYOUT.queue_units


def messages() -> list[Message]:
    """What was sent, in the order of the log."""
    return [
        Message(
            topic=TOPIC,
            queue_id=n // TOGETHER % 2,
            body=b"%d" % n * 50,
            properties=oracle.join_properties({"TAGS": "AB"[n % 3 == 0]}),
            store_timestamp_ms=START_MS + 10 * (n // TOGETHER),
        )
        for n in range(_COUNT)
    ]


class Place(Protocol):
    """A place with the messages."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options of a read of it."""

    @property
    def held(self) -> list[Message]:
        """The messages that it holds now, by queue and queue offset."""

    def expire(self, part: int) -> None:
        """Delete the oldest half (2) or quarter (4) of the log's files, as a broker does.

        ConsumeQueue files of which no record is left go as well.
        """

    def damage(self, message: Message) -> list[Message]:
        """Break the record of a message; return the messages that are lost with it."""


@dataclass
class Store:
    """A store in a directory. ``records`` are the places and sizes of the log by message."""

    root: Path
    log: Path
    messages: Sequence[Message]
    options: Mapping[str, str]
    folder: str = "consumequeue"
    unit_bytes: int = 20
    per_file: int = _UNITS
    together: int = 1
    keeps_units: bool = True
    low: int = 0

    @property
    def held(self) -> list[Message]:
        found = [m for m in self.messages if m.physical_offset >= self.low]
        return sorted(found, key=lambda m: (m.queue_id, m.queue_offset))

    def expire(self, part: int) -> None:
        self.low = _low_of(self.messages, part)
        for path in sorted(self.log.iterdir()):
            if int(path.name) < self.low:
                path.unlink()
        lows: dict[int, int] = {}
        for message in self.held:
            lows.setdefault(message.queue_id, message.queue_offset)
        for path in sorted((self.root / self.folder).glob("*/*/*")):
            # ConsumeQueue#deleteExpiredFile: the last record of the file expired.
            end = int(path.name) // self.unit_bytes + self.per_file
            if end * self.together <= lows[int(path.parent.name)]:
                path.unlink()

    def damage(self, message: Message) -> list[Message]:
        start = message.physical_offset // _LAYOUT.commit_log_bytes * _LAYOUT.commit_log_bytes
        path = self.log / f"{start:020d}"
        data = bytearray(path.read_bytes())
        data[message.physical_offset - start + 4] ^= 0xFF  # of the magic
        path.write_bytes(data)
        return [m for m in self.messages if m.physical_offset == message.physical_offset]


class InRocks(Store):
    """Its database loses units of expired records only when it is compacted."""

    def expire(self, part: int) -> None:
        super().expire(part)
        if not self.keeps_units:
            units = {
                (TOPIC, queue_id): [
                    (m.queue_offset, m.physical_offset, m.size, 0, m.store_timestamp_ms)
                    for m in self.held
                    if m.queue_id == queue_id
                ]
                for queue_id in (0, 1)
            }
            shutil.rmtree(self.root / "consumequeue")
            rocksdb.write_queues(self.root / "consumequeue", units)


class ByLog(Store):
    """``forgets``: its tasks do not see what the driver kept in the cache directory."""

    forgets: bool = False

    def expire(self, part: int) -> None:
        super().expire(part)
        if self.forgets:
            shutil.rmtree(self.options["cacheDir"], ignore_errors=True)


@dataclass
class Objects:
    """A copy of a store in an object store."""

    server: S3Server
    store: Store
    options: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        name = f"places/{self.store.root.parent.name}/store"
        self.options = {"path": self.server.upload(self.store.root, name), **self.server.options}
        self._key = name

    @property
    def held(self) -> list[Message]:
        return self.store.held

    def expire(self, part: int) -> None:
        before = self._files()
        self.store.expire(part)
        system = self.server.system()
        for name in before - self._files():
            system.delete_file(f"{BUCKET}/{self._key}/{name}")

    def damage(self, message: Message) -> list[Message]:
        lost = self.store.damage(message)
        for path in self.store.log.iterdir():
            name = path.relative_to(self.store.root)
            self.server.put(f"{self._key}/{name}", path.read_bytes())
        return lost

    def _files(self) -> set[str]:
        root = self.store.root
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@dataclass
class Point:
    """A point of a repository. What happens to the store happens to the point that is its copy."""

    folder: Path
    store: Store
    options: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = {"path": f"{self.folder}/repository@1"}
        self._take()

    @property
    def held(self) -> list[Message]:
        return self.store.held

    def expire(self, part: int) -> None:
        self.store.expire(part)
        self._take()

    def damage(self, message: Message) -> list[Message]:
        lost = self.store.damage(message)
        self._take()
        return lost

    def _take(self) -> None:
        root = self.folder / "repository"
        shutil.rmtree(root, ignore_errors=True)
        take_point(self.store.root, LocalBacking(str(root)))


class AllPoints(Point):
    """All points of a repository: the newest has only half of what the first one has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.options = {"path": f"{self.folder}/repository@all"}

    def _take(self) -> None:
        super()._take()
        later = self.folder / "later" / self.folder.name / "store"
        shutil.rmtree(later, ignore_errors=True)
        shutil.copytree(self.store.root, later)
        replace(self.store, root=later, log=later / "commitlog").expire(2)
        take_point(later, LocalBacking(f"{self.folder}/repository"))


@dataclass
class Running:
    """A broker, which expires messages by the same files."""

    fake: FakeCluster
    messages: Sequence[Message]
    low: int = 0

    def __post_init__(self) -> None:
        for queue_id in (0, 1):
            found: list[Message | None] = [m for m in self.messages if m.queue_id == queue_id]
            self.fake.queues["broker-a", TOPIC, queue_id] = FakeQueue(found)
        self.options = {"path": f"rocketmq://{self.fake.address}", "retryTimeout": "1s"}

    @property
    def held(self) -> list[Message]:
        found = [m for m in self.messages if m.physical_offset >= self.low]
        return sorted(found, key=lambda m: (m.queue_id, m.queue_offset))

    def expire(self, part: int) -> None:
        self.low = _low_of(self.messages, part)
        for queue in self.fake.queues.values():
            kept = [m for m in queue.messages if m and m.physical_offset >= self.low]
            queue.low, queue.messages = kept[0].queue_offset, list(kept)

    def damage(self, message: Message) -> list[Message]:
        record = bytearray(oracle.encode(message))
        record[4] ^= 0xFF
        self.fake.queues["broker-a", TOPIC, message.queue_id].raw[message.queue_offset] = bytes(
            record
        )
        return [message]


def _low_of(sent: Sequence[Message], part: int) -> int:
    """Return where the log begins when one of ``part`` parts of its files expired."""
    files = sent[-1].physical_offset // _LAYOUT.commit_log_bytes + 1
    return files // part * _LAYOUT.commit_log_bytes


def in_directory(folder: Path) -> Store:
    """A store with ConsumeQueues in files."""
    laid = lay_out(folder / "store", messages(), _LAYOUT)
    return Store(laid.root, laid.root / "commitlog", laid.messages, {"path": str(laid.root)})


def in_rocksdb(folder: Path, *, keeps_units: bool, flushed: int = _COUNT) -> Store:
    """A store with ConsumeQueues in RocksDB, which has units of the first ``flushed`` messages."""
    found = in_directory(folder)
    end = found.messages[flushed - 1].physical_offset + 1
    rocksdb.move_queues(found.root, before=end)
    options = {"path": str(found.root)}
    return InRocks(found.root, found.log, found.messages, options, keeps_units=keeps_units)


def in_batches(folder: Path) -> Store:
    """A store with batch ConsumeQueues: four messages have one record."""
    sent = messages()
    groups = [sent[n : n + TOGETHER] for n in range(0, _COUNT, TOGETHER)]
    bases: dict[int, int] = {}
    records = []
    for group in groups:
        base = bases.get(group[0].queue_id, 0)
        bases[group[0].queue_id] = base + TOGETHER
        inner = [batch_stores.client_message(m.body, m.properties) for m in group]
        held = {"INNER_NUM": str(TOGETHER), "INNER_BASE": f"{base:03d}"}
        record = batch_stores.batch(inner, properties=oracle.join_properties(held))
        records.append(
            replace(
                record,
                topic=TOPIC,
                queue_id=group[0].queue_id,
                store_timestamp_ms=group[0].store_timestamp_ms,
            )
        )
    log, root = folder / "store" / "commitlog", folder / "store"
    log.mkdir(parents=True)
    data: dict[int, bytes] = {}
    units: dict[int, list[bytes]] = {}
    found = []
    for group, record in zip(groups, place(records, _LAYOUT), strict=True):
        of_queue = units.setdefault(record.queue_id, [])
        base = len(of_queue) * TOGETHER
        laid = oracle.sealed(replace(record, queue_offset=base))
        start = laid.physical_offset // _LAYOUT.commit_log_bytes * _LAYOUT.commit_log_bytes
        data[start] = data.get(start, b"") + oracle.encode(laid)
        of_queue.append(batch_stores.Record(laid, base, TOGETHER).unit())
        at = laid.physical_offset
        found += [
            replace(m, queue_offset=base + n, physical_offset=at) for n, m in enumerate(group)
        ]
    for start, held_bytes in data.items():
        room = _LAYOUT.commit_log_bytes - len(held_bytes)
        rest = oracle.blank(room) if start < max(data) else bytes(room)
        (log / f"{start:020d}").write_bytes(held_bytes + rest)
    per_file = _UNITS // TOGETHER
    for queue_id, of_queue in units.items():
        files = root / "batchconsumequeue" / TOPIC / str(queue_id)
        files.mkdir(parents=True)
        for first in range(0, len(of_queue), per_file):
            content = b"".join(of_queue[first : first + per_file])
            name = f"{first * batch_stores.UNIT_BYTES:020d}"
            (files / name).write_bytes(content.ljust(per_file * batch_stores.UNIT_BYTES, b"\0"))
    (root / "config").mkdir()
    write_json(root / "config" / "topics.json", topics_json({TOPIC: 2}))
    return Store(
        root,
        log,
        found,
        {"path": str(root)},
        folder="batchconsumequeue",
        unit_bytes=batch_stores.UNIT_BYTES,
        per_file=per_file,
        together=TOGETHER,
    )


def in_dledger(folder: Path) -> Store:
    """A store of a broker in a DLedger group."""
    laid = lay_out(folder / "store", messages(), replace(_LAYOUT, dledger="n0"))
    log = laid.root / laid.layout.log_folder
    return Store(laid.root, log, laid.messages, {"path": str(laid.root)})


def by_log(folder: Path, *, forgets: bool) -> Store:
    """A store read by its CommitLog alone."""
    found = in_directory(folder)
    options = {**found.options, "queues": "log", "cacheDir": str(folder / "walks")}
    made = ByLog(found.root, found.log, found.messages, options)
    made.forgets = forgets
    return made


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """A broker of a cluster."""
    with FakeCluster().running() as fake:
        yield Running(fake, in_directory(folder).messages)


STORES: Final[Mapping[str, Callable[[Path], Store]]] = {
    "directory": in_directory,
    "RocksDB": partial(in_rocksdb, keeps_units=True),
    "compacted RocksDB": partial(in_rocksdb, keeps_units=False),
    "RocksDB and the log behind it": partial(in_rocksdb, keeps_units=True, flushed=20),
    "batch queues": in_batches,
    "DLedger": in_dledger,
    "log": partial(by_log, forgets=False),
    "log without the driver's cache": partial(by_log, forgets=True),
}
POINTS: Final[Mapping[str, Callable[[Path], Store]]] = {
    "point": in_directory,
    "point with RocksDB": partial(in_rocksdb, keeps_units=False),
}
ALL_POINTS: Final = "all points"
KINDS: Final = (*STORES, "object store", *POINTS, ALL_POINTS, "cluster")
AT_REST: Final = frozenset(
    {"log", "log without the driver's cache", "object store", *POINTS, ALL_POINTS}
)
"""The kinds that no stream follows."""

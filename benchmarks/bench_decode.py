"""The core library on one core, beside RocketMQ's Java, naive Python and a copy of memory.

    python -m benchmarks decode

A row is one message, from the ConsumeQueue to a decoded value; the page cache is warm. Our
sides make record batches of those columns (``tag`` keeps one message in a hundred, ``sql`` the
same ones by SQL92); ``mmap`` is ``standard`` with that readMode. ``java`` is
DefaultMessageStore.getMessage and MessageDecoder.decode of every message, on the same store, with
both cores for its compiler and its collector. ``python`` is struct.unpack for each record. ``copy``
copies the records' bytes once. Before anything is timed, all of them must tell of the same
messages.
"""

import contextlib
import itertools
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import naive
from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.peers import StorePeer, store_peer
from benchmarks.rounds import Side, Timed, compare
from mqstore.codec.schema import PROFILES
from mqstore.format.names import mapped_file_name
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin

TOPIC = topic_name(0)
BODIES = {100: 1, 1024: 1, 10_240: 4}  # bytes: by what the number of messages is divided
QUEUES = (1, 4)
NAIVE_ONE_IN = 10
SETTINGS = {
    name: ScanSettings(columns=columns, merged=True, **more)
    for name, columns, more in (
        ("minimal", PROFILES["minimal"], {}),
        ("standard", PROFILES["standard"], {}),
        ("mmap", PROFILES["standard"], {"read_mode": "mmap"}),
        ("full", PROFILES["full"], {}),
        ("kafka", PROFILES["kafka"], {}),
        ("no body", ("topic", "queueOffset"), {}),
        ("tag", PROFILES["standard"], {"tags": "TagR"}),
        ("sql", PROFILES["standard"], {"sql": "TAGS = 'TagR' AND WAIT = TRUE"}),
    )
}
"""As a task of Spark reads: the queues of a store in one pass."""
FILTERED = ("tag", "sql")


def main(count: int) -> None:
    """Measure each size of bodies and number of queues."""
    cores = os.sched_getaffinity(0)
    with store_peer() as peer:
        os.sched_setaffinity(0, {min(cores)})
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        for body_bytes, queues in itertools.product(BODIES, QUEUES):
            shape = Shape(max(100, count // BODIES[body_bytes]), body_bytes, queues)
            with tempfile.TemporaryDirectory() as directory:
                _measure(Path(directory), shape, peer)


def _measure(root: Path, shape: Shape, peer: StorePeer | None) -> None:
    record_bytes = lay_out(root, shape)
    rows = shape.each * shape.queues
    sides = [
        Side(name, partial(_scan, root, shape, settings), shape.rare if name in FILTERED else rows)
        for name, settings in SETTINGS.items()
    ]
    # Their rate is of messages looked at, as that of the others.
    sides = [_of_all(side, rows) if side.name in FILTERED else side for side in sides]
    few = max(1, min(shape.each, rows // NAIVE_ONE_IN))
    sides.append(Side("python", partial(_naive, root, few), few))
    sides.append(Side("copy", partial(_copy, root, record_bytes, rows), rows))
    _check(root, shape, few)
    with contextlib.ExitStack() as stack:
        if peer is not None:
            peer.open(root, shape.log_bytes)
            stack.callback(peer.close)
            _check_peer(root, shape, peer)
            sides.append(Side("java", partial(_java, peer, shape), rows))
        compare(
            "decode",
            f"{shape.body_bytes} B, {shape.queues} queues",
            sides,
            bodyBytes=shape.body_bytes,
            queues=shape.queues,
            recordBytes=record_bytes,
        )


def _of_all(side: Side, rows: int) -> Side:
    def work() -> int:
        kept = side.work()
        assert kept == side.rows
        return rows

    return Side(side.name, work, rows)


def _slices(root: Path, shape: Shape) -> list[QueueSlice]:
    return [
        QueueSlice(StoreOrigin.at(root), "b", TOPIC, queue, 0, shape.each)
        for queue in range(shape.queues)
    ]


def _scan(root: Path, shape: Shape, settings: ScanSettings) -> int:
    return sum(batch.num_rows for batch in scan(_slices(root, shape), settings))


def _naive(root: Path, count: int) -> int:
    return sum(1 for _ in naive.messages(root, TOPIC, 0, count))


def _java(peer: StorePeer, shape: Shape) -> Timed:
    found = peer.read(TOPIC, shape.queues)
    return Timed(found["rows"], found["seconds"])


def _copy(root: Path, record_bytes: int, rows: int) -> int:
    records = np.memmap(root / "commitlog" / mapped_file_name(0), np.uint8, "r")
    whole = min(rows * record_bytes, len(records)) // record_bytes
    target = np.empty(4 << 20, np.uint8)
    for start in range(0, rows * record_bytes, len(target)):
        place = start % max(1, whole * record_bytes)
        piece = records[place : place + len(target)]
        np.copyto(target[: len(piece)], piece)
    return rows


def _check(root: Path, shape: Shape, few: int) -> None:
    columns = (
        "queueId",
        "queueOffset",
        "body",
        "storeTimestamp",
        "tags",
        "keys",
        "properties",
        "msgId",
    )
    slices = [QueueSlice(StoreOrigin.at(root), "b", TOPIC, 0, 0, min(few, 500))]
    ours = pa.Table.from_batches(scan(slices, ScanSettings(columns=columns))).to_pylist()
    theirs = naive.messages(root, TOPIC, 0, min(few, 500))
    for row, other in zip(ours, theirs, strict=True):
        row["properties"] = dict(row["properties"])
        assert tuple(row.values()) == other


def _check_peer(root: Path, shape: Shape, peer: StorePeer) -> None:
    theirs = peer.read(TOPIC, shape.queues)
    settings = ScanSettings(columns=("queueOffset", "body", "properties"))
    ours = {"rows": 0, "bodyBytes": 0, "offsets": 0, "properties": 0}
    for batch in scan(_slices(root, shape), settings):
        ours["rows"] += batch.num_rows
        ours["bodyBytes"] += pc.sum(pc.binary_length(batch["body"])).as_py()
        ours["offsets"] += pc.sum(batch["queueOffset"]).as_py()
        ours["properties"] += len(batch["properties"].keys)
    assert {name: theirs[name] for name in ours} == ours


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)

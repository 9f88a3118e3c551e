"""Messages encoded, staged and committed, on one core, beside RocketMQ's Java and the disk.

    python -m benchmarks encode

``encode`` is the codec alone: columns to CommitLog records with their CRC. ``stage`` is all
that a task does with Arrow batches as Spark gives them (10,000 rows): cast, validate, choose
queues, compose properties with UNIQ_KEY, encode, hash index keys, checksum, write the staged
file. ``commit`` is what the driver does: verify, append, ConsumeQueue, IndexFile, sync; it is
timed from the staged files on, until their names are gone (their blocks are freed a little later;
no other side frees any). ``commit mmap`` is the same with writeMode=mmap. ``java`` puts the
same number of messages into a new store of DefaultMessageStore, in client-encoded batches of 1 MB,
until they are dispatched; it has both cores and syncs nothing. ``disk`` writes the CommitLog's
bytes, all zeros, one after the other into a new file that is not preallocated, and syncs; what it
writes never leaves the processor's cache. ``floor`` is what a commit cannot do without: it reads
the staged file and sums its bytes, then reads it again, sums, and writes the bytes into a
preallocated file, with the commit's hints to the kernel, and syncs.

Before each side that begins with nothing (``stage``, ``disk``, ``floor``, ``java``) a file of twice
the records' bytes is written and removed. A virtual machine may have given free memory back to its
host, and the first write into such a page costs ten times what the next one does: without this, a
side would pay for the memory that the side before it let go.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.peers import StorePeer, store_peer
from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from mqstore.codec.encode import Hosts, Messages, encode
from mqstore.codec.properties_encode import join_blocks
from mqstore.files.base import durable
from mqstore.files.base.read_file import read_into
from mqstore.format.arrays import Recycled
from mqstore.format.crc import crc32
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

BODIES = {100: 1, 1024: 1, 10_240: 4}  # bytes: by what the number of messages is divided
QUEUES = 4
RECORD_ROOM = 250
PIECE = bytes(1 << 20)
FRAME_BYTES = 8 << 20
_GOES_ON = {"encode", "commit", "commit mmap"}  # from what the side before them left


def main(count: int) -> None:
    """Measure each size of bodies."""
    cores = os.sched_getaffinity(0)
    with store_peer() as peer, tempfile.TemporaryDirectory() as directory:
        os.sched_setaffinity(0, {min(cores)})
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        for body_bytes, share in BODIES.items():
            Writes(Path(directory), max(100, count // share), body_bytes, peer).measure()


class Writes:
    """The same rows, written by each side into a directory that is new each time."""

    def __init__(self, home: Path, count: int, body_bytes: int, peer: StorePeer | None) -> None:
        self._home = home
        self._rows = count
        self._body_bytes = body_bytes
        self._peer = peer
        self._batches = batches(count, body_bytes)

    def measure(self) -> None:
        """Print one line."""
        works = {
            "encode": self._encode,
            "stage": self._stage,
            "commit": self._commit,
            "stage mmap": lambda: self._stage("mmap"),
            "commit mmap": self._commit,
            "disk": self._disk,
            "floor": self._floor,
        }
        if self._peer:
            works["java"] = self._java
        before = dict.fromkeys(set(works) - _GOES_ON, self._new) | {"floor": self._new_staged}
        compare(
            "write",
            f"{self._body_bytes} B",
            [Side(name, work, self._rows, before.get(name)) for name, work in works.items()],
            bodyBytes=self._body_bytes,
            queues=QUEUES,
        )
        shutil.rmtree(self._home / "store", ignore_errors=True)

    def _encode(self) -> int:
        hosts = Hosts(bytes([127, 0, 0, 1]), 0, bytes([127, 0, 0, 1]), 10911)
        rows, memory = 0, Recycled(most=2)
        for batch in self._batches:
            zeros = np.zeros(batch.num_rows, np.int32)
            typed = [("KEYS", batch["keys"]), ("TAGS", batch["tags"]), ("WAIT", "true")]
            blocks = join_blocks(batch.num_rows, None, typed)
            born = np.zeros(batch.num_rows, np.int64)
            bodies = batch["body"]
            messages = Messages(("BENCH",), zeros, zeros, zeros, zeros, born, bodies, blocks)
            rows += len(encode(messages, hosts, None, memory).starts)
        return rows

    def _stage(self, write_mode: str = "pwrite") -> Timed:
        begin = time.perf_counter()
        settings = WriteSettings(
            root=str(self._home / "store"),
            create_store=True,
            topic="BENCH",
            queue_nums=QUEUES,
            write_mode=write_mode,
        )
        self._job = prepare(settings, self._batches[0].schema)
        self._manifest = stage(self._job, self._batches, partition=0, attempt=0)
        return Timed(self._rows, time.perf_counter() - begin)

    def _commit(self) -> int:
        return commit(self._job, [self._manifest]).messages

    def _disk(self) -> Timed:
        size = self._rows * (self._body_bytes + RECORD_ROOM)
        begin = time.perf_counter()
        with (self._home / "store").open("wb", buffering=0) as file:
            for _ in range(-(-size // len(PIECE))):
                file.write(PIECE)
            os.fsync(file.fileno())
        return Timed(self._rows, time.perf_counter() - begin)

    def _floor(self) -> int:
        assert self._manifest.segment
        folder, size = Path(self._job.target.staging), self._manifest.segment.size
        staged = os.open(folder / self._manifest.segment.name, os.O_RDONLY)
        log = os.open(self._home / "floor", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        first = self._read_and_write(staged, size, None)
        os.posix_fallocate(log, 0, size)
        assert self._read_and_write(staged, size, log) == first
        os.fdatasync(log)
        os.close(log)
        os.close(staged)
        return self._rows

    def _read_and_write(self, staged: int, size: int, log: int | None) -> int:
        """Return the sum of all staged bytes; write them into ``log``, and let go of them."""
        checksum, block, back = 0, memoryview(bytearray(FRAME_BYTES)), durable.WriteBack()
        for position in range(0, size, len(block)):
            part = block[: size - position]
            read_into(staged, part, position)
            checksum = crc32(part, checksum)
            if log is not None:
                durable.write_at(log, part, position)
                back.wrote(log, position, len(part))
                durable.forget(staged, position, len(part))
        return checksum

    def _java(self) -> Timed:
        assert self._peer
        return self._peer.write(self._home / "store", self._rows, self._body_bytes, QUEUES)

    def _new_staged(self) -> None:
        """Let a staged file be there, which ``floor`` reads."""
        self._new()
        self._stage()
        self._make_resident()

    def _make_resident(self) -> None:
        """Let free memory of twice the records' bytes be the machine's own again."""
        path, size = self._home / "floor", 2 * self._rows * (self._body_bytes + RECORD_ROOM)
        with path.open("wb", buffering=0) as file:
            for _ in range(-(-size // len(PIECE))):
                file.write(PIECE)
        path.unlink()

    def _new(self) -> None:
        old = self._home / "store"
        if old.is_file():
            old.unlink()
        else:
            shutil.rmtree(old, ignore_errors=True)
        self._make_resident()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)

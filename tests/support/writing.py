"""Appends to a store as Spark would: prepare, one stage for each partition, commit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.base.undo import Undo
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import CommitResult, Manifest, WriteJob
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage
from support import oracle
from support.oracle import Message

SMALL: Mapping[str, Any] = {
    "create_store": True,
    "mapped_file_size_commit_log": 8192,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 11,
    "max_index_num": 50,
    "fsync": "none",
}
"""A new store whose files are so small that everything rolls."""


SIZES = FileSizes(commit_log=8192, consume_queue=200, max_hash_slot_num=11, max_index_num=50)


def writer_of(root: Path, sizes: FileSizes = SIZES, undo: Undo | None = None) -> StoreWriter:
    """Return a writer of a store that nobody has locked, with a folder for new files."""
    temp_dir = root / ".mqlog" / "tmp" / "test"
    temp_dir.mkdir(parents=True, exist_ok=True)
    place = StoreDir.at(root)
    return StoreWriter(place, str(temp_dir), sizes, undo or Undo.ended())


def rows(count: int, **columns: Any) -> pa.RecordBatch:
    """Return rows of topic T with short bodies; a column is a sequence or one value for all."""
    given: dict[str, Any] = {
        "body": [f"body {n}".encode() for n in range(count)],
        "topic": "T",
        **columns,
    }
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array(_many(value, count))
        for name, value in given.items()
        if value is not None
    }
    return pa.RecordBatch.from_pydict(arrays)


def prepared(root: Path, schema: pa.Schema, **settings: Any) -> WriteJob:
    return prepare(WriteSettings(root=str(root), **settings), schema)


def staged(job: WriteJob, *partitions: Sequence[pa.RecordBatch]) -> list[Manifest]:
    return [stage(job, part, partition=n, attempt=n + 100) for n, part in enumerate(partitions)]


def append(
    root: Path, *partitions: pa.RecordBatch | Sequence[pa.RecordBatch], **settings: Any
) -> CommitResult:
    """Write the partitions; what a failing task or commit raises comes out after the abort."""
    parts = [[p] if isinstance(p, pa.RecordBatch) else list(p) for p in partitions]
    job = prepared(root, parts[0][0].schema, **settings)
    try:
        manifests = staged(job, *parts)
    except BaseException:
        abort(job, [])
        raise
    return commit(job, manifests)


def held(root: Path) -> list[Message]:
    """Return all records of a store, in log order, as the oracle reads them."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        found += [m for _, m in oracle.walk(path.read_bytes())]
    return found


def of_queue(messages: Iterable[Message], topic: str, queue_id: int) -> list[Message]:
    return [m for m in messages if (m.topic, m.queue_id) == (topic, queue_id)]


def files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file that a broker looks at."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and relative.parts[0] != ".mqlog":
            yield str(relative), path.read_bytes()


def _many(value: Any, count: int) -> list[Any]:
    single = isinstance(value, str | bytes | int | bool | Mapping) or value is None
    return [value] * count if single else list(value)

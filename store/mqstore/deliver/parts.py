"""Messages of a task on their way to the publisher: in the commit's message, or in a file.

The files lie in a directory of the write, which a later try of the same write shares, so that
the publisher that ends the write removes what earlier tries left:

    <stagingPath>/<hash of the write's key>/<partition>-<attempt>-<random>.mqb    an Arrow stream
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mqstore.files.base import durable
from mqstore.files.txn.errors import CorruptStagingError, StagingNotSharedError
from mqstore.files.txn.ledger import Key
from mqstore.files.txn.staging import (
    StagedReader,
    StagedSink,
    collect,
    make_directories,
    remove,
    segment_name,
)

_FOLDER_DIGITS: Final = 32
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HandedMessages:
    """The messages of one task: an Arrow stream, ``data`` itself or a file of ``size`` bytes."""

    data: bytes = field(default=b"", repr=False)
    path: str = ""
    size: int = 0
    digest: str = ""
    """SHA-256 of the file, in hex."""

    def __bool__(self) -> bool:
        """Tell whether there are any messages."""
        return bool(self.data or self.path)

    def check(self) -> None:
        """Raise unless the file is there, and is what the task wrote.

        Raises StagingNotSharedError, CorruptStagingError.
        """
        if not self.path:
            return
        found = hashlib.sha256()
        with self._open() as file:
            for position in range(0, self.size, _READ_BYTES):
                found.update(file.read(position, min(_READ_BYTES, self.size - position)))
        if found.hexdigest() != self.digest:
            raise CorruptStagingError(f"{self.path}: not the bytes that its task wrote")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches, one at a time; of a file that was checked."""
        if not self.path:
            yield from pa.ipc.open_stream(self.data)
            return
        with self._open() as file, pa.PythonFile(_Source(file), mode="r") as source:
            yield from pa.ipc.open_stream(source)

    def _open(self) -> StagedReader:
        directory, _, name = self.path.rpartition("/")
        try:
            return StagedReader(directory, name, self.size)
        except CorruptStagingError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise StagingNotSharedError(_UNSEEN.format(self.path)) from error
            raise


_UNSEEN: Final = (
    "{}: the commit does not see this file, which a task wrote. Driver and executors must share "
    "the directory: set stagingPath to one they do"
)


class PartWriter:
    """Writes the messages of a task to a file. It is there only after ``finish``."""

    def __init__(self, directory: str, schema: pa.Schema, *, partition: int, attempt: int) -> None:
        """Create the file, and the directory where it is missing. Raises OSError."""
        with durable.synced(wanted=False):
            make_directories(directory)
            name = segment_name(partition, attempt)
            self._sink = _HashingSink(directory, name)
        self._path = f"{directory}/{name}"
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch. Raises NoSpaceError, OSError."""
        self._writer.write_batch(batch)

    def finish(self) -> HandedMessages:
        """End the file; a crash of the machine may take it: then the task runs again."""
        self._writer.close()
        with durable.synced(wanted=False):
            self._sink.finish()
        return HandedMessages(path=self._path, size=self._sink.tell(), digest=self._sink.digest())

    def discard(self) -> None:
        """Remove the file."""
        self._sink.discard()


def folder_of(staging_path: str, key: Key) -> str:
    """Return the directory for the files of a write."""
    digest = hashlib.sha256(f"{key.version}/{key.app_id}".encode()).hexdigest()
    return f"{staging_path}/{digest[:_FOLDER_DIGITS]}"


def sweep(staging_path: str, key: Key) -> None:
    """Remove what tasks of any try of a write left, and writes that left files a day ago."""
    remove(folder_of(staging_path, key))
    collect(staging_path)


class _HashingSink(StagedSink):
    """Hashes what is written."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(directory, name)
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return super().write(data)

    def digest(self) -> str:
        return self._hash.hexdigest()


class _Source:
    """A staged file as the Python file object that PyArrow's readers want."""

    def __init__(self, file: StagedReader) -> None:
        self._file = file
        self._at = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        left = self._file.size - self._at
        count = left if size < 0 else min(size, left)
        data = bytes(self._file.read(self._at, count)) if count else b""
        self._at += count
        return data

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True

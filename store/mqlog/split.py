"""A part of a scan, for another process."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from mqlog.readable import Readable, reader_of
from mqstore.request.plan import Work
from mqstore.request.sharing import PackedWork


@dataclass(frozen=True, slots=True, eq=False)
class Split(Readable):
    """A part of a scan: a small value that pickles, for a process, a Ray task or a Dask worker.

    It names what it reads by the place and the pinned ends, so any machine that reaches the place
    reads the same rows. Each has all that it needs; pickled in one list, they share what is the
    same in all. Open splits have their batches in memory each: see ``batch_bytes``.
    """

    _work: Work
    schema: pa.Schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the part's rows; raises as ``Scan.to_reader``."""
        return reader_of(iter([self._work]), self.schema)

    def __repr__(self) -> str:
        return f"<mqlog.Split of {self._work!r:.200}>"


def packed(splits: Iterable[Split]) -> PackedWork:
    """Return the work of splits of one scan, what they share once."""
    return PackedWork.of([split._work for split in splits])

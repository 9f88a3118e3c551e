"""What a query engine asks a Scan by: batches with its columns and its filter, made one at a time.

Arrow's own scanner reads a stream to its end in the background, however slowly its batches are
taken: a ``LIMIT`` would not end the read, and memory would not be bounded. Here it sees one batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import dataset


@dataclass(frozen=True, slots=True, eq=False)
class BatchScanner:
    """As ``pyarrow.dataset.Scanner``: rows of a reader with ``columns`` that pass ``filter``.

    ``columns`` are names, expressions by name, or None for all; ``filter`` an expression or None.
    """

    dataset_schema: pa.Schema
    read: Callable[[], pa.RecordBatchReader]
    columns: Any = None
    filter: Any = None

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._of(()).projected_schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows; it raises what reading raises."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch; a batch is read when it is asked for."""
        return self._passing(self.read())

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, and read no batch behind them."""
        found, left = [], num_rows
        for batch in self.to_batches():
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(found, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self.to_batches())

    def _passing(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._of([batch]).to_table().to_batches()

    def _of(self, batches: Any) -> dataset.Scanner:
        return dataset.Scanner.from_batches(
            iter(batches),
            schema=self.dataset_schema,
            columns=self.columns,
            filter=self.filter,
            use_threads=False,
        )

"""A scan with filters and limits."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING, Any, SupportsIndex

import pyarrow as pa
from pyarrow import dataset

from mqlog.readable import Readable
from mqstore.errors import InvalidOptionError, shown

if TYPE_CHECKING:
    from mqlog.scan import Scan


@dataclass(frozen=True, slots=True, eq=False)
class ScanRows(Readable):
    """Rows of a scan that pass filters and limits, in their order: an immutable value that pickles.

    Filters in front of the first limit narrow the read, as those of an engine do.
    """

    _scan: "Scan"
    schema: pa.Schema
    _steps: tuple[Any, ...] = ()
    """Filters, and of limits the number of rows."""

    def filter(self, condition: dataset.Expression) -> "ScanRows":
        """Return the rows that pass an expression of Arrow: ``pc.field("tags") == "paid"``.

        It names columns of these rows. Raises InvalidOptionError for another value.
        """
        if not isinstance(condition, dataset.Expression):
            expected = 'must be an expression of pyarrow, such as pc.field("tags") == "paid"'
            raise InvalidOptionError("filter", f"a {type(condition).__name__}", expected)
        return replace(self, _steps=(*self._steps, condition))

    def limit(self, num_rows: SupportsIndex) -> "ScanRows":
        """Return the first ``num_rows`` rows. Raises InvalidOptionError for a number below 0."""
        if not isinstance(num_rows, SupportsIndex) or operator.index(num_rows) < 0:
            raise InvalidOptionError("limit", num_rows, "must be a number of rows, 0 or more")
        return replace(self, _steps=(*self._steps, operator.index(num_rows)))

    def select(self, *columns: str | Sequence[str]) -> "ScanRows":
        """Return these rows with those columns; raises as ``Scan.select``."""
        return replace(self, schema=self._scan.select(*columns).schema)

    def count(self) -> int:
        """Return the number of rows; reads the columns of the filters. Raises as ``to_reader``."""
        return sum(batch.num_rows for batch in self._batches([]))

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows; the read ends with the last row. Raises as a Scan's."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(self.schema.names))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with columns of those names, and with what the filters need."""
        left = [step if isinstance(step, int) else None for step in self._steps]
        if 0 in left:
            return
        for batch in self._narrowed(names).to_reader():
            rows = pa.Table.from_batches([batch])
            for number, step in enumerate(self._steps):
                room = left[number]
                if room is None:
                    rows = rows.filter(step)
                    continue
                rows = rows.slice(0, room)
                left[number] = room - rows.num_rows
            yield from rows.select(names or rows.column_names).to_batches()
            if 0 in left:
                return

    def _narrowed(self, names: Sequence[str]) -> "Scan":
        """Return the scan with the columns that are needed, and what its first filters leave."""
        filters = [step for step in self._steps if not isinstance(step, int)]
        used = " ".join(map(str, filters))
        known = [name for name in self._scan.schema.names if name in used]
        scan = self._scan._with_columns([*dict.fromkeys([*names, *known])])
        first = [*takewhile(lambda step: not isinstance(step, int), self._steps)]
        return scan._left_by(reduce(operator.and_, first)) if first else scan

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict, as its batch is read. Raises as ``to_reader``."""
        for batch in self.to_reader():
            yield from batch.to_pylist()

    def __repr__(self) -> str:
        steps = (f"limit {s}" if isinstance(s, int) else f"filter {shown(s)}" for s in self._steps)
        return f"<mqlog.ScanRows of {self._scan!r}; {'; '.join(steps)}>"

"""What a scan and a split of it have in common: rows as Arrow, pandas and Polars."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqlog.errors import MqlogError
from mqlog.keywords import in_keywords
from mqstore.request.plan import Work

if TYPE_CHECKING:
    import polars as pl


class Readable:
    """Rows that can be read any number of times; ``schema`` is the Arrow schema of them."""

    __slots__ = ()
    schema: pa.Schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, batch by batch.

        Raises what reading raises, as its batches are read: CorruptStoreError at a broken record,
        DataLossError at messages that expired since the ends were pinned.
        """
        raise AssertionError  # Each kind has its own.

    def to_table(self) -> pa.Table:
        """Return all rows in memory. Raises as ``to_reader``."""
        return self.to_reader().read_all()

    def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a DataFrame of pandas; ``options`` are those of pyarrow's to_pandas.

        A typed body is a dict with Python's own values. Raises as ``to_reader``, and MqlogError
        where pandas is not installed.
        """
        pandas = needed("pandas", "to_pandas")
        table = self.to_table()
        structs = [field.name for field in table.schema if pa.types.is_struct(field.type)]
        frame = table.drop_columns(structs).to_pandas(**options)
        for name in structs:  # pyarrow makes doubles of whole numbers beside nulls in a struct.
            place = table.schema.get_field_index(name)
            values = table.column(name).to_pylist(maps_as_pydicts="lossy")
            frame.insert(place, name, pandas.Series(values, index=frame.index, dtype=object))
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return all rows as a DataFrame of Polars.

        Raises as ``to_reader``, and MqlogError where Polars is not installed.
        """
        frame: pl.DataFrame = needed("polars", "to_polars").from_arrow(self.to_table())
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow C stream, for any library that takes one."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def needed(module: str, what: str) -> Any:
    """Return a module that is no dependency of mqlog; raises MqlogError if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MqlogError(f"{what} needs {module}: pip install {module}") from None


def reader_of(work: Iterator[Work], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the rows of tasks, one after the other, as a reader with that schema."""
    return pa.RecordBatchReader.from_batches(schema, _batches(work, schema))


def _batches(work: Iterator[Work], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with in_keywords():
        for one in work:
            for batch in one.batches():
                if batch.schema.equals(schema):
                    yield batch
                else:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

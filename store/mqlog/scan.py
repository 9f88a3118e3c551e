"""A lazy read of messages or of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, SupportsIndex

import pyarrow as pa
from pyarrow import dataset

from mqlog.filters import left_of
from mqlog.keywords import in_keywords, keyword
from mqlog.pictures import as_html
from mqlog.polars_filters import condition_of
from mqlog.readable import Readable, needed, reader_of
from mqlog.scan_rows import ScanRows
from mqlog.scanner import BatchScanner
from mqlog.split import Split
from mqstore.errors import shown
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.request.body_schema import with_schema
from mqstore.request.plan import ReadPlan, plan_read, read_schema, schema_of
from mqstore.request.read_options import MESSAGES, ReadOptions

if TYPE_CHECKING:
    import polars as pl

    class _Dataset:
        """What a scan has of an Arrow dataset, for checkers of types: pyarrow declares none."""

        def head(self, num_rows: int, **options: Any) -> pa.Table: ...
        def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]: ...

else:
    _Dataset = dataset.Dataset

_CHEAP: Final = "queueOffset"
_SHOWN_COLUMNS: Final = 8
_ONLY_RAISING: Final = {
    *("join", "join_asof", "sort_by", "take", "get_fragments", "replace_schema"),
    *("_get_fragments", "partition_expression"),
}


class Scan(Readable, _Dataset):
    """A read of messages or of a table: an immutable value that reads nothing until it is used.

    The ends of its queues are pinned at its first use: ``count``, two reads and the scans that
    ``select`` makes of it see the same messages. Rows come queue by queue in the order of their
    offsets; between queues it is the order of the store.

    It is an Arrow dataset, so an engine asks it for the columns that a query names, and for no
    others: ``duckdb.sql("SELECT tags, count(*) FROM scan GROUP BY 1")`` decodes no
    body. Memory is
    bounded by a few batches of ``batch_bytes`` (8 MiB by default).
    """

    _options: ReadOptions
    _schema: pa.Schema
    _pin: "_Pin"

    def __init__(self, options: ReadOptions, schema: pa.Schema, pinned: "_Pin") -> None:
        self.__dict__.update(_options=options, _schema=schema, _pin=pinned)

    @classmethod
    def of_options(cls, options: ReadOptions) -> Self:
        """Return the read that parsed options say; raises InvalidSchemaError for a column.

        Bodies of JSON without a schema are sampled here, which opens the place.
        """
        options = with_schema(options)
        return cls(options, read_schema(options), _Pin(options))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; known without opening the place."""
        return self._schema

    def select(self, *columns: str | Sequence[str]) -> "Scan":
        """Return the scan with those columns, in that order; case is not significant.

        It sees the same messages. Raises InvalidSchemaError for an unknown or repeated column; any
        column of the table may be named, whether this scan has it or not.
        """
        names = [n for one in columns for n in ([one] if isinstance(one, str) else one)]
        return Scan(self._options, schema_of(self._options, names), self._pin)

    def filter(self, condition: dataset.Expression) -> ScanRows:
        """Return the rows that pass an expression of Arrow, such as ``pc.field("queueId") == 2``.

        What can pass is read, and no more. Raises InvalidOptionError for another value.
        """
        return ScanRows(self, self.schema).filter(condition)

    def limit(self, num_rows: SupportsIndex) -> ScanRows:
        """Return the first ``num_rows`` rows. Raises InvalidOptionError for a number below 0."""
        return ScanRows(self, self.schema).limit(num_rows)

    def count(self) -> int:
        """Return the number of rows.

        Without a filter messages are counted by the ends of their queues, and none is read;
        otherwise, and for a table, the rows are read with the cheapest column. Raises as
        ``to_reader``.
        """
        with in_keywords():
            plan: ReadPlan = self._pin.read()
            counted = plan.count()
        if counted is not None:
            return counted
        return sum(batch.num_rows for batch in self._with_columns(()).to_reader())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, batch by batch.

        Opens the place. Raises StoreNotFoundError, NotAStoreError, UnknownTopicError and others at
        once; as batches are read CorruptStoreError at a broken record, unless ``on_corrupt`` says
        otherwise, and DataLossError at messages that expired since the ends were pinned.
        """
        with in_keywords():
            work = self._pin.read().work(self.schema.names)
        return reader_of(iter(work), self.schema)

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        """Return all rows in memory, or what Arrow's ``columns`` and ``filter`` leave of them.

        Raises as ``to_reader``.
        """
        if columns is None and filter is None:
            return self.to_reader().read_all()
        return self.scanner(columns=columns, filter=filter, **options).to_table()

    def to_polars_lazy(self) -> "pl.LazyFrame":
        """Return a LazyFrame of Polars, which reads the columns and the rows that a query needs.

        Raises MqlogError where Polars is not installed.
        """
        plugins = needed("polars.io.plugins", "to_polars_lazy")
        empty = needed("polars", "to_polars_lazy").from_arrow(self.schema.empty_table())
        frame: pl.LazyFrame = plugins.register_io_source(self._frames, schema=empty.schema)
        return frame

    def splits(self, least: int | None = None) -> list[Split]:
        """Return parts that can be read side by side, in other processes: each row is in one.

        There are at least ``least`` of them where there are as many messages; otherwise their
        number follows the bytes and the cores, as the partitions of the Spark source do
        (``max_bytes_per_partition``). Raises as ``to_reader`` when the place is opened.
        """
        with in_keywords():
            work = self._pin.read().work(self.schema.names, least)
        return [Split(one, self.schema) for one in work]

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> BatchScanner:
        """Return a scanner, as Arrow's: what engines call with the columns that they need.

        ``columns`` are names, or expressions by name; ``filter`` is an expression. The columns
        that either names are read, and no others; of messages those that can pass the filter by
        their topic, broker, queue, offset, storeTimestamp and tags.
        """
        asked: Iterable[str] = self.schema.names
        if columns is not None:
            asked = columns if not isinstance(columns, Mapping) else ()
        texts = [*columns.values()] if isinstance(columns, Mapping) else []
        texts += [] if filter is None else [filter]
        used = " ".join(map(str, texts))
        names = [*asked, *(n for n in self.schema.names if n not in asked and n in used)]
        scan = self._left_by(filter)._with_columns(names)
        return BatchScanner(scan.schema, scan.to_reader, columns, filter)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Return the number of rows; with a ``filter`` of Arrow, of those that pass it."""
        if filter is None:
            return self.count()
        rows: int = self.scanner(columns=[], filter=filter, **options).count_rows()
        return rows

    def _left_by(self, condition: dataset.Expression | None) -> "Scan":
        """Return the scan of what can pass a condition; the rows are to be filtered by it."""
        if condition is None:
            return self
        with in_keywords():
            plan = left_of(self._pin.read(), condition, self.schema)
        return Scan(plan.options, self.schema, _Pin(plan.options, plan))

    def _with_columns(self, names: Sequence[str]) -> "Scan":
        """Return the scan with those columns; with a cheap one where there is none."""
        if not names:
            known = self._options.table == MESSAGES
            names = [_CHEAP if known else self.schema.names[0]]
        return Scan(self._options, schema_of(self._options, names), self._pin)

    def _frames(
        self,
        with_columns: list[str] | None,
        predicate: "pl.Expr | None",
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator["pl.DataFrame"]:
        """Yield frames as Polars asks for them: see polars.io.plugins#register_io_source.

        ``n_rows`` counts rows of the scan, before ``predicate``: a limit behind a filter is kept by
        Polars. So a predicate that comes with it cannot narrow the read.
        """
        if predicate is None or n_rows is not None:
            scan = self
        else:
            scan = self._left_by(condition_of(predicate, self.schema))
        if with_columns is not None:
            filtered = [] if predicate is None else predicate.meta.root_names()
            scan = scan._with_columns(list(dict.fromkeys([*with_columns, *filtered])))
        from_arrow = needed("polars", "to_polars_lazy").from_arrow
        left = n_rows
        for batch in scan.to_reader():
            frame: pl.DataFrame = from_arrow(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)
            if left == 0:
                return

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict, as its batch is read. Raises as ``to_reader``."""
        for batch in self.to_reader():
            yield from batch.to_pylist()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__()} - _ONLY_RAISING)

    def _repr_html_(self) -> str:
        columns = {field.name: field.type for field in self.schema}
        return as_html("Scan", {"read": repr(self)[1:-1], **columns})

    def __repr__(self) -> str:
        options = self._options
        where = [*options.places.paths, *map(_address, options.places.clusters)]
        hidden = {"table", "columns", "subscribe"}
        given = [f"{keyword(n)}={shown(t)}" for n, t in options.given.items() if n not in hidden]
        what = options.table
        if options.table == MESSAGES:
            topics = options.subscribe or options.places.topics or options.assign or ()
            what = f"topics {_listed(topics)}" if topics else "all topics"
        parts = [f"{_listed(where)}: {what}", *given, f"columns {_listed(self.schema.names)}"]
        if self._pin.pinned is not None:
            plan = self._pin.pinned
            held = sum(piece.end - piece.start for piece in plan.slices)
            parts.append(f"pinned at {held:,} messages" if plan.slices else "pinned")
        return f"<mqlog.Scan of {'; '.join(parts)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        with in_keywords():
            return _unpickled, (self._options, self.schema, self._pin.read())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Scan does not change: make another one, as select does")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def _not_of_files(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "a Scan has no files, and does not change: use select, to_table or a query engine"
        )

    if not TYPE_CHECKING:
        join = join_asof = sort_by = take = _not_of_files
        get_fragments = replace_schema = _get_fragments = _not_of_files
        partition_expression = property(_not_of_files)


class _Pin:
    """What a scan and all that ``select`` makes of it read: opened once, at the first use."""

    def __init__(self, options: ReadOptions, pinned: ReadPlan | None = None) -> None:
        self._options = options
        self._lock = Lock()
        self.pinned = pinned

    def read(self) -> ReadPlan:
        """Return the read with its ends; raises what ``plan_read`` raises."""
        with self._lock:
            if self.pinned is None:
                self.pinned = plan_read(self._options, read_schema(self._options).names)
            return self.pinned


def _unpickled(options: ReadOptions, schema: pa.Schema, pinned: ReadPlan) -> Scan:
    return Scan(options, schema, _Pin(options, pinned))


def _address(cluster: ClusterSettings) -> str:
    return f"rocketmq{'s' if cluster.tls else ''}://{';'.join(cluster.name_servers)}"


def _listed(names: Iterable[object]) -> str:
    found = [shown(name) for name in names]
    more = f" and {len(found) - _SHOWN_COLUMNS} more" if len(found) > _SHOWN_COLUMNS else ""
    return ", ".join(found[:_SHOWN_COLUMNS]) + more

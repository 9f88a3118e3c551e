"""``mqlog sql``: a query of DuckDB over topics and tables of places.

The SQL reaches what is registered here, and nothing else: no file, no network, no extension, and no
setting that would allow one. DuckDB asks a topic for the columns that the query names, and streams
the rest; what does not fit into its memory goes to a temporary directory.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import pyarrow as pa

from mqlog.readable import needed
from mqlog.scan import Scan
from mqlog.scanner import BatchScanner
from mqlog_jobs.machine.codes import INTERRUPTED
from mqlog_jobs.option_flags import in_words_of_sql
from mqlog_jobs.output import render, whole_file
from mqlog_jobs.output.amounts import count, instant
from mqlog_jobs.output.form import Form
from mqlog_jobs.output.render import FieldView, Row
from mqlog_jobs.output.typed_values import exact
from mqlog_jobs.places import Named, own_advice, with_read_options
from mqstore.changes.settings import CHANGE_OPTIONS, CHANGES
from mqstore.errors import (
    InvalidOptionError,
    InvalidQueryError,
    StoreError,
    UnknownTopicError,
    printable,
)
from mqstore.options import grammar
from mqstore.read.by_log import QUEUES
from mqstore.request.read_options import MESSAGES, takers
from mqstore.tables.catalog import CATALOG

_SCHEMA: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_DRAWN_ROWS: Final = 1_000
"""Rows of the table that is drawn for people: all of them are in memory."""
_BATCH_ROWS: Final = 10_000
_ALL_REGISTERED: Final = 500
"""With more topics, those that the query does not name are left out: each takes a millisecond."""
_ENDS_WITHIN_S: Final = 2.0
"""How long an interrupted query may take to end: DuckDB looks for it between its steps."""
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9_%|-]{1,127}")
_MOST_WORDS: Final = 200
_CONDITION: Final = re.compile(r"\[MQLOG_[^\n]*")
_UNKNOWN_NAME: Final = "Catalog Error: Table"
_CONFINED: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_NOT_SHOWN: Final = (
    "a date or time of the rows cannot be shown, such as one outside of the years 1 to 9999: cast "
    "it to VARCHAR, or write --parquet"
)
_NUMERIC: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A query, what it reads of messages, the Parquet file for its rows, and DuckDB's memory.

    ``options`` are those of reads, as texts, for each topic and table that takes them; None: not
    set. ``memory`` is a size; None: DuckDB's own, 80 % of the machine's.
    """

    text: str
    options: Mapping[str, str | None]
    parquet: str | None = None
    memory: str | None = None


def run_query(named: Named, form: Form, query: SqlQuery) -> None:
    """Print the rows of a query, or write them to its file.

    Raises InvalidQueryError for what DuckDB refuses, InvalidOptionError, OSError, and what opening
    and reading the places raises.
    """
    if query.parquet is not None:
        if form.as_json or form.as_csv:
            raise InvalidOptionError("--parquet", query.parquet, "choose one of the formats")
        whole_file.check_file(query.parquet)
        if whole_file.is_terminal(query.parquet):
            raise InvalidOptionError("--parquet", query.parquet, "is a terminal; name a file")
    duckdb = needed("duckdb", "mqlog sql")
    settings = dict(_CONFINED)
    if query.memory is not None:
        settings["memory_limit"] = f"{grammar.size('--memory', query.memory)}B"
    engine = _Engine(duckdb)
    try:
        with tempfile.TemporaryDirectory(prefix="mqlog-sql-") as spill:
            database = engine.open(settings | {"temp_directory": spill})
            _register(database, named, query, engine.errors)
            # The bar would come to standard output, also where that is no terminal.
            database.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            database.execute("SET lock_configuration = true")
            rows = engine.rows(query.text)
            if rows is not None:  # A statement such as CREATE has none.
                _write(*rows, form, query.parquet)
    except duckdb.Error as error:  # Of a name that is no schema, or of a size that is too small.
        raise _named(error) from None
    finally:
        engine.close()


class _Engine:
    """DuckDB, called in a thread of its own, so that SIGINT reaches this one at once."""

    def __init__(self, duckdb: Any) -> None:
        self._duckdb = duckdb
        self._database: Any = None
        self._calls = ThreadPoolExecutor(1, "duckdb")
        self._is_stuck = False
        self.errors: list[StoreError] = []
        """Those of places, which DuckDB gives as text."""

    def open(self, settings: Mapping[str, str]) -> Any:
        """Return the database that queries are for."""
        self._database = self._duckdb.connect(":memory:", config=dict(settings))
        return self._database

    def rows(self, text: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
        """Return the rows of a query, None if it has none; raises InvalidQueryError."""
        found = self._call(self._database.sql, text)
        if found is None:
            return None
        reader = self._call(found.to_arrow_reader, _BATCH_ROWS)
        read = partial(self._call, next, reader, None)
        return reader.schema, iter(read, None)

    def close(self) -> None:
        """Close the database. A query that does not end when it is interrupted ends the process."""
        if self._is_stuck:
            os._exit(INTERRUPTED)
        self._calls.shutdown()
        if self._database is not None:
            self._database.close()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        call = self._calls.submit(function, *arguments)
        try:
            return call.result()
        except KeyboardInterrupt:
            self._database.interrupt()
            self._is_stuck = not wait([call], _ENDS_WITHIN_S).done
            raise
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            # Arrow makes an OSError of what a reader raises, with a part of its text or none.
            raise next(map(in_words_of_sql, self.errors), None) or _named(error) from None


def _register(database: Any, named: Named, query: SqlQuery, errors: list[StoreError]) -> None:
    """Make topics and tables known; those of NAME=PLACE in a schema of that name."""
    for schema, typed in _schemas(named):
        places, read = with_read_options(typed, {"onCorrupt": "use --on-corrupt"})
        given = {**read, **query.options}
        texts = {name: text for name, text in given.items() if text is not None}
        if schema:
            database.execute(f"CREATE SCHEMA {_quoted(schema)}")
        for name, scan in _scans(places, texts, query.text):
            if not schema:
                database.register(name, scan.watched_by(errors))
                continue
            shown_name = f"{schema}.{name}"
            database.register(shown_name, scan.watched_by(errors))
            view = f"{_quoted(schema)}.{_quoted(name)}"
            database.execute(f"CREATE VIEW {view} AS FROM {_quoted(shown_name)}")


def _schemas(named: Named) -> Iterator[tuple[str, Named]]:
    """Yield each name that stands before a place, with its places; those without one have ""."""
    found: dict[str, list[str]] = {}
    for path in named.paths:
        match = None if Path(path).exists() else _SCHEMA.fullmatch(path)
        schema, place = (match[1], match[2]) if match else ("", path)
        known = next((one for one in found if one.lower() == schema.lower()), schema)
        found.setdefault(known, []).append(place)
    for schema, paths in found.items():
        yield schema, replace(named, paths=tuple(paths))


def _scans(named: Named, texts: Mapping[str, str], query: str) -> Iterator[tuple[str, "_SqlScan"]]:
    """Yield the names and reads of topics and tables. A name that is taken gets a number.

    Of a proxy, which lists no topics, tables are about those that the query names.
    """
    topics, are_all = _topics(named, query)
    of_tables = {} if are_all or not topics else {"subscribe": json.dumps(topics)}
    if len(topics) > _ALL_REGISTERED:
        topics = [topic for topic in topics if topic.lower() in query.lower()]
    with own_advice():
        taken: set[str] = set()
        for topic in topics:
            own = {"subscribe": json.dumps([topic])}
            # A schema that is not given is taken of a sample: not of topics that nobody asked for.
            of_topic = texts if topic.lower() in query.lower() else _without_bodies(texts)
            if CHANGES not in of_topic:  # All columns of changes are read.
                own["columns"] = "full"
            yield _free(topic, taken), _scan(named, MESSAGES, {**of_topic, **own})
        for table in CATALOG:
            needs = CATALOG[table].needs
            if not (named.is_live and CATALOG[table].of_files) and (not needs or needs in texts):
                yield _free(table, taken), _scan(named, table, {**of_tables, **texts})


def _without_bodies(texts: Mapping[str, str]) -> dict[str, str]:
    names = {option.name for option in CHANGE_OPTIONS.values()}
    return {name: text for name, text in texts.items() if name not in names}


def _topics(named: Named, query: str) -> tuple[list[str], bool]:
    """Return the topics of places, and that they are all; of a proxy those that the query names."""
    try:
        with named.opened() as stores:
            return sorted(stores.topics), True
    except InvalidOptionError as error:
        if error.option == "PLACE":
            error.expected = "must be the cluster alone: the query names its topics"
        if error.option != "subscribe" or not named.is_live:
            raise
        words = _words(query)
        topics = [word for word in words if _is_topic(named, word)]
        if not topics and CATALOG.keys().isdisjoint(words):
            raise in_words_of_sql(error) from None
        return topics, False


def _words(query: str) -> list[str]:
    """Return what may be names of topics in a query."""
    return sorted(set(_TOPIC_NAME.findall(query)))[:_MOST_WORDS]


def _is_topic(named: Named, word: str) -> bool:
    try:
        with named.opened(word):
            return True
    except UnknownTopicError:
        return False


def _scan(named: Named, table: str, texts: Mapping[str, str]) -> "_SqlScan":
    own = {name: text for name, text in texts.items() if table in takers(name)}
    if table not in takers(QUEUES):  # It reads no queue of a directory, so --from-log changes none.
        named = replace(named, from_log=False)
    return _SqlScan.of_options(named.read_options(table, own))


class _SqlScan(Scan):
    """A scan that keeps the errors which end a read: DuckDB passes on a part of their text."""

    def watched_by(self, errors: list[StoreError]) -> Self:
        """Return this scan, whose reads add the error that ends them."""
        self.__dict__["_errors"] = errors
        return self

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> BatchScanner:
        """Return the scanner of ``Scan``, whose reads keep their errors."""
        scanner = super().scanner(columns, filter, **options)
        return replace(scanner, read=partial(self._watched, scanner.read))

    def _watched(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read()
        except StoreError as error:
            self.__dict__["_errors"].append(error)
            raise


def _free(name: str, taken: set[str]) -> str:
    """Return the name, or one with a number if it is taken: case is not significant in SQL."""
    found = name
    if name.lower() in taken:
        found = f"{name}_{sum(one.rpartition('_')[0] == name.lower() for one in taken) + 2}"
        note = f"mqlog: in SQL the name {name} is taken already: this one is {found}"
        sys.stderr.write(f"{printable(note)}\n")
    taken.add(found.lower())
    return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _named(error: Exception) -> InvalidQueryError:
    """Return an error of DuckDB as one of mqlog's, in one line: ours where it wraps one."""
    text = str(error)
    found = _CONDITION.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Behind the reason comes the query once more, with a mark below the place.
    own = lines[: next((n for n, line in enumerate(lines) if line.startswith("LINE ")), None)]
    reason = found[0] if found else " ".join(own)
    if reason.startswith(_UNKNOWN_NAME):
        reason += " SHOW TABLES lists topics and tables"
    return InvalidQueryError(reason)


def _write(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], form: Form, parquet: str | None
) -> None:
    names = _names(schema)
    if parquet is not None:
        _to_parquet(schema, batches, parquet)
    elif form.as_json:
        render.json_lines(_rows(names, batches))
    elif form.as_csv:
        render.comma_separated(names, _rows(names, batches))
    else:
        _draw(schema, _rows(names, batches))


def _draw(schema: pa.Schema, rows: Iterator[Row]) -> None:
    columns = [
        FieldView(
            name,
            printable(name),
            "number" if any(test(field.type) for test in _NUMERIC) else "text",
            rank=place,
            stretch=pa.types.is_binary(field.type) or pa.types.is_string(field.type),
        )
        for place, (name, field) in enumerate(zip(_names(schema), schema, strict=True))
    ]
    render.table(render.terminal(), columns, list(islice(rows, _DRAWN_ROWS)))
    if next(rows, None) is not None:
        more = f"only the first {count(_DRAWN_ROWS)} rows: --json, --csv and --parquet write all"
        sys.stderr.write(f"mqlog: {more}\n")


def _names(schema: pa.Schema) -> list[str]:
    """Return the names of columns; those that repeat one get a number."""
    taken: dict[str, str] = {}
    for name in schema.names:
        number, found = 1, name
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        taken[found] = name
    return list(taken)


def _rows(names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Yield rows with values that the forms of a command know; raises InvalidQueryError."""
    for batch in batches:
        try:
            rows = batch.rename_columns(names).to_pylist(maps_as_pydicts="lossy")
        except (ValueError, OverflowError) as error:
            raise InvalidQueryError(f"{_NOT_SHOWN} ({error})") from None
        for row in rows:
            yield {name: _value(value) for name, value in row.items()}


def _value(value: object) -> object:
    match value:
        case Decimal():
            return exact(value)
        case timedelta():
            return value.total_seconds()
        case date() | time() | UUID() if not isinstance(value, datetime):
            return str(value)
        case dict():
            return {str(key): _inner(inner) for key, inner in value.items()}
        case list():
            return [_inner(inner) for inner in value]
        case _:
            return value


def _inner(value: object) -> object:
    """Return a value within a list or a map, where JSON has no names for bytes."""
    plain = _value(value)
    if isinstance(plain, bytes):
        return render.text_of(plain)
    return instant(plain) if isinstance(plain, datetime) else plain


def _to_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], path: str) -> None:
    from pyarrow import parquet  # noqa: PLC0415 - only this form needs it

    with (
        whole_file.writing(path) as file,
        parquet.ParquetWriter(file, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)

"""The queries of ``mqlog cat`` and ``mqlog find``: messages by place and time, or by key or id."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

from mqlog_jobs.option_flags import FLAGS
from mqlog_jobs.output.form import rows_of
from mqlog_jobs.output.render import Row
from mqlog_jobs.places import Named, own_advice, with_read_options
from mqstore.bodies.settings import CORRUPT_BODY, body_type, is_typed
from mqstore.changes.settings import CHANGE_OPTIONS, CHANGES, ChangeOptions, row_type
from mqstore.codec.schema import resolve_columns
from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.read.change_rows import all_change_columns
from mqstore.read.message_query import MessageQuery
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.sql.filter import parse_sql
from mqstore.read.tags import check_tags
from mqstore.read.typed_bodies import bad_columns
from mqstore.request.body_schema import with_schema
from mqstore.request.plan import ReadPlan, plan_read, schema_of
from mqstore.request.read_options import MESSAGES

_LOG_ORDER: Final = "physicalOffset"
_BY_OFFSET: Final = "queueOffset"
_TIME: Final = "storeTimestamp"
_ERROR: Final = "error"  # Only in a row that stands for a broken record.
_IN_OTHER_WORDS: Final = {
    **{name: f"use {FLAGS[name]}" for name in ("tags", "sql", "keys", "msgIds", "onCorrupt")},
    **dict.fromkeys(("subscribe", "assign"), "is for the argument TOPIC, or for --topic"),
}
"""The options of a read that ``cat`` and ``find`` have by other words."""
_FEW_ROWS: Final = 256  # A batch of a terminal's size: a queue need not be decoded far ahead.


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Messages with any of some keys, or of some ids (UNIQ_KEY or offsetMsgId).

    topic: None for all. since: the least storeTimestamp, in the grammar of
    mqstore.options.grammar. Raises InvalidOptionError for both keys and ids, neither, or
    an empty one.
    """

    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    topic: str | None = None
    since: str | None = None

    def texts(self) -> dict[str, str]:
        """Return the query as texts of the options of a read, by their names."""
        found = {"keys": self.keys, "msgIds": self.ids}
        texts = {name: json.dumps(values) for name, values in found.items() if values}
        if self.topic is None:
            texts["includeSystemTopics"] = "true"
        else:
            texts["subscribe"] = json.dumps([self.topic])
        return texts if self.since is None else {**texts, "startingTimestamp": self.since}

    def __post_init__(self) -> None:
        if bool(self.keys) == bool(self.ids):
            raise InvalidOptionError("--key", ", ".join(self.keys), "give either --key or --id")
        for flag, texts in (("--key", self.keys), ("--id", self.ids)):
            if "" in texts:
                raise InvalidOptionError(flag, "", "is empty: no message has it")


def select(
    named: Named,
    query: MessageQuery,
    columns: Sequence[str],
    number: int,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Yield the messages of a query, in the order they were stored; at most ``number`` if not 0.

    Options of a read among those of the places hold too (``failOnDataLoss``, ``endingOffsets``).
    ``progress`` is called with the number of messages read and their total. Raises what planning
    and reading raise; CorruptStoreError only after all messages that were stored before the broken
    one.
    """
    plan = planned(named, query.texts(), [*columns, _LOG_ORDER, _BY_OFFSET, _TIME])
    brokers = [
        list(slices)
        for _, slices in groupby(plan.slices, key=lambda piece: (piece.origin, piece.broker_name))
    ]
    settings = _one_by_one(ScanSettings.of(plan.options, plan.columns))
    return islice(merged(brokers, settings, progress), number or None)


def planned(named: Named, texts: Mapping[str, str], columns: Iterable[str]) -> ReadPlan:
    """Return the plan of a read of messages of places, with the options of a command as texts.

    Raises InvalidOptionError, UnknownTopicError, DataLossError, and what opening places raises.
    """
    places, others = with_read_options(named, _IN_OTHER_WORDS)
    given = {name: text for name, text in others.items() if text is not None}
    if {"startingOffsets"} & given.keys() & texts.keys():
        expected = "the argument has an @OFFSET already"
        raise InvalidOptionError(
            f"{named.flag} startingOffsets", given["startingOffsets"], expected
        )
    with own_advice():
        options = with_schema(places.read_options(MESSAGES, {**given, **texts}))
        names = tuple(dict.fromkeys([*columns, *shown_columns(options)]))
        if options.changes is not None:
            names = tuple(schema_of(options, names).names)
        return plan_read(options, names)


def shown_columns(options: ChangeOptions) -> tuple[str, ...]:
    """Return the columns that are beside the others where bodies are decoded: those of bad ones."""
    is_decoded = is_typed(options) or options.changes is not None
    return bad_columns(options) if is_decoded else ()


def change_columns(named: Named) -> tuple[str, ...]:
    """Return the columns of changes, those of bad messages too; empty where messages are read.

    Raises InvalidOptionError for an option of a read that is none.
    """
    _, texts = with_read_options(named, _IN_OTHER_WORDS)
    if texts.get(CHANGES) is None:
        return ()
    corrupt = texts.get(CHANGE_OPTIONS["corrupt_column"].name) or CORRUPT_BODY
    return all_change_columns(ChangeOptions(corrupt_column=corrupt))


def of_bodies(named: Named) -> tuple[Named, ChangeOptions]:
    """Return the places without the options of bodies among theirs, and these options.

    Raises InvalidOptionError for another option of a read.
    """
    places, others = with_read_options(named, _IN_OTHER_WORDS)
    known = {option.name for option in CHANGE_OPTIONS.values()}
    for name, text in others.items():
        if name not in known:
            raise InvalidOptionError(f"{named.flag} {name}", text, "not together with --follow")
    given = {name: text for name, text in others.items() if text is not None}
    options = places.read_options(MESSAGES, given)
    if is_typed(options):
        body_type(options)
    row_type(options)
    return places, options


def _one_by_one(settings: ScanSettings) -> ScanSettings:
    """Return the settings for rows that are shown one by one."""
    # A batch has its rescued rows first: one by one they are in the order of the queue.
    rows = 1 if settings.on_corrupt == "rescue" else _FEW_ROWS
    return replace(settings, batch_rows=rows)


def settings_of(query: MessageQuery, columns: Sequence[str], bodies: ChangeOptions) -> ScanSettings:
    """Return how to scan for a query; raises InvalidOptionError for its expressions."""
    check_tags(query.tags, option="--tag")
    parse_sql(query.sql, option="--sql")
    settings = ScanSettings(
        columns=tuple(
            dict.fromkeys((*columns, _LOG_ORDER, _BY_OFFSET, _TIME, *shown_columns(bodies)))
        ),
        **{field: getattr(bodies, field) for field in CHANGE_OPTIONS},
        tags=query.tags,
        sql=query.sql,
        keys=query.keys,
        on_corrupt=query.on_corrupt,
    )
    return _one_by_one(settings)


def merged(
    brokers: Sequence[Sequence[QueueSlice]],
    settings: ScanSettings,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Yield the messages of each broker's slices in the order they were stored.

    Several brokers are merged by storeTimestamp. Raises as ``select``.
    """
    read = _Progress(sum(piece.end - piece.start for of in brokers for piece in of), progress)
    # A queue's messages lie in the CommitLog in their order, so merging the queues sorts them.
    logs = [
        merge(*(_messages(piece, settings, read) for piece in pieces), key=_place)
        for pieces in brokers
    ]
    return _until_broken(logs[0] if len(logs) == 1 else _by_time(logs))


def find(named: Named, query: KeyQuery, on_corrupt: str = "rescue") -> Iterator[Row]:
    """Yield every message of a query, all columns, by topic and queue; their number has no limit.

    Without a topic those of RocketMQ's own are searched too: retries and dead letters.
    ``on_corrupt`` is fail, skip or rescue, as in ScanSettings; raises what a scan raises.
    Where no IndexFile of a store covers a range it is scanned, and a warning says how much of it.
    Differs from the broker: DefaultMessageStore#queryMessage stops at maxMsgsNumBatch (64), and
    mqadmin queryMsgByKey at its own limit and a span of time.
    """
    columns = change_columns(named) or resolve_columns("full")
    plan = planned(named, {**query.texts(), "onCorrupt": on_corrupt}, columns)
    for batch in scan(plan.slices, ScanSettings.of(plan.options, plan.columns)):
        yield from rows_of(batch)


@dataclass(slots=True)
class _Progress:
    """How many of the messages are read."""

    total: int
    report: Callable[[int, int], None] | None
    done: int = 0

    def add(self, count: int) -> None:
        self.done += count
        if self.report is not None:
            self.report(self.done, self.total)


def _messages(piece: QueueSlice, settings: ScanSettings, read: _Progress) -> Iterator[Row]:
    """Yield a queue's messages, and at a broken one a last row that stands for it."""
    start, last = piece.start, 0
    try:
        for batch in scan([piece], settings):
            rows = rows_of(batch)
            last, end = _place(rows[-1]), rows[-1][_BY_OFFSET]
            assert isinstance(end, int)
            read.add(end + 1 - start)
            start = end + 1
            yield from rows
    except CorruptStoreError as error:
        # A cluster does not tell the place of a record that cannot be parsed: behind the others.
        yield {_LOG_ORDER: max(error.physical_offset or 0, last), _ERROR: error}


def _by_time(logs: Sequence[Iterable[Row]]) -> Iterator[Row]:
    """Merge the messages of several brokers by storeTimestamp, each broker's in their order."""
    for _, row in merge(*map(_timed, logs), key=itemgetter(0)):
        yield row


def _timed(rows: Iterable[Row]) -> Iterator[tuple[datetime, Row]]:
    """Yield each row with its time; a row without a time gets the time of the row before it."""
    time = datetime.min.replace(tzinfo=UTC)
    for row in rows:
        stored = row.get(_TIME)
        time = stored if isinstance(stored, datetime) else time
        yield time, row


def _until_broken(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        error = row.get(_ERROR)
        if isinstance(error, CorruptStoreError):
            raise error
        yield row


def _place(row: Row) -> int:
    place = row[_LOG_ORDER]
    assert isinstance(place, int)
    return place

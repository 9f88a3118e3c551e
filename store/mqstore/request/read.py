"""Options of a batch read, from paths and texts: parsed, and checked against each other.

Reference: org.apache.spark.sql.kafka010.KafkaSourceProvider#validateBatchOptions for what is
refused together.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mqstore.audit.query import AUDIT_OPTIONS, AuditOptions
from mqstore.audit.table_addresses import TableAddress
from mqstore.changes.settings import check_changes
from mqstore.errors import InvalidOptionError
from mqstore.files.queue.tier_queue import STORE_PATH_TIERED
from mqstore.options.option import Option
from mqstore.options.texts import parse
from mqstore.read.by_log import BY_LOG_WORD, CACHE_DIR
from mqstore.read.change_rows import check_change_names
from mqstore.read.typed_bodies import check_names
from mqstore.request.places import (
    LIVE,
    NAME_SERVERS,
    OBJECTS,
    OF_STORES,
    Places,
    for_kinds,
    places,
)
from mqstore.request.read_options import READ_OPTIONS, ReadOptions, takers, takes
from mqstore.tables.catalog import CATALOG

IN_READ: Final[dict[str, Option]] = {**READ_OPTIONS, **LIVE, **OBJECTS}
"""The options of a batch read, by field: its own, and those of clusters and object stores."""


def read_options(
    paths: tuple[str, ...],
    texts: Mapping[str, str],
    refused: Mapping[str, tuple[str, str]] | None = None,
) -> ReadOptions:
    """Return the options of a batch read of ``paths``; touches no store.

    ``texts`` are the options by name in lower case, ``refused`` as in ``parse``. Raises
    InvalidOptionError.
    """
    values, given = parse(texts, IN_READ, refused or {})
    against = values.get("against")
    table = None if against is None else TableAddress.of(against)
    both = named_places(paths, texts, given, beside=against if table is None else None)
    other = table or (None if against is None else _other_place(against, texts, given, paths))
    audit = AuditOptions(**{field: values.pop(field) for field in AUDIT_OPTIONS.keys() & values})
    more = without_places(values)
    found = ReadOptions(places=both, given=given, other=other, audit=audit, **more)
    check_together(found, takes)
    audit.check_together(given)
    if table is not None:
        audit.check_brokers(str(table))
        if found.assign is not None:
            expected = f"{table} has whole topics: choose them by subscribe"
            raise InvalidOptionError("assign", given["assign"], expected)
    _check_has_table(found)
    return found


def named_places(
    paths: tuple[str, ...],
    texts: Mapping[str, str],
    given: Iterable[str],
    beside: str | None = None,
) -> Places:
    """Return what the paths name, with the texts of the ``given`` options; connects to nothing.

    Options that are for the kind of the place ``beside`` alone are left to that one.
    """
    own = {name: texts[name.lower()] for name in given if name.lower() in texts}
    return places(paths, own if beside is None else for_kinds(paths, own, (beside,)))


def _other_place(
    path: str, texts: Mapping[str, str], given: Iterable[str], beside: tuple[str, ...]
) -> Places:
    """Return the place that ``against`` names: of any kind, with the options of its kind."""
    own = {
        name: texts[name.lower()]
        for name in given
        if name.lower() in texts and name not in {*OF_STORES, NAME_SERVERS}
    }
    found = places((path,), for_kinds((path,), own, beside))
    if found.topics:
        expected = "must be the cluster alone: choose topics by subscribe"
        raise InvalidOptionError("against", path, expected)
    return found


def without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those of clusters and object stores, which Places has."""
    return {field: value for field, value in values.items() if field not in {*LIVE, *OBJECTS}}


def _check_has_table(options: ReadOptions) -> None:
    """Refuse the tables that no cluster has."""
    reason = CATALOG[options.table].of_files if options.table in CATALOG else ""
    if options.places.clusters and reason:
        expected = f"{reason}: for this table give the path of a store"
        raise InvalidOptionError("table", options.table, expected)


def check_together(options: ReadOptions, is_taken: Callable[[str, str], bool]) -> None:
    """Raise InvalidOptionError for options that contradict each other, or are for another table.

    ``is_taken`` tells whether a table takes an option, both by name.
    """
    for option in READ_OPTIONS.values():
        if option.name in options.given and not is_taken(options.table, option.name):
            raise InvalidOptionError(
                option.name,
                options.given[option.name],
                f"is for table={'|'.join(sorted(takers(option.name)))}, not {options.table}",
            )
    check_changes(options, options.given)
    if options.changes is None:
        check_names(options)
    else:
        check_change_names(options)
    if options.table == "index" and not options.keys:
        for name in ("subscribe", "subscribePattern", "includeSystemTopics"):
            if name in options.given:
                expected = "needs keys too: an entry has the hash of topic#key, and no topic"
                raise InvalidOptionError(name, options.given[name], expected)
    _check_by_log(options)
    _only_one(options, "subscribe", "subscribePattern", "assign")
    _only_one(options, "startingOffsets", "startingTimestamp")
    for name in ("subscribe", "subscribePattern", "assign"):
        if options.places.topics and name in options.given:
            expected = f"the path names topics: {', '.join(options.places.topics)}"
            raise InvalidOptionError(name, options.given[name], expected)
    for other in ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"):
        _only_one(options, "startingGroup", other)


def _check_by_log(options: ReadOptions) -> None:
    """Refuse what does not go with queues made from the log, or without them."""
    if options.tier is not None and options.queues == BY_LOG_WORD:
        expected = "excludes queues=log: the local log alone tells nothing of the tier"
        raise InvalidOptionError(STORE_PATH_TIERED, options.tier, expected)
    if options.cache_dir is not None and options.queues != BY_LOG_WORD:
        expected = "is for queues=log, which keeps there what it finds in a CommitLog"
        raise InvalidOptionError(CACHE_DIR, options.cache_dir, expected)


def _only_one(options: ReadOptions, *names: str) -> None:
    given = [name for name in names if name in options.given]
    if len(given) > 1:
        others = " and ".join(given[1:])
        raise InvalidOptionError(given[0], options.given[given[0]], f"excludes {others}")

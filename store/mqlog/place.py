"""A place that holds messages, and what can be asked of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike, fsdecode
from typing import Any, Final, Unpack

import pyarrow as pa

from mqlog.keywords import in_keywords, keyword, texts
from mqlog.options import FollowKeywords, PlaceKeywords, ScanKeywords, shows
from mqlog.pictures import as_html
from mqlog.scan import Scan
from mqstore.bodies.infer import BodyReport
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import store_paths
from mqstore.options.texts import refusals
from mqstore.request.body_schema import SAMPLE, schema_report
from mqstore.request.chosen_queues import open_stores
from mqstore.request.places import LIVE, OBJECTS, OF_STORES
from mqstore.request.read import read_options
from mqstore.request.read_options import MESSAGES, READ_OPTIONS, STREAM_OPTIONS, ReadOptions
from mqstore.request.stream import refused_in_stream, stream_options
from mqstore.tables.catalog import CATALOG
from mqstore.write.stage.settings import WRITE_OPTIONS

OF_A_PLACE: Final = {*OF_STORES, *(one.name for one in (*LIVE.values(), *OBJECTS.values()))}
_PATHS: Final = (
    "a path is the directory of a store, a glob, s3://BUCKET/STORE or rocketmq://HOST:9876"
)
_NOT_FOR_SCAN: Final = (
    refusals((one.name for one in STREAM_OPTIONS.values()), "is for follow")
    | refusals((one.name for one in WRITE_OPTIONS.values()), "is for write")
    | refusals(["topic"], "is for write: name the topic as the first argument")
)
_NOT_FOR_FOLLOW: Final = _NOT_FOR_SCAN | refused_in_stream(
    ends="is for scan: what is followed has no end; timeout=0 stops at the messages stored now",
    from_log="is for scan: follow reads the ConsumeQueues that a broker appends to",
    tables="is for tables, which are read with table",
)


@shows(PlaceKeywords)
def open(
    path: str | PathLike[str] | Sequence[str | PathLike[str]], **options: Unpack[PlaceKeywords]
) -> "Place":
    """Return the place of one or more paths, read as one: directories of stores, or clusters.

    A path is a directory, a glob, ``s3://BUCKET/STORE`` or another object store, or
    ``rocketmq://HOST:9876``. ``options`` say how it is read: ``broker_name``, ``queues="log"``,
    ``credentials_file``, ``fs={"region": "eu-west-1"}``. Nothing is opened or connected yet.
    Raises InvalidOptionError.
    """
    with in_keywords():
        paths = _paths(path)
        return Place(paths, _texts_of_place(paths, options))


def _paths(path: Any) -> tuple[str, ...]:
    """Return the paths of an argument; raises InvalidOptionError for one that is none."""
    if isinstance(path, str | PathLike):
        return (fsdecode(path),)
    if not isinstance(path, Sequence) or not all(isinstance(one, str | PathLike) for one in path):
        expected = f"{_PATHS}, or a list of them"
        raise InvalidOptionError("path", f"{path!r}", expected)
    if not path:
        raise InvalidOptionError("path", "[]", f"names no place: {_PATHS}")
    return tuple(map(fsdecode, path))


def _texts_of_place(paths: Sequence[str], options: Mapping[str, Any]) -> dict[str, str]:
    for path in paths:
        place, table = store_paths.split_table(path)
        if table is not None:
            expected = f"names a table: write mqlog.open({place!r}).table({table!r})"
            raise InvalidOptionError("path", path, expected)
    found = texts(options)
    other = {one.name.lower(): one.name for one in READ_OPTIONS.values()}
    for name in found.keys() & {n for n, known in other.items() if known not in OF_A_PLACE}:
        expected = "says what is read of a place: give it to scan, table or follow"
        raise InvalidOptionError(other[name], found[name], expected)
    return found


class Place:
    """Stores or clusters, made by ``mqlog.open``: an immutable value that holds nothing open."""

    __slots__ = ("_paths", "_texts")

    def __init__(self, paths: tuple[str, ...], own: Mapping[str, str]) -> None:
        self._paths = paths
        self._texts = dict(own)
        read_options(paths, self._texts, _NOT_FOR_SCAN)  # Refuses what it does not take.

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as they were given."""
        return self._paths

    @property
    def options(self) -> dict[str, str]:
        """The options as texts, by the name of the Spark source in lower case; secrets too."""
        return dict(self._texts)

    @shows(ScanKeywords)
    def scan(
        self, topic: str | Sequence[str] | None = None, /, **options: Unpack[ScanKeywords]
    ) -> Scan:
        """Return a read of messages: of one topic, of several, or of all but RocketMQ's own.

        ``options`` are those of the Spark source in snake_case: ``tags="paid || cancelled"``,
        ``starting_timestamp=datetime(…)`` or ``"-1h"``, ``columns=["keys", "body"]``,
        ``starting_offsets={"SHOP_ORDERS": {0: 23}}``, ``sql``, ``keys``, ``on_corrupt="skip"`` and
        others. Nothing is opened yet. Raises InvalidOptionError, InvalidSchemaError.
        """
        with in_keywords():
            return Scan.of_options(self._options(topic, MESSAGES, options))

    @shows(ScanKeywords)
    def table(self, name: str, /, **options: Unpack[ScanKeywords]) -> Scan:
        """Return a read of a table, such as ``backlog``, ``queues``, ``retries``: see ``tables``.

        ``options`` are those that the table takes, in snake_case: ``groups``, ``subscribe``.
        Nothing is opened yet. Raises InvalidOptionError, InvalidSchemaError.
        """
        with in_keywords():
            if name == MESSAGES:
                raise InvalidOptionError("table", name, "are read with scan")
            return Scan.of_options(self._options(None, name, options))

    @shows(ScanKeywords)
    def schema(
        self,
        topic: str | Sequence[str],
        /,
        *,
        sample: int = SAMPLE,
        **options: Unpack[ScanKeywords],
    ) -> BodyReport:
        """Return a schema for the bodies of a topic, and what is unsure, of ``sample`` bodies.

        The sample is spread over the whole of each queue; ``options`` are those of ``scan``, such
        as ``tags``. With ``body_schema`` that schema is checked. The report has ``ddl``,
        ``json_schema``, ``fields`` (name, type, share, since, until, remarks), ``fit`` of
        ``sampled`` bodies, ``bad``, ``shapes``, ``changes`` and ``unsure``. Opens the place. Raises
        InvalidOptionError and what reading raises.
        """
        with in_keywords():
            if not isinstance(sample, int) or sample < 1:
                raise InvalidOptionError("sample", sample, "must be a number of bodies, 1 or more")
            own: Any = {"body": "json", **options}
            return schema_report(self._options(topic, MESSAGES, own), sample)

    def topics(self, *, system: bool = False) -> list[str]:
        """Return the names of the topics, sorted; with ``system`` those of RocketMQ's own too.

        Opens the place. Raises StoreNotFoundError, NotAStoreError, BrokerUnavailableError and
        others.
        """
        options = self._options(None, MESSAGES, {"include_system_topics": system})
        with in_keywords(), closing(open_stores(options)) as stores:
            return sorted(filter(stores.topic_test(), stores.topics))

    def tables(self) -> list[str]:
        """Return the names of the tables that the place has, in the order of the guide.

        A cluster lacks those that are made of files. ``audit``, which needs another place too, is
        not among them.
        """
        live = bool(self._options(None, MESSAGES, {}).places.clusters)
        own = {name: table for name, table in CATALOG.items() if not table.needs}
        return [name for name, table in own.items() if not (live and table.of_files)]

    @shows(FollowKeywords)
    def follow(
        self,
        topic: str | Sequence[str] | None = None,
        /,
        *,
        position: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **options: Unpack[FollowKeywords],
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        """Yield messages as they are stored, in batches, each with the position behind it.

        ``position`` is one that was yielded before: it goes on there, each message once. It is a
        dict that JSON takes, the form of a Spark checkpoint. Without it, the start is
        ``starting_offsets``, ``starting_timestamp`` or ``starting_group``; by default only what is
        stored from now on. ``timeout`` is how many seconds to wait for a message before it ends:
        0 ends behind what is stored now, None waits for ever. A batch holds at most
        ``max_bytes_per_trigger`` (8 MiB by default) of records. ``commit_group`` publishes each
        position as a group's, once the loop asks for what comes behind it.

        Opens the place at once. Raises InvalidOptionError, UnknownTopicError; later DataLossError
        at messages that expired before they were read, StoreReplacedError for a position of another
        store, CorruptStoreError.
        """
        from mqlog.following import Following  # noqa: PLC0415 - scans start without it

        with in_keywords():
            own = self._named(topic, options)
            found = stream_options(self._paths, own, _NOT_FOR_FOLLOW)
            return Following(found, position, timeout).batches()

    def _options(self, topic: object, table: str, options: Mapping[str, Any]) -> ReadOptions:
        own = self._named(topic, options)
        if "table" in own:
            raise InvalidOptionError("table", own["table"], "is read with table(…)")
        return read_options(self._paths, {**own, "table": table}, _NOT_FOR_SCAN)

    def _named(self, topic: object, options: Mapping[str, Any]) -> dict[str, str]:
        own = {**self._texts, **texts(options)}
        if topic is not None:
            if "subscribe" in own:
                expected = "the first argument names topics already"
                raise InvalidOptionError("subscribe", own["subscribe"], expected)
            names = [topic] if isinstance(topic, str) else topic
            if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
                expected = "must be the name of a topic, or a list of names"
                raise InvalidOptionError("topic", type(topic).__name__, expected)
            own["subscribe"] = json.dumps(list(names))
        return own

    def __repr__(self) -> str:
        given = self._options(None, MESSAGES, {}).given
        words = [f"{keyword(name)}={shown(text)}" for name, text in given.items()]
        own = [word for word in words if not word.startswith("table=")]
        return f"<mqlog.Place {', '.join([*map(shown, self._paths), *own])}>"

    def _repr_html_(self) -> str:
        own = self._options(None, MESSAGES, {}).given
        given = {keyword(name): text for name, text in own.items() if name != "table"}
        return as_html("Place", {"paths": ", ".join(self._paths), **given})

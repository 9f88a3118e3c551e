"""Which messages a replay is about, and how each is sent: the request, and what it chooses."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mqstore.deliver.once.control import tag_of
from mqstore.deliver.prepare import prepare
from mqstore.deliver.replay.destinations import TopicMap, check_not_doubled, holds_failures
from mqstore.deliver.replay.progress import ranges_of, without
from mqstore.deliver.replay.rows import ReplayReading
from mqstore.deliver.replay.task import Rate, ReplayTask
from mqstore.deliver.settings import AT_LEAST_ONCE, CONTROL_TOPIC, EXACTLY_ONCE, SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.live.remoting.address import is_address
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.read.message_query import MessageQuery, chosen, snapshots_of
from mqstore.read.offsets import Position, resolve
from mqstore.read.queues import QueueBounds
from mqstore.read.selection import OpenStores
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Origin, QueueSlice, Snapshot, slices_of
from mqstore.read.sql.filter import parse_sql
from mqstore.read.system_topics import without_system
from mqstore.read.tags import check_tags

_ON_CORRUPT: Final = ("fail", "skip")
_MOST_NAME: Final = 200
_REQUESTS_PER_S: Final = 4
"""With a rate, a request has at most the messages of a quarter of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A replay of messages of the place ``source``, as the user named it.

    places: each ``TOPIC[/QUEUE[@OFFSET]]``; none for all users' topics. tags, sql, keys: as in
    MessageQuery; times: its since and until. same_topic: messages may go to the topic that they
    come from, which then has them twice. Raises InvalidOptionError, with the command's names.
    """

    source: str
    places: tuple[str, ...] = ()
    tags: str = "*"
    sql: str | None = None
    keys: tuple[str, ...] = ()
    times: tuple[str | None, str | None] = (None, None)
    on_corrupt: str = "fail"
    topics: TopicMap = field(default_factory=TopicMap)
    same_topic: bool = False
    at_least_once: bool = False
    name: str | None = None
    rate: Rate = field(default_factory=Rate)

    def __post_init__(self) -> None:
        if self.on_corrupt not in _ON_CORRUPT:
            expected = f"must be one of {', '.join(_ON_CORRUPT)}"
            raise InvalidOptionError("--on-corrupt", self.on_corrupt, expected)
        if self.name is not None and self.at_least_once:
            expected = "is for exactly once: at least once, each run sends all messages"
            raise InvalidOptionError("--name", self.name, expected)
        if self.name is not None and not (
            self.name.isprintable() and 0 < len(self.name) <= _MOST_NAME
        ):
            expected = f"must be 1 to {_MOST_NAME} printable characters"
            raise InvalidOptionError("--name", self.name, expected)

    @property
    def app(self) -> str:
        """The application that the writes of this replay are versions of.

        The same messages, chosen and sent in the same way, are one application, whatever part of
        them (topics, queues, times) a run is about; without a name, from the same place.
        """
        place = self.source
        known = (
            ""
            if self.name is not None
            else place
            if is_address(place)
            else str(Path(place).absolute())
        )
        chosen: list[object] = [known, self.tags, self.sql, sorted(self.keys)]
        sent = [self.topics.to, sorted(self.topics.renamed), self.topics.to_origin]
        digest = hashlib.blake2b(json.dumps([*chosen, *sent]).encode(), digest_size=8).hexdigest()
        return f"replay {self.name or 'without a name'} {digest}"

    @property
    def topics_named(self) -> tuple[str, ...]:
        """The topics of the places."""
        return tuple(dict.fromkeys(MessageQuery(place).topic for place in self.places))

    @property
    def write_options(self) -> Mapping[str, str]:
        """The options of the write that are the replay's own."""
        if self.at_least_once:
            return {"delivery": AT_LEAST_ONCE}
        once = {"delivery": EXACTLY_ONCE, "txnAppId": self.app, "txnVersion": "0"}
        return once | {"inlineBytes": "1g"}

    def paced(self, settings: SendSettings) -> SendSettings:
        """Return the settings with batches that are small beside the rate."""
        rate, most = self.rate, settings.batch_max_messages
        messages = max(1, min(most, rate.messages_per_s / _REQUESTS_PER_S))
        size = max(1, min(settings.batch_max_bytes, rate.bytes_per_s / _REQUESTS_PER_S))
        return replace(settings, batch_max_messages=int(messages), batch_max_bytes=int(size))

    def reading(self, settings: SendSettings) -> ReplayReading:
        """Return how messages are read. Raises InvalidOptionError for tags and SQL92."""
        check_tags(self.tags, option="--tag")
        parse_sql(self.sql, option="--sql")
        scan = ScanSettings(
            columns=(), tags=self.tags, sql=self.sql, keys=self.keys, on_corrupt=self.on_corrupt
        )
        return ReplayReading(
            scan=scan,
            topics=self.topics,
            keeps_ids=self.at_least_once and settings.uniq_key is None,
            keeps_born=settings.timestamps == "preserve",
            own_tag=None if self.at_least_once else tag_of(self.app),
        )


@dataclass(frozen=True, slots=True)
class ChosenMessages:
    """The slices that a replay is about, and the brokers of its source."""

    slices: tuple[QueueSlice, ...]
    origins: tuple[tuple[str, Origin], ...]

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers, in their order."""
        return tuple(sorted(name for name, _ in self.origins))


def choose(request: ReplayRequest, stores: OpenStores, target: ClusterSettings) -> ChosenMessages:
    """Return the messages that a request is about, as they are now, to be sent to ``target``.

    Raises UnknownTopicError, InvalidOptionError for topics that cannot be replayed or that would
    have their messages twice, and what ``read.message_query.chosen`` and Cluster raise.
    """
    now_ms = time.time_ns() // 1_000_000
    by_source: list[list[QueueSlice]] = [[] for _ in stores.sources]
    named: list[tuple[str, Sequence[Snapshot]]] = []
    if not request.places:
        if request.topics.to_origin:
            expected = "name a topic with --topic, such as %DLQ%GROUP"
            raise InvalidOptionError("--to-origin", "true", expected)
        named = [("", [_of_users(one) for one in snapshots_of(stores)])]
    for place in request.places:
        query = _query(request, place)
        named.append((place, chosen(stores, query, query.ends(now_ms)[0])))
    request.topics.check(queue.topic for _, held in named for one in held for queue in one.queues)
    for place, held in named:
        ends = _query(request, place or "all").ends(now_ms)
        for number, (source, snapshot) in enumerate(zip(stores.sources, held, strict=True)):
            found = slices_of(snapshot, resolve(source, snapshot, _always(ends)))
            if request.keys:
                found = source.narrow(found, request.keys, ())
            # A queue that is named twice is replayed once.
            by_source[number] += without(found, ranges_of(by_source[number]))
    origins = tuple((source.broker_name, source.origin) for source in stores.sources)
    if not request.same_topic:
        topics = {piece.topic for pieces in by_source for piece in pieces}
        kept = [topic for topic in topics if request.topics.of(topic) == topic]
        check_not_doubled((origin for _, origin in origins), kept, target)
    return ChosenMessages(tuple(piece for pieces in by_source for piece in pieces), origins)


def task_of(request: ReplayRequest, found: ChosenMessages, settings: SendSettings) -> ReplayTask:
    """Return the task of a replay; makes topics that are not there, if ``createTopic`` says so.

    Raises what ``deliver.prepare.prepare`` raises.
    """
    reading = request.reading(settings)
    topics = {reading.topics.of(piece.topic) for piece in found.slices}
    known = sorted(topic for topic in topics if topic is not None)
    job = prepare(settings, reading.schema, topics=() if None in topics else known)
    return ReplayTask(job=job, reading=reading, brokers=found.brokers, rate=request.rate)


def _always(
    ends: tuple[Position, Position],
) -> Callable[[QueueBounds], tuple[Position, Position]]:
    return lambda _: ends


def _query(request: ReplayRequest, place: str) -> MessageQuery:
    return MessageQuery(place, request.tags, request.sql, request.keys, *request.times)


def _of_users(snapshot: Snapshot) -> Snapshot:
    found = without_system(snapshot)
    queues = tuple(
        queue
        for queue in found.queues
        if not holds_failures(queue.topic) and queue.topic != CONTROL_TOPIC
    )
    return replace(found, queues=queues)

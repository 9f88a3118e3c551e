"""Messages of a broker without a scan: their units, times and tags, for counts and tables.

A unit is an entry of a ConsumeQueue, told as 72 bytes of JSON: it costs as much as a small
message. So tags are counted by pulls: the broker looks at the entries itself, and gives the
messages that match by hash with their tags. Of single messages the queue offset is enough.

Reference: AdminBrokerProcessor#queryConsumeQueue; DefaultMessageFilter#isMatchedByConsumeQueue.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import QueuePositions, topics_on_disk
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.properties import PropertyBlocks
from mqstore.codec.schema import FIRST_MS, LAST_MS
from mqstore.errors import DataLossError
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.names import LMQ_PREFIX, SCHEDULE_TOPIC
from mqstore.format.properties import TAGS, UNIQ_KEY
from mqstore.live.origin.again import has_tier
from mqstore.live.origin.bounds import weigh
from mqstore.live.origin.by_place import IN_A_ROUND, records_at, single
from mqstore.live.origin.entries import entries
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.origin.records import BrokenRecord, PullSettings, headers_of, read
from mqstore.live.remoting.answers import NOT_READABLE
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError, RequestRefusedError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import (
    ALL_TAGS,
    QUERY_MESSAGE,
    SUCCESS,
    Request,
    pull,
)
from mqstore.read.heads import NO_TIMESTAMP, LocatedRecord
from mqstore.read.queues import QueueRange
from mqstore.read.tags import SEPARATOR, TagFilter
from mqstore.read.units import CHUNK_UNITS, UnitBatch, join, units_at

_LOG = logging.getLogger(__name__)
NO_PLACE: Final = -1
_OF_A_KEY: Final = 1_000


class BrokerUnits:
    """The part of a RecordSource that is about units and single messages of one broker."""

    def __init__(
        self, broker: str, cluster: Cluster, compacted: frozenset[str] = frozenset()
    ) -> None:
        """``compacted`` are the topics whose queues have holes."""
        self._broker = broker
        self._compacted = compacted
        self._cluster = cluster
        self._is_denied = False
        self._has_tier: bool | None = None

    @property
    def has_cheap_units(self) -> bool:
        """False: see above."""
        return False

    def sizes(self, ranges: Sequence[QueueRange]) -> list[int]:
        """Return about how many bytes the ranges have, by the sizes at their ends."""
        return weigh(self._cluster, [self._slice(*one) for one in ranges])

    def at(self, queue: TopicQueue, queue_offsets: Sequence[int]) -> UnitBatch | None:
        """Return units that say no more than their queue offsets, without asking."""
        places = np.array(queue_offsets, np.int64)
        nowhere = np.full(len(places), NO_PLACE)
        return units_at((*queue, self._broker), places, nowhere, np.zeros_like(places))

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Yield the entries that the broker tells."""
        names = [(*queue, self._broker)]
        for part, found in entries(self._cluster, [self._slice(queue, start, end)], most):
            numbers, places = np.zeros(found.shape[1], np.int64), np.arange(part.start, part.end)
            positions = QueuePositions(names, numbers, places, found[2])
            yield UnitBatch(found[0], found[1], positions).believable()

    def tagged(
        self,
        queue: QueueRange,
        wanted: TagFilter | None,
        keep: Callable[[Int64s], Mask] | None = None,
    ) -> Iterator[tuple[UnitBatch, pa.StringArray]]:
        """Pull the messages that match; what expires meanwhile is logged and left out."""
        reader = PullReader(
            self._cluster,
            [self._slice(*queue)],
            tags=tag_expression(queue[0][0], self._asked_tags(wanted)),
            fail_on_data_loss=False,
            is_sparse=queue[0][0] in self._compacted,
        )
        settings = PullSettings(fail_on_data_loss=False, with_tags_codes=True)
        for pulled in read(reader, settings):
            headers = pulled.headers
            places = headers.field("physical_offset").astype(np.int64)
            units = join(
                [UnitBatch(places, headers.sizes, pulled.positions), *map(unit_of, pulled.broken)]
            )
            tags = _tags_of(headers)
            if pulled.broken:
                tags = pa.concat_arrays([tags, pa.nulls(len(pulled.broken), tags.type)])
                order = np.argsort(units.positions.queue_offsets, kind="stable")
                units, tags = units.take(order), tags.take(pa.array(order))
            kept = np.ones(len(units), np.bool_) if keep is None else keep(units.tags_codes)
            if wanted is not None and self._has_tier:
                kept &= wanted.may_match(queue[0][0], units.tags_codes)
            if kept.any():
                yield units.take(kept), tags.filter(pa.array(kept))

    def _asked_tags(self, wanted: TagFilter | None) -> TagFilter | None:
        """Return the tags that pulls ask for: none of tiered storage, where pulls come short.

        What is missing of messages that a broker chose, nobody can tell.
        """
        if wanted is None:
            return None
        if self._has_tier is None:
            self._has_tier = bool(has_tier(self._cluster, self._broker))
        return None if self._has_tier else wanted

    def store_timestamps(self, units: UnitBatch) -> Int64s:
        """Return storeTimestamps by pulls of one message each, for their queue offsets."""
        found = np.full(len(units), NO_TIMESTAMP, np.int64)
        for row, headers in self._singles(units):
            time = int(headers.field("store_timestamp_ms")[0])
            if FIRST_MS <= time <= LAST_MS:
                found[row] = time
        return found

    def tags(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.StringArray]]:
        """Yield TAGS by pulls of one message each."""
        for row, headers in self._singles(units):
            yield np.array([row]), _tags_of(headers)

    def properties(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.MapArray]]:
        """Yield properties by pulls of one message each."""
        for row, headers in self._singles(units):
            yield np.array([row]), PropertyBlocks.of(headers).as_map()

    def locate(self, topics: Mapping[int, str]) -> dict[int, LocatedRecord]:
        """Return the records that start at those places of the CommitLog, and say so.

        None through a proxy, which finds no message by its place.
        """
        if self._cluster.is_proxy:
            return {}
        wanted = {
            (self._broker, place): [topic] if topic else []
            for place, topic in sorted(topics.items())
            if 0 <= place < 2**63
        }
        records = records_at(self._cluster, wanted, self._note_denied)
        return {place: _located(headers) for (_, place), headers in records}

    def places_of_key(self, topic: str, key: str) -> list[int]:
        """Return where the records are that the broker's index finds; a proxy gives no index."""
        if self._cluster.is_proxy:
            return []
        request = QUERY_MESSAGE(
            topic=topic, key=key, maxNum=_OF_A_KEY, beginTimestamp=0, endTimestamp=2**63 - 1
        )
        answer, address = self._cluster.ask(self._broker, request)
        if answer.code != SUCCESS:
            return []
        found = headers_of(address, answer.body).field("physical_offset")
        return sorted(int(place) for place in found)

    def _singles(self, units: UnitBatch) -> Iterator[tuple[int, RecordHeaders]]:
        """Yield rows and the headers of their records, as far as they can be read."""
        positions, group = units.positions, self._cluster.settings.consumer_group
        asked = [
            pull(group, positions.queues[number][:2], queue_offset, 1)
            for number, queue_offset in zip(
                positions.queue.tolist(), positions.queue_offsets.tolist(), strict=True
            )
        ]
        for first in range(0, len(asked), IN_A_ROUND):
            some = [(self._broker, request) for request in asked[first : first + IN_A_ROUND]]
            for row, answer in enumerate(self._answers(some), first):
                headers = single(answer) if answer is not None else None
                if headers is not None:
                    yield row, headers

    def _answers(self, asked: list[tuple[str, Request]]) -> list[Frame | None]:
        try:
            return [answer for answer, _ in self._cluster.ask_all(asked)]
        except AccessDeniedError as error:
            if len(asked) == 1:
                self._note_denied(error)
                return [None]
            return [answer for one in asked for answer in self._answers([one])]

    def _note_denied(self, error: RequestRefusedError) -> None:
        """Warn once that single messages may not be seen.

        Not if the topic has no permission R, as that of dead letters: nobody sees them.
        """
        if not self._is_denied and NOT_READABLE not in str(error):
            self._is_denied = True
            _LOG.warning("times and tags of some messages are not known: %s", error)

    def _slice(self, queue: TopicQueue, start: int, end: int) -> LiveSlice:
        return LiveSlice(self._broker, *queue, start, end)


def with_units_codes(cluster: Cluster, broker: str, positions: QueuePositions) -> QueuePositions:
    """Return the positions with the tagsCodes of the ConsumeQueue in the schedule topic.

    Those are times of delivery, which a pull does not tell. Raises DataLossError for messages that
    expired since they were pulled.
    """
    codes = positions.tags_codes.copy()
    for number, (topic, queue_id, _) in enumerate(positions.queues):
        rows = np.flatnonzero(positions.queue == number)
        if topic != SCHEDULE_TOPIC or not len(rows):
            continue
        places = positions.queue_offsets[rows]
        low, high = int(places.min()), int(places.max()) + 1
        piece = LiveSlice(broker, topic, queue_id, low, high)
        missing = np.ones(len(rows), np.bool_)
        for part, found in entries(cluster, [piece]):
            inside = (places >= part.start) & (places < part.end)
            codes[rows[inside]] = found[2][places[inside] - part.start]
            missing &= ~inside
        if missing.any():
            start = int(places[missing].min())
            raise DataLossError(str(piece), start=start, end=high, low=high, high=high)
    return QueuePositions(positions.queues, positions.queue, positions.queue_offsets, codes)


def tag_expression(topic: str, wanted: TagFilter | None) -> str:
    """Return the subscription of a pull that gives all messages that may pass."""
    if wanted is None or is_unhashed(topic):
        return ALL_TAGS
    return SEPARATOR.join(sorted(wanted.tags))


def is_unhashed(topic: str) -> bool:
    """Tell whether a broker's tags do not choose there: times, or offsets of another queue."""
    return topic == SCHEDULE_TOPIC or topic.startswith(LMQ_PREFIX)


def unit_of(broken: BrokenRecord) -> UnitBatch:
    """Return the unit of a record that cannot be parsed, which has no place."""
    piece = broken.piece
    at, place, size = (
        np.array([n], np.int64) for n in (broken.queue_offset, NO_PLACE, broken.size)
    )
    return units_at((piece.topic, piece.queue_id, piece.broker), at, place, size)


def _tags_of(headers: RecordHeaders) -> pa.StringArray:
    return _property(headers, TAGS)


def _property(headers: RecordHeaders, name: str) -> pa.StringArray:
    return PropertyBlocks.of(headers).column(name)


def _located(headers: RecordHeaders) -> LocatedRecord:
    return LocatedRecord(
        topics_on_disk(headers)[0].as_py(),
        int(headers.field("queue_id")[0]),
        int(headers.field("queue_offset")[0]),
        _property(headers, UNIQ_KEY)[0].as_py(),
        int(headers.field("store_timestamp_ms")[0]),
    )

"""What becomes of records that cannot be trusted: an error, a gap, or a row that says so."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.decode import QueuePositions, timestamps
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.schema import BY_NAME, message_schema
from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.log.commit_log import CommitLog

_LOG = logging.getLogger(__name__)
ON_CORRUPT: Final = ("fail", "skip", "rescue")


class Damage:
    """Counts broken records, or raises at the first, as ``onCorrupt`` says."""

    def __init__(self, log: CommitLog, on_corrupt: str) -> None:
        if on_corrupt not in ON_CORRUPT:
            expected = f"accepted: {', '.join(ON_CORRUPT)}"
            raise InvalidOptionError("onCorrupt", on_corrupt, expected)
        self._log = log
        self._on_corrupt = on_corrupt
        self._count = 0
        self._first: CorruptStoreError | None = None

    def add(self, physical_offset: int, reason: str) -> None:
        """Take note of a broken record. Raises CorruptStoreError if ``onCorrupt`` is ``fail``."""
        self.add_error(self._log.corrupt(physical_offset, reason))

    def add_at(self, headers: RecordHeaders, row: int, reason: str) -> None:
        """Take note of a record whose header can be trusted."""
        self.add(int(headers.take(np.array([row])).field("physical_offset")[0]), reason)

    def add_error(self, error: CorruptStoreError) -> None:
        """Take note of damage that is not in a record."""
        if self._on_corrupt == "fail":
            raise error
        self._count += 1
        self._first = self._first or error

    def report(self) -> None:
        """Warn once, with the number of broken records and where the first is."""
        if self._count:
            did = "skipped" if self._on_corrupt == "skip" else "rescued"
            _LOG.warning("%s %d broken records; the first: %s", did, self._count, self._first)

    def rescue(
        self,
        source: QueuePositions,
        physical_offsets: Int64s,
        sizes: Int64s,
        shown: Int64s,
        columns: Sequence[str],
    ) -> pa.RecordBatch:
        """Return rows for units whose record cannot be parsed.

        What the ConsumeQueue knows is told; ``body`` holds the raw bytes found there, at most
        ``shown`` of them, fewer where the log ends; ``crcOk`` is false; the rest is null, empty
        or zero.
        """
        places = physical_offsets.tolist()
        names = [source.queues[int(queue)] for queue in source.queue]
        raw = [self._log.read(at, size) for at, size in zip(places, shown.tolist(), strict=True)]
        known: Mapping[str, list[Any]] = {
            "topic": [topic for topic, _, _ in names],
            "queueId": [queue_id for _, queue_id, _ in names],
            "partition": [queue_id for _, queue_id, _ in names],
            "brokerName": [broker for _, _, broker in names],
            "queueOffset": source.queue_offsets.tolist(),
            "offset": source.queue_offsets.tolist(),
            "tagsCode": source.tags_codes.tolist(),
            "physicalOffset": places,
            "storeSize": sizes.tolist(),
            "body": raw,
            "value": raw,
        }
        arrays = [
            pa.array(known[name], BY_NAME[name].type)
            if name in known
            else _unknown(name, len(names))
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=message_schema(columns))


def _unknown(name: str, count: int) -> pa.Array:
    column = BY_NAME[name]
    if column.nullable:
        return pa.nulls(count, column.type)
    if pa.types.is_timestamp(column.type):
        return timestamps(np.zeros(count, np.int64))
    empty: Any = {"properties": []}.get(name, False if pa.types.is_boolean(column.type) else 0)
    empty = "" if pa.types.is_string(column.type) else empty
    return pa.array([empty] * count, column.type)

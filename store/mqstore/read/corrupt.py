"""Handles records that cannot be trusted: an error, no row, or a row with crcOk = false."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import timestamps
from mqstore.codec.schema import BY_NAME, message_schema
from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.options.grammar import ON_CORRUPT
from mqstore.read.units import UnitBatch

_LOG = logging.getLogger(__name__)


class Damage:
    """Counts broken records, or raises at the first, as ``onCorrupt`` says."""

    def __init__(self, on_corrupt: str) -> None:
        if on_corrupt not in ON_CORRUPT:
            expected = f"accepted: {', '.join(ON_CORRUPT)}"
            raise InvalidOptionError("onCorrupt", on_corrupt, expected)
        self._on_corrupt = on_corrupt
        self._count = 0
        self._first: CorruptStoreError | None = None

    @property
    def is_error(self) -> bool:
        """Whether ``add`` raises."""
        return self._on_corrupt == "fail"

    def add(self, error: CorruptStoreError) -> None:
        """Count what is broken; raise it if ``onCorrupt`` is ``fail``."""
        if self.is_error:
            raise error
        self._count += 1
        self._first = self._first or error

    def report(self) -> None:
        """Warn once, with the number of broken records and where the first is."""
        if self._count:
            did = "skipped" if self._on_corrupt == "skip" else "rescued"
            _LOG.warning("%s %d broken records; the first: %s", did, self._count, self._first)


def rescued(units: UnitBatch, raw: Sequence[bytes], columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows for units whose record cannot be parsed.

    They have what the ConsumeQueue knows; ``body`` holds ``raw``, the bytes found there;
    ``crcOk`` is false; the rest is null, empty or zero.
    """
    positions = units.positions
    names = [positions.queues[int(queue)] for queue in positions.queue]
    known: Mapping[str, Sequence[Any]] = {
        "topic": [topic for topic, _, _ in names],
        "queueId": [queue_id for _, queue_id, _ in names],
        "partition": [queue_id for _, queue_id, _ in names],
        "brokerName": [broker for _, _, broker in names],
        "queueOffset": positions.queue_offsets.tolist(),
        "offset": positions.queue_offsets.tolist(),
        "tagsCode": positions.tags_codes.tolist(),
        "physicalOffset": units.physical_offsets.tolist(),
        "storeSize": units.sizes.tolist(),
        "body": raw,
        "value": raw,
    }
    arrays = [
        pa.array(known[name], BY_NAME[name].type) if name in known else _unknown(name, len(names))
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

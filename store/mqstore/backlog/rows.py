"""What was counted for the items of a queue to rows of the backlog's schema."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.backlog.count import Amounts
from mqstore.backlog.items import BacklogItem
from mqstore.backlog.request import LATE_AFTER_MS
from mqstore.backlog.schema import LATE, OK, POP_COUNTS, SCHEMA
from mqstore.backlog.standing import Standing
from mqstore.codec import compute as pc
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.names import is_system_group
from mqstore.read.heads import NO_TIMESTAMP

_US: Final = 1000


def rows(
    items: Sequence[BacklogItem],
    standing: Standing,
    amounts: Amounts,
    times: tuple[Int64s, Int64s],
    as_of_ms: int,
    late_after_ms: int = LATE_AFTER_MS,
) -> pa.RecordBatch:
    """Return a row for each amount, as SCHEMA.

    ``times`` are ascending queue offsets and what storeTimestamp in ms each has, or NO_TIMESTAMP;
    ``as_of_ms`` is asOf, in ms since the epoch. Of what waits for ``late_after_ms`` or longer the
    status is LATE if it was OK.
    """
    first, has_first = _times(times, amounts.first)
    last, has_last = _times(times, standing.last_consumed)
    of_item = {
        "brokerName": pa.array([item.broker_name for item in items]),
        "group": pa.array([item.group for item in items]),
        "topic": pa.array([item.topic for item in items]),
        "queueId": pa.array([item.queue_id for item in items], pa.int32()),
        "brokerOffset": pa.array(standing.high),
        "consumerOffset": pa.array([item.consumer_offset for item in items], pa.int64()),
        "minOffset": pa.array(standing.low),
        "diff": pa.array(standing.diff),
        "expired": pa.array(standing.expired),
        "subscription": pa.array([item.subscription for item in items], pa.string()),
        "lastConsumedStoreTimestamp": _array(last * _US, has_last),
        "status": standing.status,
        "expressionType": pa.array([item.expression_type for item in items], pa.string()),
        "consumers": pa.array([item.consumers for item in items], pa.int32()),
        "isSystem": pa.array([is_system_group(item.group) for item in items], pa.bool_()),
    } | _popped(items)
    if len(amounts.item) != len(items) or amounts.item[-1] != len(items) - 1:
        taken = pa.array(amounts.item)
        of_item = {name: column.take(taken) for name, column in of_item.items()}
    late = pa.array(has_first & (as_of_ms - first >= late_after_ms))
    is_late = pc.and_(late, pc.equal(of_item["status"], OK))
    columns = of_item | {
        "status": pc.if_else(is_late, LATE, of_item["status"]),
        "tag": pa.array(amounts.tags, pa.string()),
        "lag": pa.array(amounts.lag),
        "lagMatching": pa.array(amounts.lag_matching),
        "bytesBehind": pa.array(amounts.bytes),
        "bytesMatching": pa.array(amounts.bytes_matching),
        "firstUnconsumedStoreTimestamp": _array(first * _US, has_first),
        "lagMs": _array(np.maximum(as_of_ms - first, 0), has_first),
        "asOf": pa.array(np.full(len(amounts.item), as_of_ms * _US)),
    }
    if amounts.by_tag:
        nothing = pa.nulls(len(amounts.item), pa.int64())
        columns |= dict.fromkeys(POP_COUNTS, nothing)
    arrays = [columns[field.name].cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _popped(items: Sequence[BacklogItem]) -> dict[str, pa.Array]:
    """Return the columns of POP groups."""
    modes = pa.array([item.mode for item in items], pa.string())
    popped = [item.popped for item in items]
    if all(one is None for one in popped):
        return {"mode": modes} | dict.fromkeys(POP_COUNTS, pa.nulls(len(items), pa.int64()))
    values = [
        None if one is None else tuple(getattr(one, name) for name in POP_COUNTS) for one in popped
    ]
    columns = {
        name: pa.array([None if value is None else value[number] for value in values], pa.int64())
        for number, name in enumerate(POP_COUNTS)
    }
    return {"mode": modes} | columns


def _times(times: tuple[Int64s, Int64s], queue_offsets: Int64s) -> tuple[Int64s, Mask]:
    """Return the time of each queue offset, and whether it has one."""
    known, values = times
    if not len(known):
        return np.zeros_like(queue_offsets), np.zeros(len(queue_offsets), np.bool_)
    nearest = np.minimum(np.searchsorted(known, queue_offsets), len(known) - 1)
    found = values[nearest]
    there = (known[nearest] == queue_offsets) & (found != NO_TIMESTAMP)
    return np.where(there, found, 0), there


def _array(values: Int64s, there: Mask) -> pa.Array:
    return pa.array(values, mask=~there)

"""Batches of change rows of recorded messages, or made by hand, as a read gives them."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from changes.recordings import Recorded
from mqstore.changes.change import Change, change_column, change_schema
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.table_schemas import TableSchemas

SCHEMA = change_schema()


def batch_of(rows: Sequence[tuple[Change, dict[str, Any]]]) -> pa.RecordBatch:
    """The batch of changes, each with the columns of its message."""
    changes = [change for change, _ in rows]
    columns = []
    for column in SCHEMA:
        if column.name == "_corruptBody":
            values = [None if one.op else b"bad" for one in changes]
        elif column.name == "_bodyError":
            values = [one.reason for one in changes]
        elif column.name in {"topic", "brokerName", "queueId", "queueOffset", "storeTimestamp"}:
            values = [message[column.name] for _, message in rows]
        elif column.name == "rowInMessage":
            values = [message["rowInMessage"] for _, message in rows]
        else:
            columns.append(change_column(column.name, changes))
            continue
        columns.append(pa.array(values, column.type))
    return pa.record_batch(columns, schema=SCHEMA)


def message(
    queue_offset: int, queue_id: int = 0, *, stored_ms: int | None = None
) -> dict[str, Any]:
    """The columns of a message; it is stored a second after the one before it."""
    return {
        "topic": "CDC",
        "brokerName": "broker-a",
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "storeTimestamp": (1_000 * queue_offset if stored_ms is None else stored_ms) * 1_000,
        "rowInMessage": 0,
    }


def recorded_batches(
    messages: Sequence[Recorded], name: str, schemas: TableSchemas | None, size: int
) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
    """The changes of recorded messages, ``size`` messages a batch, with the position behind it."""
    context = DecodeContext(schemas)
    position: dict[str, dict[str, int]] = {}
    for some in (
        itertools.batched(messages, size) if hasattr(itertools, "batched") else _cut(messages, size)
    ):
        rows = []
        for one in some:
            columns = message(one.queue_offset, one.queue_id) | {"topic": one.topic}
            found = decoded(CHANGE_FORMATS[name], one.message, context)
            rows += [(change, columns | {"rowInMessage": n}) for n, change in enumerate(found)]
            position.setdefault(one.topic, {})[str(one.queue_id)] = one.queue_offset + 1
        yield batch_of(rows), {topic: dict(queues) for topic, queues in position.items()}


def _cut(messages: Sequence[Recorded], size: int) -> Iterator[Sequence[Recorded]]:
    for begin in range(0, len(messages), size):
        yield messages[begin : begin + size]

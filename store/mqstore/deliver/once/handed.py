"""Messages that tasks hand on to the publisher, which goes through them twice, and holds few.

Each row is a message as a producer encodes it, with the queue it goes to and what the header of its
request says of it. Equal messages of all tasks are numbered by their digests, at the first time.
"""

import hashlib
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from time import time_ns
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.client_encode import bodies_in, encode_for_client
from mqstore.codec.client_ids import (
    ID,
    Ids,
    first_ids_of,
    give_ids,
    give_numbers,
    number_equals,
    number_ids,
)
from mqstore.codec.encode import Messages
from mqstore.deliver.job import SendJob
from mqstore.deliver.parcels import ADDED_BYTES, LONGEST_HOSTS, group_kinds, limits_of_batch
from mqstore.deliver.parts import HandedMessages, PartWriter
from mqstore.deliver.topics import Placing
from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int32s, Int64s, Mask
from mqstore.live.send.requests import Parcel, Queue
from mqstore.write.stage.batches import order_rows, split_batches
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.rows import Rows

_PIECE_BYTES: Final = 16 * 1024 * 1024
_TEXTS_BY_NUMBER = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("topic", _TEXTS_BY_NUMBER),
        ("broker", _TEXTS_BY_NUMBER),
        ("queueId", pa.int32()),
        ("sysFlag", pa.int32()),
        ("waits", pa.bool_()),
        ("bornTimestamp", pa.int64()),
        ("recordSize", pa.int64()),
        ("message", pa.large_binary()),
        ("digest", pa.binary(16)),
    ]
)


class HandingSink:
    """Encodes the messages of a task for the publisher."""

    written = "Nothing was written"

    def __init__(self, job: SendJob, placing: Placing, partition: int, attempt: int) -> None:
        self.numbers: list[Int64s] = []
        """The numbers of the rows of all messages taken, in the order of the messages."""
        self.job = job
        self._placing = placing
        self._task = (partition, attempt)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: PartWriter | None = None

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message's record, at most: int64[n]."""
        return messages.sizes(LONGEST_HOSTS)

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Take the messages of ``rows``.

        Raises InvalidOptionError for more than ``inlineBytes`` without ``stagingPath``, OSError.
        """
        messages = composed.messages
        placed = self._placing(rows, queue_ids, composed)
        settings = self.job.settings
        sharding = rows.sharding_codes() if settings.batch_builder == "keyBased" else None
        order = order_rows(placed.places, sharding, None)
        self.numbers.append(rows.numbers[order])
        salts = [name.encode() + b"\0" for name in messages.topic_names]
        flags = messages.sys_flags[order].tolist()
        salted = [
            salts[topic] + flag.to_bytes(4, "big")
            for topic, flag in zip(messages.topics[order].tolist(), flags, strict=True)
        ]
        made, digests = give_ids(encode_for_client(messages, order), salted)
        keeps_born = settings.timestamps == "preserve"
        born = rows.born_timestamps_ms if keeps_born else np.zeros(len(rows), np.int64)
        queues = [placed.queues[place] for place in placed.places[order].tolist()]
        columns = [
            pa.array([queue.topic for queue in queues]).dictionary_encode(),
            pa.array([queue.broker for queue in queues]).dictionary_encode(),
            pa.array([queue.queue_id for queue in queues], pa.int32()),
            pa.array(messages.sys_flags[order], pa.int32()),
            pa.array(rows.waits[order]),
            pa.array(born[order], pa.int64()),
            pa.array(messages.sizes(LONGEST_HOSTS)[order] + ADDED_BYTES, pa.int64()),
            made,
            digests,
        ]
        self._keep(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    def finish(self) -> HandedMessages:
        """Return all messages."""
        if self._file is not None:
            return self._file.finish()
        if not self._batches:
            return HandedMessages()
        table = pa.Table.from_batches(self._batches).unify_dictionaries()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_table(table)
        return HandedMessages(sink.getvalue().to_pybytes())

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.discard()

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._file is not None:
            self._file.append(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        settings = self.job.settings
        if self._bytes <= settings.inline_bytes:
            return
        folder = self.job.staging
        if folder is None:
            expected = (
                f"a task has more messages than that ({self._bytes} bytes): set stagingPath to a "
                "directory that driver and executors share, or raise it with "
                "spark.driver.maxResultSize, or write fewer rows at a time or in more partitions"
            )
            raise InvalidOptionError("inlineBytes", settings.inline_bytes, expected)
        partition, attempt = self._task
        self._file = PartWriter(folder, SCHEMA, partition=partition, attempt=attempt)
        for held in self._batches:
            self._file.append(held)
        self._batches.clear()


@dataclass(frozen=True, slots=True)
class HandedRows:
    """All messages of a write, in the order of the tasks; the messages themselves are not held.

    ``ids`` are their UNIQ_KEYs, S32[n], and ``numbers`` how many equal ones stand in front of each.
    """

    job: SendJob
    parts: tuple[HandedMessages, ...]
    queues: tuple[Queue, ...]
    ids: Ids
    numbers: Int32s

    @classmethod
    def of(cls, job: SendJob, parts: Iterable[HandedMessages]) -> "HandedRows":
        """Return the messages that tasks handed on, with an id of its own for each.

        Raises StagingNotSharedError, CorruptStagingError.
        """
        held = tuple(part for part in parts if part)
        for part in held:
            part.check()
        digests, first_ids = bytearray(), [np.zeros(0, ID)]
        named: dict[tuple[str, str, int], None] = {}
        for part in held:
            for batch in part.batches():
                named.update(dict.fromkeys(_places(batch)))
                column = batch.column("digest")
                first = column.type.byte_width * column.offset
                size = column.type.byte_width * len(column)
                digests += memoryview(column.buffers()[1])[first : first + size]
                first_ids.append(first_ids_of(batch.column("message")))
        numbers = number_equals(bytes(digests))
        ids = number_ids(np.concatenate(first_ids), bytes(digests), numbers)
        return cls(job, held, tuple(Queue(*names) for names in named), ids, numbers)

    @property
    def topics(self) -> list[str]:
        """The topics that the messages go to."""
        return sorted({queue.topic for queue in self.queues})

    def parcels(self, without: AbstractSet[str]) -> Iterator[Parcel]:
        """Yield requests for all messages but those, each queue's in their order."""
        first = 0
        for table in self._pieces():
            end = first + table.num_rows
            kept = np.ones(end - first, np.bool_)
            if without:
                ids = self.ids[first:end].tolist()
                kept = np.array([id_.decode() not in without for id_ in ids], np.bool_)
            if kept.any():
                yield from self._parcels(table, first, kept)
            first = end

    def bodies_among(self, digests: AbstractSet[bytes]) -> set[bytes]:
        """Return those of the digests, as of ``body_digest``, that a stored body of a row has."""
        found: set[bytes] = set()
        for part in self.parts if digests else ():
            for batch in part.batches():
                found |= digests & {body_digest(body) for body in bodies_in(batch["message"])}
        return found

    def _pieces(self) -> Iterator[pa.Table]:
        """Yield messages in their order, as many at a time as fill requests well."""
        pending: list[pa.RecordBatch] = []
        size = 0
        for part in self.parts:
            for batch in part.batches():
                pending.append(batch)
                size += batch.nbytes
                if size >= _PIECE_BYTES:
                    yield _joined(pending)
                    pending, size = [], 0
        if pending:
            yield _joined(pending)

    def _parcels(self, table: pa.Table, base: int, kept: Mask) -> Iterator[Parcel]:
        """Yield requests for the messages kept of a table, whose first row has number ``base``."""
        numbers = self.numbers[base : base + table.num_rows]
        number = {(q.topic, q.broker, q.queue_id): n for n, q in enumerate(self.queues)}
        places = np.array([number[names] for names in _places(table)], np.int64)
        named = give_numbers(_whole(table, "message"), _whole(table, "digest"), numbers)
        table = table.set_column(SCHEMA.get_field_index("message"), "message", named)
        chosen = np.flatnonzero(kept)
        chosen = chosen[np.argsort(places[chosen], kind="stable")]
        table = table.take(pa.array(chosen)).combine_chunks()
        columns = {
            name: table[name].to_numpy()
            for name in ("sysFlag", "waits", "bornTimestamp", "recordSize")
        }
        places = places[chosen]
        messages = _whole(table, "message")
        sizes = pc.binary_length(messages).to_numpy(zero_copy_only=False).astype(np.int64)
        kinds = group_kinds(
            [places, columns["sysFlag"], columns["waits"], columns["bornTimestamp"]]
        )
        alone = np.zeros(len(chosen), np.bool_)
        limits = limits_of_batch(self.job.settings, self.job.limits)
        starts = split_batches(kinds, alone, sizes, columns["recordSize"], limits)
        edges = np.append(np.flatnonzero(starts), len(chosen)).tolist()
        positions = np.concatenate(([0], np.cumsum(sizes)))
        data = memoryview(messages.buffers()[2])
        for first, end in pairwise(edges):
            born = int(columns["bornTimestamp"][first])
            yield Parcel(
                queue=self.queues[int(places[first])],
                count=end - first,
                body=bytes(data[int(positions[first]) : int(positions[end])]),
                sys_flag=int(columns["sysFlag"][first]),
                born_timestamp_ms=born or time_ns() // 1_000_000,
                waits=bool(columns["waits"][first]),
                rows=base + chosen[first:end],
            )


def body_digest(body: memoryview) -> bytes:
    """Return 16 bytes that stand for a stored body."""
    return hashlib.blake2b(body, digest_size=16).digest()


def _places(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, str, int]]:
    """Yield topic, broker and queueId of each row."""
    columns = (rows.column(name).to_pylist() for name in ("topic", "broker", "queueId"))
    return zip(*columns, strict=True)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def _whole(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table of one chunk, or none."""
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)

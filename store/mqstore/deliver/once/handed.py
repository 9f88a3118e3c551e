"""Messages that tasks hand on to the publisher: an Arrow stream, in the commit's message.

Each row is a message as a producer encodes it, with the queue it goes to and what the header of its
request says of it. Equal messages of all tasks are numbered when all are together.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from time import time_ns

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore.arrays import Int64s
from mqstore.codec.client_encode import encode_for_client
from mqstore.codec.client_ids import give_ids, number_equals
from mqstore.codec.encode import Messages
from mqstore.deliver.job import SendJob
from mqstore.deliver.parcels import ADDED_BYTES, LONGEST_HOSTS, group_kinds, limits_of_batch
from mqstore.deliver.topics import Placing
from mqstore.errors import InvalidOptionError
from mqstore.live.send.requests import Parcel, Queue
from mqstore.stage.batches import order_rows, split_batches
from mqstore.stage.compose import Composed
from mqstore.stage.rows import Rows

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

    def __init__(self, job: SendJob, placing: Placing) -> None:
        self.numbers: list[Int64s] = []
        """The numbers of the rows of all messages taken, in the order of the messages."""
        self._job = job
        self._placing = placing
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message's record, at most: int64[n]."""
        return messages.sizes(LONGEST_HOSTS)

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Take the messages of ``rows``; raises InvalidOptionError for more than inlineBytes."""
        messages = composed.messages
        placed = self._placing(rows, queue_ids, composed)
        settings = self._job.settings
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
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self._bytes += self._batches[-1].nbytes
        if self._bytes > settings.inline_bytes:
            expected = (
                f"a task has more messages than that ({self._bytes} bytes): raise it, with "
                "spark.driver.maxResultSize, or write fewer rows at a time or in more partitions"
            )
            raise InvalidOptionError("inlineBytes", settings.inline_bytes, expected)

    def finish(self) -> bytes:
        """Return all messages as an Arrow stream; empty if there are none."""
        if not self._batches:
            return b""
        table = pa.Table.from_batches(self._batches).unify_dictionaries()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_table(table)
        data: bytes = sink.getvalue().to_pybytes()
        return data


@dataclass(frozen=True, slots=True)
class HandedRows:
    """All messages of a write, in the order of the tasks; ``ids`` are their UNIQ_KEYs."""

    job: SendJob
    table: pa.Table
    queues: tuple[Queue, ...]
    places: Int64s
    ids: list[str]

    @classmethod
    def of(cls, job: SendJob, parts: Iterable[bytes]) -> "HandedRows":
        """Return the messages that tasks handed on, with an id of its own for each."""
        tables = [pa.ipc.open_stream(part).read_all() for part in parts]
        table = pa.concat_tables([SCHEMA.empty_table(), *tables]).unify_dictionaries()
        table = table.combine_chunks()
        messages, ids = number_equals(_whole(table, "message"), _whole(table, "digest"))
        table = table.set_column(SCHEMA.get_field_index("message"), "message", messages)
        named = list(
            zip(*(table[name].to_pylist() for name in ("topic", "broker", "queueId")), strict=True)
        )
        queues = tuple(Queue(*names) for names in dict.fromkeys(named))
        number = {(q.topic, q.broker, q.queue_id): n for n, q in enumerate(queues)}
        places = np.array([number[names] for names in named], np.int64)
        return cls(job, table, queues, places, ids)

    @property
    def topics(self) -> list[str]:
        """The topics that the messages go to."""
        return sorted({queue.topic for queue in self.queues})

    def parcels(self, without: AbstractSet[str]) -> Iterator[Parcel]:
        """Yield requests for all messages but those, each queue's in their order."""
        kept = np.array([id_ not in without for id_ in self.ids], np.bool_)
        chosen = np.flatnonzero(kept)
        chosen = chosen[np.argsort(self.places[chosen], kind="stable")]
        if not len(chosen):
            return
        table = self.table.take(pa.array(chosen)).combine_chunks()
        columns = {
            name: table[name].to_numpy()
            for name in ("sysFlag", "waits", "bornTimestamp", "recordSize")
        }
        places = self.places[chosen]
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
                rows=chosen[first:end],
            )


def _whole(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table of one chunk, or none."""
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)

"""The messages of slices with their digests: by the compiled kernel; what it leaves by a scan."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.audit.relation import Naming
from mqstore.codec import compute as pc
from mqstore.codec.fused.digester import Digester, RowDigests
from mqstore.codec.message_digest import (
    IDENTITIES,
    OF_CONTENT,
    identity_digests,
    message_digests,
)
from mqstore.errors import StoreError
from mqstore.format import properties
from mqstore.format.arrays import Int64s
from mqstore.read.scan import scan_otherwise
from mqstore.read.settings import BATCH_BYTES, ScanSettings
from mqstore.read.source import Fetched, QueueSlice
from mqstore.read.units import UnitBatch

ID_BUCKETS: Final = 4096
_OF_PLACE: Final = ("topic", "queueId", "queueOffset", "storeTimestamp")
_COUNT_BY_ID: Final = frozenset({"TAGS", "KEYS", "__SHARDINGKEY"})
_Taken: TypeAlias = Generator["DigestedRows", None, UnitBatch]


@dataclass(frozen=True, slots=True)
class AuditRule:
    """What makes two messages the same: their identity, and the properties that do not count.

    ``by`` is ``offset``, ``id`` or ``map``: the message of the source that an offset map names.
    """

    by: str
    left_out: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a scan."""
        names = (*_OF_PLACE, *IDENTITIES[self.identity], *OF_CONTENT)
        return tuple(dict.fromkeys(("brokerName", *names) if self.by == "map" else names))

    @property
    def identity(self) -> str:
        """The key of IDENTITIES: names by an offset map stand where ids do."""
        return "id" if self.by == "map" else self.by


def default_left_out(by: str) -> frozenset[str]:
    """Return the properties that do not count unless others are named.

    By offset all count, as records are copied whole; by id those do not that brokers and clients
    set anew when a message is sent again.
    """
    if by == "offset":
        return frozenset()
    added = {properties.WRITE_PROPERTY} if by == "map" else set()  # What a replay adds.
    return frozenset((properties.RESERVED - _COUNT_BY_ID) | added)


@dataclass(frozen=True, slots=True)
class DigestedRows:
    """n messages with their digests; message i is of ``queues[queue[i]]``: topic and queueId."""

    queues: Sequence[tuple[str, int]]
    queue: Int64s
    queue_offsets: Int64s
    row: RowDigests

    def parts(self) -> Int64s:
        """Return the part of all ids that each message is in."""
        return (self.row.identities[:, 0] % np.uint64(ID_BUCKETS)).astype(np.int64)


def digested(
    slices: Sequence[QueueSlice],
    rule: AuditRule,
    *,
    merged: bool = False,
    naming: Naming | None = None,
) -> Iterator[DigestedRows]:
    """Yield the messages of slices with their digests; ``naming`` names them by an offset map.

    Raises as ``scan``.
    """
    settings = ScanSettings(columns=rule.columns, merged=merged, batch_bytes=BATCH_BYTES)
    digester = None if naming is not None else Digester.of(rule.by, rule.left_out)
    taken = None if digester is None else _Digesting(digester).taken
    for found in scan_otherwise(slices, settings, taken):
        if isinstance(found, DigestedRows):
            yield found
        else:
            batch = found if naming is None else naming.named(found)
            if len(batch):
                yield digested_batch(batch, rule)


@dataclass(frozen=True, slots=True)
class _Digesting:
    digester: Digester

    def taken(self, fetched: Fetched) -> _Taken:
        """Yield the digests of a batch of units; return the units if they are not the kernel's."""
        units = fetched.units
        try:
            blocks = fetched.blocks()
            if blocks is None or not len(units):
                return units
            place = units.physical_offsets, units.sizes, units.positions
            made = self.digester.digests(*place, blocks)
        except (StoreError, OSError):
            return units
        if made is None:
            return units
        positions = units.positions
        queues = [(topic, queue_id) for topic, queue_id, _ in positions.queues]
        yield DigestedRows(queues, positions.queue, positions.queue_offsets, made)
        return units.take(slice(0, 0))


def digested_batch(batch: pa.RecordBatch, rule: AuditRule) -> DigestedRows:
    """Return the messages of a batch, which has the columns of the rule, with their digests."""
    topics = batch.column("topic").dictionary_encode()
    pairs = topics.indices.to_numpy().astype(np.int64) * 2**32 + batch.column("queueId").to_numpy()
    distinct, queue = np.unique(pairs, return_inverse=True)
    names = topics.dictionary.to_pylist()
    row = RowDigests(
        identity_digests(batch, rule.identity),
        message_digests(batch, rule.identity, rule.left_out),
        batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // 1000,
        pc.binary_length(batch.column("body")).to_numpy().astype(np.int64),
    )
    return DigestedRows(
        [(names[pair >> 32], pair & (2**32 - 1)) for pair in distinct.tolist()],
        queue.astype(np.int64),
        batch.column("queueOffset").to_numpy(),
        row,
    )

"""Order-free digests of messages: counts, bytes and sums of hashes by bucket, which can be merged.

By offset a bucket is a queue in ten minutes of store timestamps; by id it is a part of all message
ids, as a copy that was sent again has other queues and times.

Two different multisets of messages have the same count and the same sum of hashes with a
probability of about 2^-128, if the hash (SipHash-1-3 of 128 bits, keyed) is as good as a random
function: whatever all but one of the differing messages add up to, the last one's hash must be one
value of 2^128. If that message is there k times more often, k hashes count as one, and if 2^j
divides k, it is one of 2^j values in each half. The key is published: this finds accidents, and
nobody who makes messages to deceive it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.audit.relation import Naming
from mqstore.codec import compute as pc
from mqstore.codec.message_digest import (
    IDENTITIES,
    OF_CONTENT,
    identity_digests,
    message_digests,
)
from mqstore.deliver.once.control import WRITE_PROPERTY
from mqstore.format import properties
from mqstore.format.arrays import Int64s, UInt64Pairs
from mqstore.read.scan import scan
from mqstore.read.settings import BATCH_BYTES, ScanSettings
from mqstore.read.source import QueueSlice

BUCKET_MS: Final = 600_000
ID_BUCKETS: Final = 4096
_OF_PLACE: Final = ("topic", "queueId", "queueOffset", "storeTimestamp")
_COUNT_BY_ID: Final = frozenset({"TAGS", "KEYS", "__SHARDINGKEY"})
_MASK_64: Final = 2**64 - 1

Bucket = tuple[str, str, int, int]
"""Broker, topic, queueId and ten minutes since the epoch; by id: empty, empty, 0 and the part."""


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
    added = {WRITE_PROPERTY} if by == "map" else set()  # What a replay adds.
    return frozenset((properties.RESERVED - _COUNT_BY_ID) | added)


@dataclass(slots=True)
class BucketDigest:
    """Messages of one bucket: how many, the bytes of their bodies, the sum of their hashes."""

    count: int = 0
    bytes: int = 0
    low: int = 0
    high: int = 0

    def add(self, other: "BucketDigest") -> None:
        """Take those of another part of the same bucket as well."""
        self.count += other.count
        self.bytes += other.bytes
        self.low = (self.low + other.low) & _MASK_64
        self.high = (self.high + other.high) & _MASK_64


@dataclass(slots=True)
class AuditDigests:
    """The digests of a place, or of a part of one, by bucket."""

    buckets: dict[Bucket, BucketDigest] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(one.count for one in self.buckets.values())

    def merge(self, other: "AuditDigests") -> None:
        """Add the digests of another part of the same place."""
        for bucket, digest in other.buckets.items():
            self.buckets.setdefault(bucket, BucketDigest()).add(digest)

    def unequal(self, other: "AuditDigests") -> list[Bucket]:
        """Return the buckets in which two places differ, sorted."""
        both = self.buckets.keys() | other.buckets.keys()
        return sorted(b for b in both if self.buckets.get(b) != other.buckets.get(b))


@dataclass(frozen=True, slots=True)
class DigestedBatch:
    """Messages with their digests: rows of a batch, [n, 2] each."""

    batch: pa.RecordBatch
    identities: UInt64Pairs
    digests: UInt64Pairs

    def parts(self) -> Int64s:
        """Return the part of all ids that each message is in."""
        return (self.identities[:, 0] % np.uint64(ID_BUCKETS)).astype(np.int64)


def digested(
    slices: Sequence[QueueSlice],
    rule: AuditRule,
    *,
    merged: bool = False,
    naming: Naming | None = None,
) -> Iterator[DigestedBatch]:
    """Yield the messages of slices with their digests; ``naming`` names them by an offset map.

    Raises as ``scan``.
    """
    settings = ScanSettings(columns=rule.columns, merged=merged, batch_bytes=BATCH_BYTES)
    for scanned in scan(slices, settings):
        batch = scanned if naming is None else naming.named(scanned)
        if len(batch):
            found = message_digests(batch, rule.identity, rule.left_out)
            yield DigestedBatch(batch, identity_digests(batch, rule.identity), found)


def digests_of(
    slices: Iterable[QueueSlice], rule: AuditRule, broker: str, naming: Naming | None = None
) -> AuditDigests:
    """Return the digests of slices of one broker, in one pass; ``broker`` is what it is called."""
    found = AuditDigests()
    for part in digested(list(slices), rule, merged=True, naming=naming):
        for bucket, digest in _by_bucket(part, rule, broker):
            found.buckets.setdefault(bucket, BucketDigest()).add(digest)
    return found


def stored_ms(batch: pa.RecordBatch) -> Int64s:
    """Return the store timestamp of each message, in epoch ms."""
    us: Int64s = batch.column("storeTimestamp").cast(pa.int64()).to_numpy()
    return us // 1000


def _by_bucket(
    part: DigestedBatch, rule: AuditRule, broker: str
) -> Iterator[tuple[Bucket, BucketDigest]]:
    batch = part.batch
    if rule.identity == "id":
        codes, names = part.parts(), None
        keys: list[Int64s] = []
    else:
        topics = batch.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        columns = [
            topics.indices.to_numpy(),
            batch.column("queueId").to_numpy(),
            stored_ms(batch) // BUCKET_MS,
        ]
        found = [np.unique(column, return_inverse=True) for column in columns]
        keys = [values for values, _ in found]
        codes = np.ravel_multi_index([at for _, at in found], [len(k) for k in keys])
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sizes = pc.binary_length(batch.column("body")).to_numpy().astype(np.int64)
    sums = np.add.reduceat(part.digests[order], edges, axis=0)
    bytes_of = np.add.reduceat(sizes[order], edges)
    counts = np.diff(edges, append=len(order))
    for number, code in enumerate(codes[order][edges].tolist()):
        digest = BucketDigest(
            int(counts[number]), int(bytes_of[number]), int(sums[number, 0]), int(sums[number, 1])
        )
        if names is None:
            yield ("", "", 0, code), digest
        else:
            at = np.unravel_index(code, [len(k) for k in keys])
            topic, queue, ten = (k[i] for k, i in zip(keys, at, strict=True))
            yield (broker, names[int(topic)], int(queue), int(ten)), digest

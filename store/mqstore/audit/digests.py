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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqstore.audit.relation import Naming
from mqstore.audit.rows import ID_BUCKETS, AuditRule, DigestedRows, digested
from mqstore.read.source import QueueSlice

BUCKET_MS: Final = 600_000
_MASK_64: Final = 2**64 - 1

Bucket = tuple[str, str, int, int]
"""Broker, topic, queueId and ten minutes since the epoch; by id: empty, empty, 0 and the part."""


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


def digests_of(
    slices: Iterable[QueueSlice], rule: AuditRule, broker: str, naming: Naming | None = None
) -> AuditDigests:
    """Return the digests of slices of one broker, in one pass; ``broker`` is what it is called."""
    return digests_of_rows(digested(list(slices), rule, merged=True, naming=naming), rule, broker)


def digests_of_rows(pieces: Iterable[DigestedRows], rule: AuditRule, broker: str) -> AuditDigests:
    """Return the digests of messages of one broker, whose own digests are made already."""
    if rule.identity == "id":
        return _by_part(pieces)
    found = AuditDigests()
    for part in pieces:
        for bucket, digest in _by_bucket(part, broker):
            found.buckets.setdefault(bucket, BucketDigest()).add(digest)
    return found


def _by_part(pieces: Iterable[DigestedRows]) -> AuditDigests:
    """Return the digests of messages by their parts of all ids."""
    numbers, sums = np.zeros((2, ID_BUCKETS), np.int64), np.zeros((ID_BUCKETS, 2), np.uint64)
    for piece in pieces:
        parts = piece.parts()
        np.add.at(numbers[0], parts, 1)
        np.add.at(numbers[1], parts, piece.row.body_bytes)
        for half in range(2):
            np.add.at(sums[:, half], parts, piece.row.digests[:, half])
    rows = zip(*numbers.tolist(), *sums.T.tolist(), strict=True)
    return AuditDigests(
        {("", "", 0, part): BucketDigest(*row) for part, row in enumerate(rows) if row[0]}
    )


def _by_bucket(part: DigestedRows, broker: str) -> Iterator[tuple[Bucket, BucketDigest]]:
    row = part.row
    ten = row.stored_ms // BUCKET_MS
    tens = np.unique(ten) if ten.min() < ten.max() else ten[:1]
    codes = part.queue * len(tens) + np.searchsorted(tens, ten)
    order = np.argsort(codes.astype(np.uint16) if codes.max() < 2**16 else codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    sums = np.add.reduceat(row.digests[order], edges, axis=0).tolist()
    bytes_of = np.add.reduceat(row.body_bytes[order], edges).tolist()
    counts = np.diff(edges, append=len(order)).tolist()
    for number, code in enumerate(codes[order][edges].tolist()):
        low, high = sums[number]
        digest = BucketDigest(counts[number], bytes_of[number], low, high)
        topic, queue_id = part.queues[code // len(tens)]
        yield (broker, topic, queue_id, int(tens[code % len(tens)])), digest

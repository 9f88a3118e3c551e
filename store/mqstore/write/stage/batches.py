"""Rows to message batches: which rows are sent together, and in which order.

A batch is a run of messages of one topic, one queue and one waitStoreMsgOK that lie in the
CommitLog next to each other and in one file. Messages of a queue keep the order in which they
came; a batch ends where the next message differs or would make it too large. A message that
is delayed, compressed or for a retry topic is sent alone, as the client does.

Reference: MessageBatch#generateFromList, the ListSplitter of RocketMQ's batch example;
Pulsar's BatchMessageKeyBasedContainer for ``keyBased``.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mqstore.format.arrays import Int64s, Mask

_LAST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one batch: its client encoding, its records, its messages."""

    max_bytes: int
    max_record_bytes: int
    max_messages: int | None


def order_rows(queues: Int64s, sharding: Int64s | None, moments: Int64s | None) -> NDArray[np.intp]:
    """Return the order of rows in the CommitLog.

    By queue, in each by arrival; with ``sharding`` (codes of the shardingKeys, for keyBased) the
    rows of a key together, in the order of the keys' first rows; with ``moments`` (storeTimestamps
    to be preserved) by these instead, because they may not go back in a CommitLog; a row with
    none gets the commit's own clock and comes last.
    """
    if moments is not None:
        return np.argsort(np.where(moments > 0, moments, _LAST), kind="stable")
    if sharding is None:
        return np.argsort(queues, kind="stable")
    pairs = np.stack((queues, sharding), axis=1)
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    return np.lexsort((first[inverse.ravel()], queues))


def split_batches(
    kinds: Int64s, alone: Mask, encoded_sizes: Int64s, record_sizes: Int64s, limits: BatchLimits
) -> Mask:
    """Return which of the ordered rows start a batch.

    ``kinds`` number what rows of a batch must share; ``alone`` are rows sent by themselves.
    """
    count = len(kinds)
    if not count:
        return np.zeros(0, np.bool_)
    starts = np.ones(count, np.bool_)
    starts[1:] = (kinds[1:] != kinds[:-1]) | alone[1:] | alone[:-1]
    edges = np.append(np.flatnonzero(starts), count)
    encoded, records = (np.append(0, np.cumsum(s)) for s in (encoded_sizes, record_sizes))
    most = limits.max_messages or count
    too_large = (
        (np.diff(encoded[edges]) > limits.max_bytes)
        | (np.diff(records[edges]) > limits.max_record_bytes)
        | (np.diff(edges) > most)
    )
    # A loop over batches, and only in the runs that need more than one.
    for run in np.flatnonzero(too_large).tolist():
        row, end = int(edges[run]), int(edges[run + 1])
        while row < end:
            starts[row] = True
            fits = min(
                np.searchsorted(encoded, encoded[row] + limits.max_bytes, "right"),
                np.searchsorted(records, records[row] + limits.max_record_bytes, "right"),
            )
            row = max(row + 1, min(int(fits) - 1, row + most, end))
    return starts

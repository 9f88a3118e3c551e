"""Entries of ConsumeQueues without their messages: places, sizes and hashes of tags.

An entry is 72 bytes of JSON. To count what a tag's hash matches this is the cheaper way where
many messages match; where few do, a pull with the tags is (``PullReader``).

Reference: AdminBrokerProcessor#queryConsumeQueue, ConsumeQueueData, QueryConsumeQueueResponseBody.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mqstore.format.arrays import Int64s
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.remoting.answers import header_number
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.live.remoting.requests import GET_MIN_OFFSET, QUERY_CONSUME_QUEUE, Request

IN_A_REQUEST: Final = 10_000
_ENTRY_FIELDS: Final = tuple(
    re.compile(rb'"%b":(-?[0-9]{1,20})[,}]' % name)
    for name in (b"physicOffset", b"physicSize", b"tagsCode")
)


def entries(
    cluster: Cluster, slices: Sequence[LiveSlice], most: int = IN_A_REQUEST
) -> Iterator[tuple[LiveSlice, Int64s]]:
    """Yield parts of the slices, in order, with physicalOffset, size and tagsCode: int64[3, n].

    At most ``pulls_in_flight`` parts of ``most`` are held. What a broker no longer holds is left
    out, and so is what lies behind its end. Raises as Cluster#ask_all.
    """
    most = min(most, IN_A_REQUEST)
    parts = [part for piece in slices for part in _parts(piece, most)]
    step = cluster.settings.pulls_in_flight
    for first in range(0, len(parts), step):
        chosen = parts[first : first + step]
        asked = [(part.broker, _request(part)) for part in chosen]
        for part, (answer, address) in zip(chosen, cluster.ask_all(asked), strict=True):
            found = _columns(address, part, bytes(answer.body))
            if found.shape[1]:
                yield _first(part, found.shape[1]), found
            elif (low := _low(cluster, part)) > part.start:
                # Where the start of a range has expired, a broker gives nothing of it.
                rest = LiveSlice(part.broker, part.topic, part.queue_id, low, part.end)
                yield from entries(cluster, [rest], most)


def _parts(piece: LiveSlice, most: int) -> Iterator[LiveSlice]:
    for start in range(piece.start, piece.end, most):
        end = min(start + most, piece.end)
        yield LiveSlice(piece.broker, piece.topic, piece.queue_id, start, end)


def _first(part: LiveSlice, count: int) -> LiveSlice:
    return LiveSlice(part.broker, part.topic, part.queue_id, part.start, part.start + count)


def _request(part: LiveSlice) -> Request:
    return QUERY_CONSUME_QUEUE(
        topic=part.topic, queueId=part.queue_id, index=part.start, count=part.end - part.start
    )


def _low(cluster: Cluster, part: LiveSlice) -> int:
    request = GET_MIN_OFFSET(topic=part.topic, queueId=part.queue_id)
    answer, address = cluster.ask(part.broker, request)
    return header_number(address, answer, "offset")


def _columns(address: str, part: LiveSlice, body: bytes) -> Int64s:
    found = [field.findall(body) for field in _ENTRY_FIELDS]
    counts = {len(column) for column in found}
    if len(counts) > 1 or max(counts) > part.end - part.start:
        reason = f"entries [{part.start}, {part.end}) of {part} were asked for, and others given"
        raise BrokenAnswerError(address, reason)
    try:
        return np.array(found, np.bytes_).astype(np.int64).reshape(len(found), -1)
    except (ValueError, OverflowError) as error:
        raise BrokenAnswerError(address, f"an entry of {part} has no 64-bit numbers") from error

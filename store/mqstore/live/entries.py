"""Entries of ConsumeQueues without their messages: hashes of tags, for counting what matches.

An entry is 72 bytes of JSON, a message is itself: where many messages match a subscription this
is the cheaper way to count them, where few do a pull with the tags is (``PullReader``).

Reference: AdminBrokerProcessor#queryConsumeQueue, ConsumeQueueData, QueryConsumeQueueResponseBody.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mqstore.arrays import Int64s
from mqstore.errors import BrokenAnswerError, DataLossError
from mqstore.live.cluster import Cluster
from mqstore.live.pull import LiveSlice
from mqstore.live.requests import QUERY_CONSUME_QUEUE

_IN_A_REQUEST: Final = 10_000
_TAGS_CODE: Final = re.compile(rb'"tagsCode":(-?[0-9]{1,20})[,}]')


def tags_codes(cluster: Cluster, slices: Sequence[LiveSlice]) -> Iterator[tuple[LiveSlice, Int64s]]:
    """Yield parts of the slices, in order, with the tagsCode of each of their offsets: int64[n].

    At most ``pulls_in_flight`` parts of 10,000 are held. Raises as Cluster#ask_all, and
    DataLossError for offsets that a broker no longer, or does not yet, hold.
    """
    parts = [part for piece in slices for part in _parts(piece)]
    step = cluster.settings.pulls_in_flight
    for first in range(0, len(parts), step):
        chosen = parts[first : first + step]
        asked = [
            (
                part.broker,
                QUERY_CONSUME_QUEUE(
                    topic=part.topic,
                    queueId=part.queue_id,
                    index=part.start,
                    count=part.end - part.start,
                ),
            )
            for part in chosen
        ]
        for part, (answer, address) in zip(chosen, cluster.ask_all(asked), strict=True):
            yield part, _codes(address, part, bytes(answer.body))


def _parts(piece: LiveSlice) -> Iterator[LiveSlice]:
    for start in range(piece.start, piece.end, _IN_A_REQUEST):
        end = min(start + _IN_A_REQUEST, piece.end)
        yield LiveSlice(piece.broker, piece.topic, piece.queue_id, start, end)


def _codes(address: str, part: LiveSlice, body: bytes) -> Int64s:
    found = _TAGS_CODE.findall(body)
    count = part.end - part.start
    if len(found) > count:
        reason = f"{len(found)} entries of {part} were given, {count} were asked for"
        raise BrokenAnswerError(address, reason)
    if len(found) < count:
        held = part.start + len(found)
        raise DataLossError(str(part), start=part.start, end=part.end, low=part.start, high=held)
    try:
        return np.array(found, np.bytes_).astype(np.int64)
    except (ValueError, OverflowError) as error:
        raise BrokenAnswerError(address, f"a tagsCode of {part} is no 64-bit number") from error

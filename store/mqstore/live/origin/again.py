"""Ranges of a queue that came short, pulled again alone, before messages are called lost.

A broker with tiered storage in files reads a segment by the position of one shared channel, so
pulls of one queue at the same time disturb each other: an answer then has fewer records than its
range, records of other places, or bytes that are no record. The same range, pulled while no other
pull of this process is under way, comes whole; other processes may disturb it still, so it is
asked for several times.

Reference: org.apache.rocketmq.tieredstore.provider.PosixFileSegment#read0,
MessageStoreFetcherImpl#getMessageFromTieredStoreAsync (nextBeginOffset is behind all units that
were looked at, however many records were found), FlatAppendFile#readAsync.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import Data, follow
from mqstore.errors import StoreError
from mqstore.format.config import TIERED_STORE
from mqstore.format.names import LMQ_PREFIX
from mqstore.live.origin.pull import Answer, PullReader
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.topics import reading_settings

_ASKED_AT_ONCE: Final = 32
_LAST_TRY: Final = 2
_LAST_TRY_OF_TIER: Final = 12
_BEGIN_PAUSE_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.5


def has_tier(cluster: Cluster, broker: str) -> bool | None:
    """Tell whether a broker has tiered storage (messageStorePlugIn); None: it does not tell."""
    if cluster.is_proxy:
        return None
    try:
        broker_settings = reading_settings(cluster, broker)
    except StoreError:
        return None
    return TIERED_STORE in broker_settings.get("messageStorePlugIn", "")


def whole(answer: Answer, reader: PullReader) -> Iterator[Answer]:
    """Yield the answer if it is whole, else what the broker gives of its range when asked alone.

    From a message on that it does not give, the answer is as it was: its records tell what is
    missing. Behind a broken record, messages come one by one. A range that is longer than a pull
    is the broker's word alone, and nothing of it is asked for again. Raises BrokenAnswerError for
    more bytes of messages than an answer stands for.
    """
    is_whole = answer.is_single or _leading(answer)[0] == answer.end - answer.start
    if is_whole or not reader.is_of_one_pull(answer):
        yield answer
        return
    reader.settle()
    tries = _LAST_TRY_OF_TIER if has_tier(reader.cluster, answer.piece.broker) else _LAST_TRY
    at, failures, pause_s = answer.start, 0, _BEGIN_PAUSE_S
    bytes_left = reader.most_bytes_again
    while at < answer.end:
        most = min(_ASKED_AT_ONCE if failures < tries // 2 else 1, answer.end - at)
        body, address = reader.once(answer.piece, at, most)
        given = replace(answer, start=at, body=body, address=address)
        count, size = _leading(given)
        if count:
            bytes_left = reader.left_of(bytes_left, body[:size], answer, address)
            yield replace(given, end=at + count, body=body[:size])
            at, failures, pause_s = at + count, 0, _BEGIN_PAUSE_S
            continue
        failures += 1
        if failures >= tries:
            rest = replace(answer, start=at, body=_behind(answer, at))
            yield from reader.singles(rest) if _is_broken(body) else [rest]
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_WAIT_S)


def _leading(answer: Answer) -> tuple[int, int]:
    """Return how many whole records of their places an answer begins with, and their bytes."""
    walked = follow(answer.body)
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    count = min(len(headers), answer.end - answer.start)
    count = min([count, *headers.problems()])
    if not answer.piece.topic.startswith(LMQ_PREFIX) and count:
        stored = headers.field("queue_offset").astype(np.int64)[:count]
        wrong = np.flatnonzero(stored != answer.start + np.arange(count))
        count = int(wrong[0]) if len(wrong) else count
    return count, int(walked.sizes[:count].sum())


def _is_broken(body: Data) -> bool:
    walked = follow(body)
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    return walked.end < len(body) or bool(headers.problems())


def _behind(answer: Answer, at: int) -> Data:
    """Return the records of an answer that are at a queue offset or behind it."""
    walked = follow(answer.body)
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    behind = np.flatnonzero(headers.field("queue_offset") >= at)
    start = int(walked.starts[behind[0]]) if len(behind) else walked.end
    return answer.body[start : walked.end]

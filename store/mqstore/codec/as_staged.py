"""Whether staged records are records: what is appended, a broker must be able to recover.

A broker cuts its CommitLog off at the first record it cannot parse or whose checksum does not
hold, and whatever lies behind is lost. So a staged file is not believed because its own sums are
right: each record must be one of the queue that the tables enter it into.

Reference: CommitLog#checkMessageAndReturnSize, #recoverNormally.
"""

from collections.abc import Sequence

import numpy as np

from mqstore.arrays import Bytes, Int64s
from mqstore.codec.checksum import broken
from mqstore.codec.gather import RecordHeaders
from mqstore.format.message import HARD_RECORD_BYTES, MIN_RECORD_BYTES
from mqstore.format.names import MAX_QUEUE_ID, is_topic
from mqstore.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK


def problem(
    queues: Sequence[tuple[str, int]],
    of: Int64s,
    sizes: Int64s,
    records: Bytes,
    *,
    bodies: bool,
) -> str | None:
    """Return what is wrong with records end to end, each of queue ``queues[of[i]]``, or None.

    With ``bodies`` each body's checksum is worked out as well.
    """
    if not all(is_topic(topic) and 0 <= queue_id <= MAX_QUEUE_ID for topic, queue_id in queues):
        return "a queue of no topic"
    believable = (sizes >= MIN_RECORD_BYTES) & (sizes <= HARD_RECORD_BYTES)
    if not believable.all() or int(sizes.sum()) != len(records):
        return "sizes that do not add up to the records"
    if len(of) and not 0 <= int(of.min()) <= int(of.max()) < len(queues):
        return "a message of no queue"
    headers = RecordHeaders(records, np.cumsum(sizes) - sizes, sizes)
    found = headers.problems()
    if found:
        return next(iter(found.values()))
    if bodies and broken(headers).any():
        return "the checksum of a record does not hold"
    states = headers.sys_flags & TRANSACTION_MASK
    in_none = np.isin(states, (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)).any()
    theirs = not in_none and _are_theirs(headers, queues, of)
    return None if theirs else "a record of another topic or queue, or of none"


def _are_theirs(headers: RecordHeaders, queues: Sequence[tuple[str, int]], of: Int64s) -> bool:
    """Tell whether each record says it is of the topic and the queue that it is said to be of."""
    ids = np.array([queue_id for _, queue_id in queues], np.int64)
    if len(of) and not np.array_equal(headers.field("queue_id"), ids[of]):
        return False
    return bool(headers.have_topics([topic for topic, _ in queues], of).all())

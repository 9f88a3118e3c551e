"""Messages of batch ConsumeQueues, fetched and checked: a record that holds several is read once.

Reference: PullAPIWrapper#processPullResult.
"""

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.codec.inner_batch import unwrap
from mqstore.derive.records import OF_ANOTHER, FetchedRecords, fetch
from mqstore.files.log.commit_log import CommitLog, Scratch
from mqstore.format.arrays import Int64s


def fetch_messages(
    log: CommitLog,
    physical_offsets: Int64s,
    sizes: Int64s,
    positions: QueuePositions,
    scratch: Scratch | None = None,
) -> FetchedRecords:
    """Read and check the messages of ``positions`` in the records of those places and sizes.

    All arrays are int64[m]; messages of one record follow each other. ``headers`` of the result
    are those of the messages, each as if it had a record of its own. Raises as ``fetch``.
    """
    is_first = np.zeros(len(sizes), np.bool_)
    is_first[:1] = True
    for column in (physical_offsets, sizes, positions.queue):
        is_first[1:] |= column[1:] != column[:-1]
    first, owners = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    found = fetch(log, physical_offsets[first], sizes[first], scratch=scratch)
    names, ids = zip(*((topic, queue_id) for topic, queue_id, _ in positions.queues), strict=True)
    queue = positions.queue[first[found.rows]]
    own = found.headers.have_topics(names, queue)
    own &= found.headers.field("queue_id") == np.array(ids, np.int64)[queue]
    problems = dict(found.problems)
    problems |= dict.fromkeys(found.rows[~own].tolist(), OF_ANOTHER)
    numbers = np.full(len(first), -1)
    numbers[found.rows[own]] = np.arange(int(own.sum()))
    rows = np.flatnonzero(numbers[owners] >= 0)
    headers = found.headers.take(own)
    messages = unwrap(headers, numbers[owners[rows]], positions.queue_offsets[rows])
    lost = {int(rows[row]): reason for row, reason in messages.problems.items()}
    if problems:
        bad = np.flatnonzero(numbers[owners] < 0)
        lost |= {int(row): problems[int(owners[row])] for row in bad}
    return FetchedRecords(messages.headers, rows[messages.rows], lost)

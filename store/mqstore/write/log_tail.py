"""From a plan to the numbers of an intent, and a tail that is fit to be appended to."""

from typing import Any

from mqstore.derive.log_end import LogEnd, next_queue_offset
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_clear import clear, scrub
from mqstore.files.store_dir import StoreDir
from mqstore.files.undo import Undo
from mqstore.write.plan import Plan


def placed(what: Plan, store: StoreDir) -> dict[str, Any]:
    """Return the fields of an intent that say where its messages go.

    Raises CorruptStoreError if a queue does not end with a record of its own.
    """
    with CommitLog(store.commit_log) as log:
        queues = tuple(
            (*queue, next_queue_offset(log, store.root, *queue, what.tail), count)
            for queue, count in what.queue_counts.items()
            if count
        )
    return {
        "log_start": what.log_start,
        "tail": what.tail,
        "end": what.end,
        "first": what.first,
        "last": what.last,
        "messages": what.messages,
        "key_count": what.key_count,
        "store_timestamp_ms": what.store_timestamp_ms,
        "last_store_timestamp_ms": what.last_store_timestamp_ms,
        "queues": queues,
    }


def clear_tail(store: StoreDir, found: LogEnd, undo: Undo, *, known_to: int = 0) -> None:
    """Zero what lies behind the end of the log; keep a copy of what is not our own.

    Bytes of an unpublished commit lie before ``known_to``: they are staged as well.
    """
    if found.garbage:
        low, high = found.garbage
        edge = min(max(low, known_to), high)
        clear(store, low, edge)
        if edge < high:
            scrub(store, edge, high, undo)

"""Where queues begin for the clients of a broker with tiered storage: below the local log.

Messages that the local log has no more are neither expired nor lost while the tier has them.

Reference: TieredMessageStore#getMinOffsetInQueue; FlatMessageFile#getConsumeQueueMinOffset.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mqstore.errors import CorruptConfigError, shown
from mqstore.files.base.folder import Folder
from mqstore.files.config.tier_metadata import TIER_METADATA, load
from mqstore.format.arrays import Span, TopicQueue
from mqstore.read.queues import QueueBounds
from mqstore.read.source import Snapshot

_LOG = logging.getLogger(__name__)
_MOST_TOLD: Final = 5


def tiered_queues(folder: Folder) -> Mapping[TopicQueue, Span]:
    """Return what the metadata of a store says of its queues; none, with a warning, if broken."""
    try:
        metadata = load(folder)
    except CorruptConfigError as error:
        _LOG.warning("%s; what tiered storage has of this store is not known", error)
        return {}
    return {} if metadata is None else metadata.queues


def noted(snapshot: Snapshot, tiered: Mapping[TopicQueue, Span]) -> Snapshot:
    """Return a snapshot whose queues know where tiered storage begins."""
    if not tiered:
        return snapshot
    queues = tuple(_noted(q, tiered.get((q.topic, q.queue_id))) for q in snapshot.queues)
    return replace(snapshot, queues=queues)


def widened(snapshot: Snapshot) -> Snapshot:
    """Return a ``noted`` snapshot whose queues begin where the broker's clients see them begin."""
    if all(queue.tier_low is None for queue in snapshot.queues):
        return snapshot
    return replace(snapshot, queues=tuple(map(_widened, snapshot.queues)))


def tell(snapshot: Snapshot) -> None:
    """Warn, once in a process, that a read has fewer messages than the broker serves."""
    short = [q for q in snapshot.queues if q.tier_low is not None and q.tier_low < q.low]
    if not short:
        return
    named = ", ".join(
        f"{shown(q.topic)}/{q.queue_id} from {q.tier_low}, this store has it from {q.low}"
        for q in short[:_MOST_TOLD]
    )
    _tell(snapshot.origin.name, named, len(short))


@lru_cache(maxsize=1024)
def _tell(name: str, named: str, count: int) -> None:
    more = f" … and so {count} queues in all" if count > _MOST_TOLD else ""
    _LOG.warning(
        "%s: the broker serves more from its tiered storage (%s): %s%s. The option storePathTiered "
        "reads it: the folder of the tier, or the broker.conf that names it",
        *(name, TIER_METADATA, named, more),
    )


def warn_of_living_tier(store: Folder, copy: str) -> None:
    """Warn that a ``copy`` of a store names the tier that the store's broker writes to."""
    if store.exists(TIER_METADATA):
        _LOG.warning(
            "%s names the tier of a running broker (%s): a broker started there with the same "
            "tieredStoreFilePath appends to the same segments. Start it without messageStorePlugIn"
            "=…TieredMessageStore, or with a new tieredStoreFilePath and without that file and its "
            ".bak",
            *(copy, TIER_METADATA),
        )


def _noted(queue: QueueBounds, span: Span | None) -> QueueBounds:
    """Return the queue; a tier that ends before it begins is thrown away by the broker.

    Reference: MessageStoreDispatcherImpl#doScheduleDispatch ("current offset is too small").
    """
    if span is None or span[1] < queue.low:
        return queue
    return replace(queue, tier_low=span[0])


def _widened(queue: QueueBounds) -> QueueBounds:
    if queue.tier_low is None:
        return queue
    low = min(queue.low, queue.tier_low)
    count = None if queue.count is None else queue.count + queue.low - low
    return replace(queue, low=low, local_low=queue.low, count=count)

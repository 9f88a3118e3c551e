"""Says of which messages a backlog cannot tell all: in queues that nobody reads, and in the tier.

No consumer is sent to queues from readQueueNums on.

Reference: MQClientInstance#topicRouteData2TopicSubscribeInfo, whose queues RebalanceImpl shares.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache

from mqstore.errors import shown
from mqstore.format.arrays import Span

_LOG = logging.getLogger(__name__)


def note_unread(topic: str, read_queue_nums: int, held: Mapping[int, Span]) -> None:
    """Warn if queues of a topic that clients do not read hold messages; once in a process."""
    if any(q >= read_queue_nums and low < high for q, (low, high) in held.items()):
        _warn(topic, read_queue_nums)


@lru_cache(maxsize=1024)
def note_tiered(group: str, topic: str, queue_id: int, count: int) -> None:
    """Warn if messages that wait are in tiered storage, which was not named: tags are not known."""
    if count > 0:
        _LOG.warning(
            "group %s: %d messages of %s/%d are in the broker's tiered storage: which of them pass "
            "its expression is not known, and lagMatching counts none; storePathTiered reads them",
            *(shown(group), count, shown(topic), queue_id),
        )


@lru_cache(maxsize=1024)
def _warn(topic: str, read_queue_nums: int) -> None:
    _LOG.warning(
        "topic %s has readQueueNums=%d, and messages in queues from %d on, which no consumer takes "
        "until mqadmin updateTopic -r raises it",
        shown(topic),
        read_queue_nums,
        read_queue_nums,
    )

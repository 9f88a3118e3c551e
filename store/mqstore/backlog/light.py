"""Light queues (LMQ) of a cluster: those of lite topics (5.5) and of MQTT.

A broker's store has them as queues of topics ``%LMQ%…``, and a backlog counts them there. A cluster
lists none of them: neither name servers nor brokers tell their names with the topics. Only offsets
that groups committed name some, and a row of those would say that the topic is gone.

Reference: LiteUtil#toLmqName; LmqTopicConfigManager.
"""

import logging
from collections.abc import Container, Iterable

from mqstore.errors import UnsupportedTopicError, shown
from mqstore.format.names import LMQ_PREFIX

_LOG = logging.getLogger(__name__)
_LISTS_NONE = "no cluster lists light queues, as lite topics have; the broker's store has them"


def left_out_of_cluster(
    topics: Iterable[str], held: Container[str]
) -> dict[str, UnsupportedTopicError]:
    """Return those of ``topics`` that are light queues of unknown bounds, with a warning."""
    found = {
        topic: UnsupportedTopicError(f"topic {shown(topic)}", "LIGHT_QUEUE", _LISTS_NONE)
        for topic in sorted(topics)
        if topic.startswith(LMQ_PREFIX) and topic not in held
    }
    if found:
        first = next(iter(found))
        _LOG.warning("%d light queues are left out, as %s", len(found), found[first])
    return found

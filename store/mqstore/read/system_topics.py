"""The topics that are RocketMQ's own, of one broker: by their names, and by its topics.json."""

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

from mqstore.errors import UnsupportedStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import TopicConfig
from mqstore.format.config import PERM_INHERIT
from mqstore.format.names import REPLY_SUFFIX, is_system_topic
from mqstore.read.source import Snapshot

_LOG: Final = logging.getLogger(__name__)


def system_topics(snapshot: Snapshot) -> set[str]:
    """Return RocketMQ's own topics among those of a broker's queues and of its topics.json."""
    hidden = {topic for topic, _ in snapshot.refused}
    configured = {t: entry for t, entry in topic_configs(snapshot).items() if t not in hidden}
    own = own_topics(configured)
    known = {queue.topic for queue in snapshot.queues} | configured.keys()
    return {topic for topic in known if is_system_topic(topic) or topic in own}


def without_system(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the queues of RocketMQ's own topics."""
    system = system_topics(snapshot)
    queues = tuple(queue for queue in snapshot.queues if queue.topic not in system)
    return replace(snapshot, queues=queues)


def topic_configs(snapshot: Snapshot) -> Mapping[str, TopicConfig]:
    """Return topics.json; for a RocksDB in an object store a warning, and no entry."""
    with closing(snapshot.origin.bounds()) as bounds:
        try:
            return bounds.config.topics()
        except UnsupportedStoreError as error:
            origin = snapshot.origin
            if not (isinstance(origin, StoreDir) and origin.folder.is_remote):
                raise
            _LOG.warning("perm and numbers of queues are not known: %s", error)
            return {}


def own_topics(configured: Mapping[str, TopicConfig]) -> set[str]:
    """Return the topics a broker makes for itself under its own and its cluster's name.

    They alone pass their permissions on, and a cluster has a reply topic beside its own.
    Reference: TopicConfigManager#init.
    """
    own = {topic for topic, entry in configured.items() if entry.perm & PERM_INHERIT}
    return own | {topic + REPLY_SUFFIX for topic in own}

"""The compaction topics of a store: they are left out of reads, and refused where they are named.

A consumer of a topic with cleanup.policy=COMPACTION gets what lies in compaction/compactionLog: the
newest message of each key, and what was not compacted yet. Its ordinary queue has every message
that the CommitLog still holds, which no consumer can get.

A broker goes by topics.json (DefaultMessageStore#getMessage). Of a topic that is not there, the
folder decides. Reference: CompactionStore, CompactionLog.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from mqstore.errors import StoreError, UnsupportedTopicError, shown
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.read.snapshot import configured

_LOG = logging.getLogger(__name__)
_NAMED: Final = 5
_COMPACTED = (
    f"a compaction topic: its consumers get what {names.COMPACTION_LOG} has, which mqlog reads "
    "from a running broker alone (rocketmq://HOST:9876/TOPIC)"
)


def compaction_topics(store: Store) -> dict[str, StoreError]:
    """Return the compaction topics of a store, and why each cannot be read.

    Where topics.json cannot be read, those with a folder.
    """
    known: dict[str, TopicConfig] = {}
    with suppress(StoreError):  # Who needs the file tells what is wrong with it.
        known = configured(store)
    topics = {topic for topic, entry in known.items() if entry.is_compacted}
    topics |= set(store.place.folder.names(names.COMPACTION_LOG)) - known.keys()
    return {
        topic: UnsupportedTopicError(f"topic {shown(topic)}", "COMPACTION", _COMPACTED)
        for topic in sorted(topics)
    }


def not_of(
    compacted: Collection[str], topics: Callable[[str], bool] | None
) -> Callable[[str], bool] | None:
    """Return the test ``topics`` without those that are compacted."""
    if not compacted:
        return topics
    return lambda topic: topic not in compacted and (topics is None or topics(topic))


def warn_of(root: str, compacted: Mapping[str, StoreError]) -> None:
    """Log that these topics of a store are left out."""
    names_, more = sorted(compacted)[:_NAMED], len(compacted) - _NAMED
    named = ", ".join(map(shown, names_)) + (f" and {more} more" if more > 0 else "")
    _LOG.warning("%s: left out: %s. %s", root, named, compacted[names_[0]])

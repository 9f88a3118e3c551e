"""A stream's progress as a consumer group's: what ``commitGroup`` publishes.

It is for people and for the backlog: the stream itself goes by Spark's checkpoint and never
reads it. Of several queries that publish under one name, the last to publish counts.

Reference: org.apache.rocketmq.client.Validators#checkGroup.
"""

import re
from collections.abc import Mapping
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.read.progress import Progress
from mqstore.read.source import COMMIT_GROUP, Origin

_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


class GroupProgress:
    """Publishes the progress of one stream under a group's name, in each origin it reads."""

    def __init__(self, group: str, origins: Mapping[str, Origin]) -> None:
        """``origins`` are what is read by their broker's name.

        Raises InvalidOptionError for text that is no name of a group, for a group of the
        broker's, and for an origin that this process may not write to.
        """
        if _GROUP.fullmatch(group) is None:
            expected = "must be a group's name: 1 to 255 of letters, digits, %, |, _ and -"
            raise InvalidOptionError(COMMIT_GROUP, group, expected)
        self._group = group
        self._sources = {broker: origin.bounds(broker) for broker, origin in origins.items()}
        for source in self._sources.values():
            source.claim_group(group)
        self._published: Progress | None = None

    def publish(self, progress: Progress) -> None:
        """Publish where the stream goes on, unless it was the last time; raises OSError."""
        if progress == self._published:
            return
        for broker, source in self._sources.items():
            queues = {(t, q): position for (t, b, q), position in progress.items() if b == broker}
            source.publish_group(self._group, queues)
        self._published = progress

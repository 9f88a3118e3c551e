"""A stream's progress as a consumer group's: what ``commitGroup`` publishes.

It is for people and for the backlog: the stream itself goes by Spark's checkpoint and never
reads it. Of several queries that publish under one name, the last to publish counts.

Reference: org.apache.rocketmq.client.Validators#checkGroup.
"""

from collections.abc import Mapping

from mqstore.errors import StoreError
from mqstore.options import grammar
from mqstore.read.capabilities import COMMIT_GROUP, group_publisher
from mqstore.read.progress import Progress
from mqstore.read.source import BoundsSource, Origin


class PublishedProgress:
    """Publishes the progress of one stream under a group's name, in each origin it reads."""

    def __init__(self, group: str, origins: Mapping[str, Origin]) -> None:
        """``origins`` are what is read by their broker's name.

        Raises InvalidOptionError for text that is no name of a group, for a group of the
        broker's, and for an origin that this process may not write to.
        """
        self._group = grammar.group_name(COMMIT_GROUP, group)
        self._origins = origins
        self._sources: dict[str, BoundsSource] = {}
        self._claim()
        self._published: Progress | None = None

    def publish(self, progress: Progress) -> None:
        """Publish where the stream goes on, unless it was the last time; raises OSError.

        A broker that is away gets it at a later call. Origins may have been added since.
        """
        if progress == self._published:
            return
        self._claim()
        done = []
        for broker, source in self._sources.items():
            queues = {(t, q): position for (t, b, q), position in progress.items() if b == broker}
            publisher = group_publisher(source, self._group)
            done.append(publisher.publish_group(self._group, queues))
        if all(done):
            self._published = progress

    def close(self) -> None:
        """Close what is open."""
        for source in self._sources.values():
            source.close()

    def _claim(self) -> None:
        for broker, origin in self._origins.items():
            if broker not in self._sources:
                source = origin.bounds(broker)
                try:
                    group_publisher(source, self._group).claim_group(self._group)
                except StoreError:
                    source.close()
                    raise
                self._sources[broker] = source

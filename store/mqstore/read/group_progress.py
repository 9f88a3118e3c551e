"""A stream's progress as a consumer group's: what ``commitGroup`` publishes.

It is for people and for the backlog: the stream itself goes by Spark's checkpoint and never
reads it. One query a group: the last to publish is what counts.

Reference: org.apache.rocketmq.client.Validators#checkGroup.
"""

import re
from collections.abc import Mapping
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files.config import broker_config, stream_groups
from mqstore.read.progress import Progress

_OPTION: Final = "commitGroup"
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


class GroupProgress:
    """Publishes the progress of one stream under a group's name, in each store it reads."""

    def __init__(self, group: str, roots: Mapping[str, str]) -> None:
        """``roots`` are the stores by their broker's name.

        Raises InvalidOptionError for no name of a group, a group of the broker's, and a store
        that this process may not write to.
        """
        if _GROUP.fullmatch(group) is None:
            expected = "must be a group's name: 1 to 255 of letters, digits, %, |, _ and -"
            raise InvalidOptionError(_OPTION, group, expected)
        for root in roots.values():
            _check_free(root, group)
            try:
                stream_groups.make_folder(root)
            except OSError as error:
                expected = (
                    f"progress is kept in {root}/.mqlog, which cannot be written to ({error}); "
                    "leave the option out, or let this user write there"
                )
                raise InvalidOptionError(_OPTION, group, expected) from error
        self._group = group
        self._roots = dict(roots)
        self._published: Progress | None = None

    def publish(self, progress: Progress) -> None:
        """Publish where the stream goes on, unless it was the last time; raises OSError."""
        if progress == self._published:
            return
        for broker, root in self._roots.items():
            queues = {(t, q): position for (t, b, q), position in progress.items() if b == broker}
            stream_groups.publish(root, self._group, queues)
        self._published = progress


def _check_free(root: str, group: str) -> None:
    """Refuse a name that the broker knows: whose progress it is, nobody could tell."""
    theirs = {
        name for (_, name), found in broker_config.committed(root).items() if found.is_brokers
    }
    if group in theirs | broker_config.groups(root):
        expected = f"is a consumer group of the broker of {root}: choose another name"
        raise InvalidOptionError(_OPTION, group, expected)

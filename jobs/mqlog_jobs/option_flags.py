"""The flags of commands that stand for options of a read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mqstore.errors import InvalidOptionError

FLAGS: Final[dict[str, str]] = {
    "groups": "--group",
    "subscriptions": "--subscription",
    "subscribe": "--topic",
    "startingTimestamp": "--since",
    "endingTimestamp": "--until",
    "tags": "--tag",
    "sql": "--sql",
    "keys": "--key",
    "msgIds": "--id",
    "onCorrupt": "--on-corrupt",
    "storePathCommitLog": "--commit-log",
    "queues": "--from-log",
    "interval": "--interval",
    "lateAfter": "--late-after",
    "lookAgain": "--look-again",
    "identity": "--by",
    "ignoredProperties": "--ignore",
    "offsetMap": "--offset-map",
    "onlyMapped": "--only-mapped",
    "unconsumed": "--unconsumed",
}
"""Option → flag."""
TOPIC_ARGUMENT: Final[dict[str, str]] = {
    "subscribe": "TOPIC",
    "assign": "TOPIC/QUEUE",
    "startingOffsets": "TOPIC/QUEUE@OFFSET",
}
"""Option → argument, of commands whose argument names a topic, a queue and an offset."""


@contextmanager
def in_flags() -> Iterator[None]:
    """Let errors about options name the flags that stand for them."""
    try:
        yield
    except InvalidOptionError as error:
        error.option = FLAGS.get(error.option, error.option)
        raise

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
    "onCorrupt": "--on-corrupt",
    "storePathCommitLog": "--commit-log",
    "queues": "--from-log",
    "interval": "--interval",
    "lookAgain": "--look-again",
    "identity": "--by",
    "ignoredProperties": "--ignore",
    "offsetMap": "--offset-map",
    "onlyMapped": "--only-mapped",
    "unconsumed": "--unconsumed",
}
"""Option → flag."""


@contextmanager
def in_flags() -> Iterator[None]:
    """Let errors about options name the flags that stand for them."""
    try:
        yield
    except InvalidOptionError as error:
        error.option = FLAGS.get(error.option, error.option)
        raise

"""The flags of commands that stand for options of a read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mqstore.errors import InvalidOptionError, StoreError

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
_NAMED_IN_SQL: Final = {
    "subscribe": "a RocketMQ proxy lists no topics: name them in the query (topic = 'SHOP_ORDERS')",
    "groups": "a RocketMQ proxy lists no groups: name them by -o groups=NAMES",
}
"""Option that a place behind a proxy misses → what to do in a query."""


@contextmanager
def in_flags() -> Iterator[None]:
    """Let errors about options name the flags that stand for them."""
    try:
        yield
    except InvalidOptionError as error:
        error.option = FLAGS.get(error.option, error.option)
        raise


def in_words_of_sql(error: StoreError) -> StoreError:
    """Return the error of a place; of names that a proxy wants, with what to write in a query."""
    if isinstance(error, InvalidOptionError) and error.option in _NAMED_IN_SQL and not error.value:
        return InvalidOptionError("QUERY", "", _NAMED_IN_SQL[error.option])
    return error

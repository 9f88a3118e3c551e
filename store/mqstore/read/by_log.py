"""The option queues=log: its words, and where a read by the CommitLog keeps what its walk found."""

import os
from typing import Final

from mqstore.files.log.replica_log import READ_UNCOMMITTED

__all__ = ["BY_LOG_WORD", "CACHE_DIR", "QUEUES", "READ_UNCOMMITTED", "default_cache"]

QUEUES: Final = "queues"
CACHE_DIR: Final = "cacheDir"
BY_LOG_WORD: Final = "log"


def default_cache() -> str:
    """Return mqlog's directory in the user's cache, as the XDG base directories say.

    A package for it (platformdirs) would know more systems than Spark and brokers run on.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # noqa: PTH117 - as the specification says, else it is ignored
        base = os.path.expanduser("~/.cache")  # noqa: PTH111
    return f"{base}/mqlog"

"""The option that names tiered storage: its folder, or the broker.conf that does.

Only what the user names leads out of a store: a path in the store's own files is never followed.
"""

from pathlib import Path
from typing import Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.format.config import TIERED_STORE
from mqstore.options import store_paths
from mqstore.read.retention import settings_of_file

_POSIX: Final = "PosixFileSegment"
_MEMORY: Final = "MemoryFileSegment"


def tier_path(option: str, text: str) -> str:
    """Return the absolute path of a tier's folder: ``text``, or what a broker.conf there names.

    Raises InvalidOptionError where no folder is named: without tiered storage, or with that of a
    cloud or of memory.
    """
    path = store_paths.absolute(option, text)
    if not Path(path).is_file():
        return path
    settings = settings_of_file(option, path)
    if TIERED_STORE not in settings.get("messageStorePlugIn", ""):
        expected = (
            "the broker has no tiered storage: messageStorePlugIn names no TieredMessageStore"
        )
        raise InvalidOptionError(option, text, expected)
    provider = settings.get("tieredBackendServiceProvider", _MEMORY).strip()
    if provider.rpartition(".")[2] == _MEMORY:
        raise InvalidOptionError(
            option,
            text,
            "the broker keeps its tier in memory (MemoryFileSegment): no files to read",
        )
    if provider.rpartition(".")[2] != _POSIX:
        expected = (
            f"the tier is kept by {shown(provider)}, and mqlog reads the files of PosixFileSegment "
            "only: read the running cluster, rocketmq://NAMESERVER:9876"
        )
        raise InvalidOptionError(option, text, expected)
    folder = settings.get("tieredStoreFilePath", "").strip()
    if not Path(folder).is_absolute():
        expected = (
            f"tieredStoreFilePath={shown(folder)} is no absolute path: name the folder itself"
        )
        raise InvalidOptionError(option, text, expected)
    return folder

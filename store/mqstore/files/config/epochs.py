"""The epochs of a replica's log, read; a copy of its store has them below .mqlog.

A store with epochs of its own belongs to a controller's group. A copy does not, but its IndexFiles
are those of the replica, and only the epochs tell where these lack messages.

Reference: EpochFileCache#initCacheFromFile.
"""

from typing import Final

from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.format import names
from mqstore.format.epochs import EPOCH_FILE, MAX_EPOCH_BYTES, Epoch, parse_epochs

COPIED: Final = f"{names.OURS}/{EPOCH_FILE}"
_NOT_THERE: Final = (
    "the store belongs to a controller's group, and the file of its epochs is not there; "
    "storePathEpochFile of its broker may name another one"
)


def load_epochs(place: StoreDir) -> tuple[Epoch, ...]:
    """Return the epochs of a replica's store or of a copy of one; none of any other store.

    Raises CorruptStoreError where a replica's cannot be known: no file, or one that breaks a rule.
    Its ``.bak`` is no help, as that lacks the newest epoch.
    """
    path = EPOCH_FILE if place.is_replica else COPIED
    data = epoch_data(place)
    if data is None:
        return ()
    if not data:
        raise CorruptStoreError(f"{place.root}/{path}", 0, _NOT_THERE)
    try:
        return parse_epochs(data)
    except ValueError as error:
        raise CorruptStoreError(f"{place.root}/{path}", 0, str(error)) from error


def epoch_data(place: StoreDir) -> bytes | None:
    """Return what a copy of the store keeps at ``COPIED``; None where it needs nothing.

    Of a replica without the file these are no bytes, which no reader takes for epochs.
    """
    path = EPOCH_FILE if place.is_replica else COPIED
    data = place.folder.read_small(path, MAX_EPOCH_BYTES + 1)
    return b"" if data is None and place.is_replica else data

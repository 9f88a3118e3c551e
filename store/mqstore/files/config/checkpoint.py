"""The checkpoint files, read: of the store, and of 5.x timers."""

import numpy as np

from mqstore.files.base.store_dir import StoreDir
from mqstore.format import config, names
from mqstore.format.checkpoint import CHECKPOINT
from mqstore.format.timer_check import TIMER_CHECK


def load(place: StoreDir) -> np.void | None:
    """Return the checkpoint's fields, or None if the file is absent or too short."""
    return _first(place, names.CHECKPOINT, CHECKPOINT)


def load_timer(place: StoreDir) -> np.void | None:
    """Return the fields of config/timercheck, or None if the file is absent or too short."""
    return _first(place, f"{names.CONFIG}/{config.TIMER_CHECK}", TIMER_CHECK)


def timer_of(data: bytes) -> np.void | None:
    """Return the fields that ``data`` begins with, as ``load_timer``."""
    return _first_of(data, TIMER_CHECK)


def _first(place: StoreDir, path: str, layout: "np.dtype[np.void]") -> np.void | None:
    return _first_of(place.folder.read_small(path, layout.itemsize) or b"", layout)


def _first_of(data: bytes, layout: "np.dtype[np.void]") -> np.void | None:
    return np.frombuffer(data, layout, 1)[0] if len(data) >= layout.itemsize else None


def not_ahead(data: bytes, *, last_ms: int, last: int, end: int) -> bytes:
    """Return the checkpoint ``data`` for a log that ends at ``end``.

    ``last`` is where its last record starts, ``last_ms`` that record's storeTimestamp.
    """
    if len(data) < CHECKPOINT.itemsize:
        return data
    found = np.frombuffer(data, CHECKPOINT, 1).copy()
    for names_of, most in (
        (("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"), last_ms),
        (("master_flushed_offset", "confirm_phy_offset"), end),
        (("logics_physical_offset",), last),
    ):
        for name in names_of:
            found[name] = np.minimum(found[name], most)
    return found.tobytes() + data[CHECKPOINT.itemsize :]

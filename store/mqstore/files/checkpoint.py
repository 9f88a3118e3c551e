"""The checkpoint files, read: of the store, and of 5.x timers."""

import os

import numpy as np

from mqstore.files.safe_open import open_file
from mqstore.format import config, names
from mqstore.format.checkpoint import CHECKPOINT
from mqstore.format.timer_check import TIMER_CHECK


def load(root: str) -> np.void | None:
    """Return the checkpoint's fields, or None if the file is absent or too short."""
    return _first(root, names.CHECKPOINT, CHECKPOINT)


def load_timer(root: str) -> np.void | None:
    """Return the fields of config/timercheck, or None if the file is absent or too short."""
    return _first(root, f"{names.CONFIG}/{config.TIMER_CHECK}", TIMER_CHECK)


def _first(root: str, path: str, layout: "np.dtype[np.void]") -> np.void | None:
    try:
        fd = open_file(root, path)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, layout.itemsize, 0)
    finally:
        os.close(fd)
    return np.frombuffer(data, layout)[0] if len(data) == layout.itemsize else None

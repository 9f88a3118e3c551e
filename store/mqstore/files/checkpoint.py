"""The checkpoint file, read."""

import os

import numpy as np

from mqstore.files.safe_open import open_file
from mqstore.format import names
from mqstore.format.checkpoint import CHECKPOINT


def load(root: str) -> np.void | None:
    """Return the checkpoint's fields, or None if the file is absent or too short."""
    try:
        fd = open_file(root, names.CHECKPOINT)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(fd, CHECKPOINT.itemsize, 0)
    finally:
        os.close(fd)
    return np.frombuffer(data, CHECKPOINT)[0] if len(data) == CHECKPOINT.itemsize else None

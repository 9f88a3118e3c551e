"""A new directory must not be made in a store, whose broker owns all that is in it."""

import os

from mqstore.files.base import durable
from mqstore.format import names

_BESIDE_A_LOG = (names.CONFIG, names.CONSUME_QUEUE, names.CHECKPOINT)


def store_above(path: str) -> str | None:
    """Return the store, or repository of points, that a new directory would lie in."""
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    while True:
        if os.path.lexists(f"{folder}/{names.REPOSITORY_MARK}"):
            return folder
        if durable.is_directory(f"{folder}/{names.COMMIT_LOG}") and any(
            os.path.lexists(f"{folder}/{name}") for name in _BESIDE_A_LOG
        ):
            return folder
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return None
        folder = above

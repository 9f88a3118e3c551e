"""Stores by their root alone: for tables that tell of a store whatever state it is in."""

from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.errors import CorruptConfigError
from mqstore.files.store_dir import open_dir
from mqstore.read.snapshot import folder_name, name_of


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """A store's directory, its CommitLog's folders, its broker's name. Pickles."""

    root: str
    commit_log: tuple[str, ...]
    broker_name: str


def open_root(
    root: str, commit_log: Sequence[str] = (), broker_name: str | None = None
) -> StoreRoot:
    """Return the store at ``root``; a topics.json that cannot be read is no obstacle.

    Raises StoreNotFoundError, NotAStoreError, UnsupportedStoreError.
    """
    store = open_dir(root, commit_log)
    if broker_name is None:
        try:
            broker_name = name_of(store)
        except CorruptConfigError:
            broker_name = folder_name(store)
    return StoreRoot(store.root, store.commit_log, broker_name)

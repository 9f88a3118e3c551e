"""The context of every change of a store: its root, a folder for new files, sizes, and an undo.

Whether syncs are made is not part of it: see ``durable.synced``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mqstore.files.base import durable
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.undo import Undo

PWRITE: Final = "pwrite"
MMAP: Final = "mmap"


def _no_check() -> None:
    pass


@dataclass(frozen=True, slots=True)
class StoreWriter:
    """A store that is locked for writing, as the functions that change its files take it."""

    place: StoreDir
    temp_dir: str
    """Folder on the store's file system in which files get their content before their name."""
    sizes: FileSizes
    """Sizes of the store's files, and of those that are made."""
    undo: Undo = field(default_factory=Undo.ended)
    """Steps that take every change back; by default none are remembered."""
    write_mode: str = PWRITE
    """How records are written to the CommitLog."""
    check: Callable[[], None] = _no_check
    """Raises HoldLostError if the lock may be lost: called before each step."""

    @property
    def root(self) -> str:
        """The store's root directory."""
        return self.place.root

    def path(self, path: str) -> str:
        """Return the full path of ``path``, which is relative to the root."""
        return f"{self.root}/{path}"

    def make_directories(self, path: str) -> None:
        """Make the directory ``path`` and its missing parents, each durable in its parent."""
        here = self.root
        for part in path.split("/"):
            parent, here = here, f"{here}/{part}"
            if not durable.is_directory(here):
                self.undo.remember(
                    lambda made=here: durable.remove_directory(made)  # type: ignore[misc]
                )
                with suppress(FileExistsError):
                    durable.make_directory(here)
                durable.fsync_directory(parent)

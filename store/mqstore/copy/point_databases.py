"""The RocksDB databases of a store as parts of a point: queues, and configuration.

A database is its CURRENT, the MANIFEST that it names, the SST files that the MANIFEST lists, and
write-ahead logs. SST files never change. The MANIFEST only grows, and it grows before a file goes:
if it is the same before all files were taken and after, the files are those that it lists.
A write-ahead log may end in the middle of a record, which RocksDB leaves out.

They are taken before the end of the CommitLog is chosen, so they can only be behind it: a broker
makes the units that are missing when it starts.
"""

from typing import Final

from mqstore.copy.point_target import PointTarget
from mqstore.errors import StoreLockedError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import StoreDir, rocksdb_queues
from mqstore.files.rocksdb.database import database_files, has_database
from mqstore.format import names

_DATABASE_TRIES: Final = 20
_NEVER_CHANGE: Final = (".sst", ".blob")


def databases_of(place: StoreDir) -> list[str]:
    """Return the folders of a store that are RocksDB databases, below its root."""
    found = rocksdb_queues(place)
    below = (f"{names.CONFIG}/{name}" for name in place.folder.names(names.CONFIG))
    return [*([found] if found else []), *(p for p in below if has_database(place.folder, p))]


def take_database(target: PointTarget, place: StoreDir, path: str) -> None:
    """Take a database as it is at one moment. Raises StoreLockedError if it never rests."""
    folder = place.folder
    for _ in range(_DATABASE_TRIES):
        before = _state(folder, path)
        try:
            for name in database_files(folder, path):
                if name.endswith(_NEVER_CHANGE):
                    target.link(folder, f"{path}/{name}", f"{path}/{name}")
                else:
                    target.take(folder, f"{path}/{name}", f"{path}/{name}")
        except FileNotFoundError:
            target.drop(path)
            continue
        if before is not None and _state(folder, path) == before:
            return
        target.drop(path)
    reason = f"its broker changes the database {path} all the time; try again"
    raise StoreLockedError(f"{place.root}: {reason}")


def _state(folder: Folder, path: str) -> tuple[bytes, int] | None:
    """Return CURRENT, and the size of the MANIFEST that it names; None while it is replaced."""
    current = folder.read_small(f"{path}/CURRENT")
    if current is None:
        return None
    name = current.decode(errors="replace").strip()
    size = database_files(folder, path).get(name)
    return None if size is None else (current, size)

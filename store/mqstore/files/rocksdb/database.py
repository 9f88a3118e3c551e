"""A RocksDB database of a store, opened to be read. Nothing is written beside it.

The package rocksdict reads it. It writes files of its own beside
a database, also when it only reads: so it is given a temporary folder with links to the database's
files. A process that has a database open may remove files of it; those that are open stay.

The library checks checksums of blocks. What it finds damaged is a CorruptStoreError.
"""

import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from mqstore.errors import CorruptStoreError, StoreFlavour, UnsupportedStoreError
from mqstore.files.base.folder import Folder

if TYPE_CHECKING:
    import rocksdict

INSTALL: Final = "pip install rocksdict"

_ROCKSDICT: Final = "rocksdict"
_OPENING_TRIES: Final = 4
_MOST_LOG_BYTES: Final = 4 << 30  # Brokers begin a new MANIFEST at 1 GiB, and flush at 128 MiB.
_FILE_ENDINGS: Final = (".sst", ".log", ".blob")
_FILE_BEGINNINGS: Final = ("MANIFEST-", "OPTIONS-")
_COPIED_AT_ONCE: Final = 1 << 20
_FILE_NAMES: Final = ("CURRENT", "IDENTITY")


def has_database(root: Folder, path: str) -> bool:
    """Tell whether ``root/path`` is the folder of a RocksDB database."""
    return root.exists(f"{path}/CURRENT")


class RocksDatabase:
    """The database in the folder ``root/path`` as it was when it was opened. ``close`` it."""

    def __init__(
        self,
        root: Folder,
        path: str,
        flavour: StoreFlavour,
        advice: str = "",
        most_log_bytes: int = _MOST_LOG_BYTES,
    ) -> None:
        """Open it. ``flavour`` is that of the UnsupportedStoreError without the package rocksdict.

        ``advice`` ends the messages of errors. A database whose write-ahead log and MANIFEST have
        more than ``most_log_bytes`` is not opened: the library holds them in memory.

        Raises that, also for a database too large to open, CorruptStoreError, UnsafePathError,
        FileNotFoundError, OSError.
        """
        self._root, self._path = root, path
        self._where = f"{root}/{path}"
        if not root.opens_databases:
            reason = f"RocksDB databases are read in local directories only: copy the store{advice}"
            raise UnsupportedStoreError(self._where, flavour, reason)
        self._advice = advice
        self._most_log_bytes = most_log_bytes
        self._library = _library(self._where, flavour, advice)
        self._view = ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        for tries_left in reversed(range(_OPENING_TRIES)):
            before = database_files(root, path)
            self._check_size(before)
            try:
                self._families = self._open(before)
            except CorruptStoreError:
                # A process that has it open may have removed files meanwhile.
                if not tries_left or database_files(root, path) == before:
                    raise
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, and remove the temporary folder."""
        if self._folder is not None:
            for family in self._families.values():
                family.close()
            self._folder.cleanup()
            self._folder = None

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if it has none. Raises CorruptStoreError."""
        found = self._families.get(family)
        if found is None:
            return None
        try:
            value: bytes | None = found.get(key)
        except Exception as error:
            raise self._damaged(error) from error
        return value

    def items(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys, ascending, with their values. Raises CorruptStoreError."""
        found = self._families.get(family)
        if found is None:
            return
        try:
            rows = found.iter()
            rows.seek(b"")
            while rows.valid():
                yield rows.key(), rows.value()
                rows.next()
            rows.status()
        except Exception as error:
            raise self._damaged(error) from error

    def about(self, family: str, name: str) -> str:
        """Return what RocksDB says of a column family by a property of its own; maybe nothing."""
        found = self._families.get(family)
        if found is None:
            return ""
        try:
            told: str | None = found.property_value(name)
        except Exception as error:
            raise self._damaged(error) from error
        return told or ""

    @property
    def writes(self) -> int:
        """How many writes it has ever had."""
        return int(self._families[""].latest_sequence_number())

    def last_key(self, family: str, last: bytes) -> bytes | None:
        """Return the greatest key that is not behind ``last``. Raises CorruptStoreError."""
        found = self._families.get(family)
        if found is None:
            return None
        try:
            rows = found.iter()
            rows.seek_for_prev(last)
            key: bytes | None = rows.key() if rows.valid() else None
            rows.status()
        except Exception as error:
            raise self._damaged(error) from error
        return key

    def values(self, family: str, start: bytes, end: bytes, most: int) -> list[tuple[bytes, bytes]]:
        """Return at most ``most`` keys of [start, end), ascending, with values. The fast way.

        Raises CorruptStoreError.
        """
        found = self._families.get(family)
        if found is None:
            return []
        read = self._library.ReadOptions()
        read.set_iterate_upper_bound(end)
        try:
            items: Iterator[tuple[Any, Any]] = found.items(from_key=start, read_opt=read)
            rows = list(islice(items, most))
            if len(rows) < most:
                # These items end alike where there are no more and where a block is damaged.
                rest = found.iter(read)
                rest.seek(rows[-1][0] if rows else start)
                while rest.valid():
                    rest.next()
                rest.status()
        except Exception as error:
            raise self._damaged(error) from error
        return rows

    def _check_size(self, files: Mapping[str, int]) -> None:
        """Raise UnsupportedStoreError where opening would read too much, and hold it in memory."""
        logs = [n for n in files if n.endswith(".log") or n.startswith("MANIFEST-")]
        size = sum(files[name] for name in logs)
        if size > self._most_log_bytes:
            reason = f"MANIFEST and *.log of this database have {size} bytes"
            raise UnsupportedStoreError(self._where, "TOO_LARGE", f"{reason}{self._advice}")

    def _open(self, names: Mapping[str, int]) -> "dict[str, rocksdict.Rdict]":
        folder = tempfile.TemporaryDirectory(prefix="mqlog-rocksdb-")
        try:
            for name in names:
                _put_into(folder.name, self._root, f"{self._path}/{name}", name)
            self._view = folder.name
            found = self._opened(folder.name)
        except BaseException:
            folder.cleanup()
            raise
        self._folder = folder
        return found

    def _opened(self, folder: str) -> "dict[str, rocksdict.Rdict]":
        library = self._library
        try:
            families = library.Rdict.list_cf(folder)
            options = library.Options(raw_mode=True)
            options.create_if_missing(False)
            options.set_max_open_files(-1)  # All files are opened now, and stay so.
            options.set_paranoid_checks(True)
            whole = library.Rdict(
                folder,
                options=options,
                column_families={name: library.Options(raw_mode=True) for name in families},
                access_type=library.AccessType.read_only(False),
            )
            return {"": whole} | {name: whole.get_column_family(name) for name in families}
        except Exception as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> CorruptStoreError:
        said = str(error).replace(self._view, self._where)
        return CorruptStoreError(
            self._where, 0, f"RocksDB cannot read this database: {said}{self._advice}"
        )


def _put_into(folder: str, root: Folder, path: str, name: str) -> None:
    """Link a file of a database into a temporary folder, or copy it where it is no file as such."""
    local = root.local_path(path)
    if local is not None:
        os.symlink(local, f"{folder}/{name}")  # noqa: PTH211
        return
    source = root.open(path)
    try:
        with Path(folder, name).open("xb") as file:
            for position in range(0, source.size, _COPIED_AT_ONCE):
                file.write(source.read(_COPIED_AT_ONCE, position))
    finally:
        source.close()


def database_files(root: Folder, path: str) -> dict[str, int]:
    """Return names and sizes of the files that a database consists of. Raises UnsafePathError."""
    return {
        entry.name: entry.size
        for entry in root.entries(path)
        if not entry.is_directory
        and (
            entry.name.endswith(_FILE_ENDINGS)
            or entry.name.startswith(_FILE_BEGINNINGS)
            or entry.name in _FILE_NAMES
        )
    }


def check_installed(where: str, flavour: StoreFlavour, advice: str = "") -> None:
    """Raise UnsupportedStoreError for the database ``where`` without the package that reads it.

    ``advice`` ends the message.
    """
    try:
        importlib.import_module(_ROCKSDICT)
    except ImportError as error:
        reason = (
            "this is a RocksDB database, and the Python package "
            f"{_ROCKSDICT} that reads it is not installed: {INSTALL}{advice}"
        )
        raise UnsupportedStoreError(where, flavour, reason) from error


def _library(where: str, flavour: StoreFlavour, advice: str) -> Any:
    check_installed(where, flavour, advice)
    return importlib.import_module(_ROCKSDICT)

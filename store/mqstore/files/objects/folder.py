"""Folders and files of an object store, as the rest of mqlog reads those of a directory.

A folder is listed with all that is below it, which takes one request for each thousand files, and
once. Small reads are made by pages, which are kept: where a bisection looks at 4 KiB here and there
it comes back to the same pages. Large reads are one request each; see ``CommitLog`` for how
the ranges of records are merged and requested side by side.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pyarrow import fs

from mqstore.errors import (
    NotAStoreError,
    StoreNotFoundError,
    UncleanStoreError,
    UnsafePathError,
    shown,
)
from mqstore.files.base.folder import Entry, ListedFolder
from mqstore.files.objects.address import ALLOW_UNCLEAN, MAX_OBJECTS, ObjectStore
from mqstore.files.objects.connection import connect, unavailable
from mqstore.format.names import ABORT

T = TypeVar("T")
R = TypeVar("R")

_PAGE_BYTES: Final = 32 * 1024
_KEPT_PAGES: Final = 512  # 16 MiB
_KEPT_FILES: Final = 256


class ObjectFiles:
    """The connection to one store, its listing, and the files and pages that were read last.

    Pickles as the store's address and options; each process connects and lists itself.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._lock = threading.RLock()
        self._folders: dict[str, dict[str, Entry]] = {}
        self._changed_ns: dict[str, int] = {}
        self._files: OrderedDict[str, ObjectFile] = OrderedDict()
        self._pages: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def __reduce__(self) -> tuple[object, ...]:
        return (ObjectFiles, (self.store,))

    def folder(self, path: str) -> dict[str, Entry]:
        """Return the entries of a folder below the root by name. Raises as ``entries``."""
        with self._lock:
            if path not in self._folders:
                if path:
                    self._check_listed(path)
                self._list(path)
            return self._folders[path]

    def file(self, path: str) -> "ObjectFile":
        """Return a file that is listed; its first read opens it."""
        with self._lock:
            found = self._files.pop(path, None)
            if found is None:
                if len(self._files) >= _KEPT_FILES:
                    self._files.popitem(last=False)
                found = ObjectFile(self, path)
            self._files[path] = found
            return found

    def changed_ns(self, path: str) -> int:
        """Return when the listing says that a file was written, in ns since the epoch."""
        return self._changed_ns.get(path, 0)

    def page(self, file: "ObjectFile", number: int) -> bytes:
        """Return a page of a file, most often from memory."""
        key = file.path, number
        with self._lock:
            found = self._pages.pop(key, None)
            if found is not None:
                self._pages[key] = found
                return found
        found = file.request(_PAGE_BYTES, number * _PAGE_BYTES)
        with self._lock:
            if len(self._pages) >= _KEPT_PAGES:
                self._pages.popitem(last=False)
            self._pages[key] = found
        return found

    def open(self, path: str) -> Any:
        """Return the object at ``path``, open in pyarrow."""
        system, base = connect(self.store)
        with self.named(path):
            return system.open_input_file(f"{base}/{path}")

    @contextmanager
    def named(self, path: str) -> Iterator[None]:
        """Let errors of the file system name the object and show no secret."""
        where = f"{self.store.address}/{path}" if path else self.store.address
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such object", where) from None
        except OSError as error:
            raise unavailable(where, error, self.store) from None

    def _check_listed(self, path: str) -> None:
        """Raise FileNotFoundError if the listing of a parent folder does not have ``path``."""
        parts = path.split("/")
        self.folder("")
        for count in range(len(parts)):
            known = self._folders.get("/".join(parts[:count]))
            entry = known.get(parts[count]) if known is not None else Entry("", True, 0)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not entry.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def _list(self, path: str) -> None:
        """List a folder; the root alone, any other with all that is below it."""
        system, base = connect(self.store)
        start = f"{base}/{path}" if path else base
        with self.named(path):
            found = system.get_file_info(fs.FileSelector(start, recursive=bool(path)))
        self._check_count(path, len(found))
        known = set(self._folders)
        self._folders[path] = {}
        try:
            for info in found:
                below = info.path.removeprefix(base).lstrip("/") if base else info.path
                self._add(below, info, path)
        except UnsafePathError:
            for half_listed in set(self._folders) - known:
                del self._folders[half_listed]
            raise

    def _check_count(self, path: str, count: int) -> None:
        """Raise NotAStoreError for more names than may be held: pyarrow gives all at once."""
        if count > (most := self.store.max_objects):
            where = f"{self.store.address}/{path}" if path else self.store.address
            reason = (
                f"has {count:,} objects below it, more than {most:,} ({MAX_OBJECTS}): name the "
                "folder of the store, or raise it if that is one; each takes some 600 bytes"
            )
            raise NotAStoreError(where, reason)

    def _add(self, path: str, info: fs.FileInfo, listed: str) -> None:
        inside = path.removeprefix(f"{listed}/") if listed else path
        parts = inside.split("/")
        if {"", ".", ".."} & set(parts) or "\0" in inside or (listed and inside == path):
            raise UnsafePathError(f"{self.store.address}/{path}", "not a name inside the store")
        parent = listed
        for part in parts[:-1]:
            self._put(parent, Entry(part, True, 0))
            parent = f"{parent}/{part}" if parent else part
        is_folder = info.type == fs.FileType.Directory
        self._put(parent, Entry(parts[-1], is_folder, 0 if is_folder else max(info.size or 0, 0)))
        if is_folder and listed:
            self._folders.setdefault(path, {})
        self._changed_ns[path] = info.mtime_ns or 0

    def _put(self, folder: str, entry: Entry) -> None:
        entries = self._folders.setdefault(folder, {})
        known = entries.setdefault(entry.name, entry)
        if known.is_directory != entry.is_directory:
            where = f"{self.store.address}/{folder}/{entry.name}"
            raise UnsafePathError(where, "an object and a folder have the same name")


class ObjectFile:
    """A ReadFile over one object. Nothing but its handle is held, so that ``close`` has no work."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self.path = path
        self._files = files
        self._lock = threading.Lock()
        self._handle: Any = None
        self._size = 0

    @property
    def size(self) -> int:
        """What the object store says when the file is opened; a listing may say another."""
        self._opened()
        return self._size

    def read(self, size: int, position: int) -> bytes:
        """Read by pages what is less than a page, else by one request."""
        if size > _PAGE_BYTES:
            return self.request(size, position)
        first, last = position // _PAGE_BYTES, max(position, position + size - 1) // _PAGE_BYTES
        pages = [self._files.page(self, number) for number in range(first, last + 1)]
        start = position - first * _PAGE_BYTES
        return b"".join(pages)[start : start + size]

    def read_into(self, into: memoryview, position: int) -> int:
        """Read by one request."""
        data = self.request(len(into), position)
        into[: len(data)] = data
        return len(data)

    def request(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``; asks for nothing behind the end."""
        handle = self._opened()
        wanted = min(size, self._size - position)
        if wanted <= 0:
            return b""
        with self._files.named(self.path):
            data: bytes = handle.read_at(wanted, position)
        return data[:wanted]

    def next_data(self, position: int, end: int) -> int:
        """Return ``position``: an object has no holes."""
        return min(position, end)

    def version(self) -> tuple[int, ...]:
        """Return the size and when the object was written, in ns."""
        return self.size, self._files.changed_ns(self.path)

    def close(self) -> None:
        """Do nothing: the file is kept for the next read."""

    def _opened(self) -> Any:
        with self._lock:
            if self._handle is None:
                handle = self._files.open(self.path)
                with self._files.named(self.path):
                    self._size = handle.size()
                self._handle = handle
            return self._handle


class ObjectFolder(ListedFolder):
    """A folder of a store in an object store: the root, or one below it.

    One folder is listed once: what is added to it afterwards is not seen.
    """

    is_remote = True
    opens_databases = False

    def __init__(self, files: ObjectFiles, below: str = "") -> None:
        self._files, self._below = files, below

    def __reduce__(self) -> tuple[object, ...]:
        return (ObjectFolder, (self._files, self._below))

    @property
    def is_by_path(self) -> bool:
        """False: an address leads to the same objects from every host."""
        return False

    @property
    def name(self) -> str:
        """The address."""
        address = self._files.store.address
        return f"{address}/{self._below}" if self._below else address

    def at(self, path: str) -> "ObjectFolder":
        """Return the folder ``path`` in it, read through the same connection."""
        return ObjectFolder(self._files, self.at_root(path))

    def listing(self, path: str) -> dict[str, Entry]:
        """Return what the listing has; the first call for a folder lists it."""
        return self._files.folder(path)

    def entry(self, path: str) -> Entry | None:
        """Return what the listing has of one name; a root that has nothing is not there."""
        if not self.at_root(path) and not self.known(path):
            return None
        return super().entry(path)

    def open(self, path: str) -> ObjectFile:
        """Return a file that is in the listing."""
        self.check_inside(path)
        where, entry = f"{self}/{path}", self.entry(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", where)
        if entry.is_directory:
            raise UnsafePathError(where, "not a plain file")
        return self._files.file(self.at_root(path))

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Work with as many threads as requests may be under way at a time."""
        listed = list(items)
        count = min(self._files.store.requests_in_flight, len(listed))
        if count <= 1:
            return [work(item) for item in listed]
        with ThreadPoolExecutor(count) as workers:
            return list(workers.map(work, listed))

    def check_there(self, kind: str = "directory") -> None:
        """Raise StoreNotFoundError where nothing is; UncleanStoreError where ``abort`` is."""
        try:
            found = self._files.folder("")
        except (FileNotFoundError, NotADirectoryError):
            raise StoreNotFoundError(self.name, "nothing is there") from None
        if not found:
            raise StoreNotFoundError(self.name, "nothing is there")
        if ABORT in found and not self._files.store.allow_unclean:
            reason = (
                "the file abort is in it: it was copied while its broker was running, or after a "
                "crash. Copy it from a broker that was shut down, or from mqlog copy; or read "
                f"it as it is with {ALLOW_UNCLEAN}=true"
            )
            raise UncleanStoreError(f"{shown(self.name)}: {reason}")

    def at_root(self, path: str) -> str:
        """Return ``path`` relative to the store's root."""
        return "/".join(filter(None, (self._below, path)))


def open_objects(store: ObjectStore) -> ObjectFolder:
    """Return the root of a store in an object store; nothing is asked yet."""
    return ObjectFolder(ObjectFiles(store))

"""A repository in an object store.

Objects appear whole or not at all, so a manifest is one request. There are no links: full files are
copied once. There are no locks either: who changes the repository puts an object below ``lock/``,
looks who else has one there, and renews its own every minute. Of two that begin at once, at least
one sees the other and gives up. A lock that was not renewed for a quarter of an hour, or whose
process on this machine is gone, counts no more; before a manifest is put, the own one is looked at.
"""

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from pyarrow import fs

from mqstore.errors import StoreError, StoreLockedError, shown
from mqstore.files.base.folder import Entry, Folder
from mqstore.files.base.read_file import ReadFile
from mqstore.files.objects.address import ObjectStore
from mqstore.files.objects.connection import connect
from mqstore.files.objects.folder import ObjectFiles, open_objects
from mqstore.files.points.backing import LOCK_FILE, Backing

T = TypeVar("T")
R = TypeVar("R")

_RENEWED_S: Final = 60.0
_DEAD_S: Final = 900.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MOST_LOCK_BYTES: Final = 1024


class ObjectBacking(Backing):
    """A Backing over pyarrow.fs. Pickles as address and options; see ObjectStore."""

    def __init__(self, store: ObjectStore) -> None:
        self.address = store.address
        self.store = store
        self._files = ObjectFiles(store)

    def __reduce__(self) -> tuple[object, ...]:
        return (ObjectBacking, (self.store,))

    def entries(self, folder: str = "") -> list[Entry]:
        """List the folder, without what is below its folders."""
        return [
            Entry(info.base_name, info.type == fs.FileType.Directory, max(info.size or 0, 0))
            for info in self.listed(folder)
        ]

    def listed(self, folder: str) -> list[fs.FileInfo]:
        """Return what the file system says of each name in a folder."""
        with self._files.named(folder):
            system, base = connect(self.store)
            where = f"{base}/{folder}" if folder else base
            found = system.get_file_info(fs.FileSelector(where, allow_not_found=True))
        return sorted(found, key=lambda info: info.base_name)

    def open(self, path: str) -> ReadFile:
        """Open the object, with a request that tells its size."""
        file = self._files.file(path)
        _ = file.size  # Raises where there is none.
        return file

    def make(self) -> None:
        """Do nothing: a folder is there once an object is in it."""

    def make_folder(self, path: str) -> None:
        """Do nothing, as ``make``."""

    def create(self, path: str) -> "_Upload":
        """Begin an upload, which is sent in parts."""
        return _Upload(self, path)

    def put(self, path: str, data: bytes) -> None:
        """Upload it."""
        upload = self.create(path)
        try:
            upload.write(data)
        except BaseException:
            upload.leave()
            raise
        upload.close()

    def link(self, folder: Folder, path: str, target: str) -> bool:
        """Return False: an object has one name."""
        return False

    def move(self, path: str, name: str) -> bool:
        """Return False: to rename an object is to copy it."""
        return False

    def remove(self, paths: Iterable[str]) -> None:
        """Delete them one by one."""
        self.each(self._remove, paths)

    def remove_folder(self, path: str) -> None:
        """Remove the mark of a folder, which pyarrow makes where the last object goes."""
        with suppress(FileNotFoundError), self._files.named(path):
            system, base = connect(self.store)
            system.delete_dir(f"{base}/{path}")

    def sync(self, folder: str) -> None:
        """Do nothing: what was answered is durable."""

    def locked(self) -> AbstractContextManager[Callable[[], None]]:
        """Hold an object below ``lock/``."""
        return ObjectLock(self)

    def held_bytes(self, path: str) -> int:
        """Return the object's size."""
        with suppress(FileNotFoundError):
            return self.open(path).size
        return 0

    def new_suffix(self) -> str:
        """Return another one each time.

        A process that was stopped, and goes on when its lock is over, overwrites no object.
        """
        return f"-{uuid.uuid4().hex[:8]}"

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do so many at a time as requests may be under way."""
        return open_objects(self.store).each(work, items)

    def stream(self, path: str) -> Any:
        """Return what takes the bytes of a new object."""
        with self._files.named(path):
            system, base = connect(self.store)
            return system.open_output_stream(f"{base}/{path}")

    def named(self, path: str) -> AbstractContextManager[None]:
        """Let errors name the object and show no secret."""
        return self._files.named(path)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self._files.named(path):
            system, base = connect(self.store)
            system.delete_file(f"{base}/{path}")


class _Upload:
    """A NewObject: it is there once it is closed."""

    def __init__(self, backing: ObjectBacking, path: str) -> None:
        self._backing, self._path = backing, path
        self._stream = backing.stream(path)

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes, or keep them until there are enough for a request."""
        with self._backing.named(self._path):
            self._stream.write(data)

    def close(self) -> None:
        """Send the rest."""
        with self._backing.named(self._path):
            self._stream.close()

    def leave(self) -> None:
        """Delete what came of it: pyarrow cannot give up an upload."""
        with suppress(StoreError, OSError):
            self.close()
            self._backing.remove([self._path])


class ObjectLock:
    """The lock of a repository, as a context manager."""

    def __init__(self, backing: ObjectBacking) -> None:
        self._backing = backing
        self._name = uuid.uuid4().hex
        self._path = f"{LOCK_FILE}/{self._name}"
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Callable[[], None]:
        self._put()
        try:
            self._check_alone()
        except BaseException:
            self._backing.remove([self._path])
            raise
        self._renewer.start()
        return self._check_held

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewer.join()
        self._backing.remove([self._path])

    def _check_alone(self) -> None:
        found = {info.base_name: info for info in self._backing.listed(LOCK_FILE)}
        own = found.pop(self._name, None)
        for name, info in found.items():
            age = 0.0 if own is None else (own.mtime - info.mtime).total_seconds()
            owner = self._owner(f"{LOCK_FILE}/{name}")
            if age < _DEAD_S and not _is_gone(owner):
                who = f"process {owner.get('pid')} on {shown(owner.get('host', '?'))}"
                reason = (
                    f"{who} works on this repository now ({LOCK_FILE}/{name}); let it finish. If "
                    "it was killed, its lock ends after 15 minutes"
                )
                raise StoreLockedError(f"{self._backing.address}: {reason}")
            self._backing.remove([f"{LOCK_FILE}/{name}"])

    def _owner(self, path: str) -> dict[str, object]:
        with suppress(FileNotFoundError, ValueError):
            found = json.loads(self._backing.open(path).read(_MOST_LOCK_BYTES, 0))
            if isinstance(found, dict):
                return found
        return {}

    def _check_held(self) -> None:
        if all(info.base_name != self._name for info in self._backing.listed(LOCK_FILE)):
            reason = "another process took the repository over, as this one was not seen any more"
            raise StoreLockedError(f"{self._backing.address}: {reason}")

    def _put(self) -> None:
        self._backing.put(self._path, json.dumps(_self()).encode())

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED_S):
            with suppress(StoreError, OSError):  # A lock that is not renewed is noticed by others.
                self.renew()

    def renew(self) -> None:
        """Put the lock again, unless another process took it away, as this one was stopped."""
        self._check_held()
        self._put()


def _self() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot()}


def _boot() -> str:
    with suppress(OSError):
        return _BOOT.read_text(encoding="utf-8").strip()
    return ""


def _is_gone(owner: dict[str, object]) -> bool:
    """Tell whether a lock is of a process of this machine that has ended."""
    here, pid = _self(), owner.get("pid")
    if not here["boot"] or (owner.get("host"), owner.get("boot")) != (here["host"], here["boot"]):
        return False
    return isinstance(pid, int) and not Path(f"/proc/{pid}").exists()

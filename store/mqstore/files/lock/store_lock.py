"""The lock of a store: every writer of ours takes it, and it keeps brokers out.

It is two locks and a lease, taken in this order, so that no process waits for one while it holds
another:

    .mqlog/lock     our own writers wait here for each other; the file names its holder
    lock, lease     a broker that starts now blocks in open(2), and loads the store when we are done
    lock, byte 0    the broker's own lock: a broker that got past the lease cannot start

The lease is necessary: a broker loads the store before it locks it, so with a lock alone it
would go on with what it read before our commit. A lease is refused while any process has ``lock``
open, and the kernel breaks it after a time (/proc/sys/fs/lease-break-time), which ``check``
detects. It is taken before the lock of byte 0: a lock that is taken only to be given up when the
lease is refused could meet the single attempt of a starting broker, which would then not start.

Readers never open ``lock``: every open breaks the lease.

Reference: DefaultMessageStore (constructor, load, start); fcntl(2), F_SETLEASE.
"""

import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mqstore.errors import (
    HoldLostError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafePathError,
    UnsupportedStoreError,
    shown,
)
from mqstore.files.base import durable
from mqstore.files.lock.file_system import file_system, is_for_writing
from mqstore.files.lock.processes import holders, openers
from mqstore.format import names

_LOCK_BYTES: Final = b"lock"  # what a broker writes there
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.2
_BREAK_TIME: Final = Path("/proc/sys/fs/lease-break-time")
_USUAL_BREAK_TIME_S: Final = 45
_MARGIN_S: Final = 5.0  # between our last write and the moment the kernel lets others in
_OUTSTAY_S: Final = 600.0
_MOMENT_S: Final = 0.1  # Waited for at least: less than anybody notices.
_MOST_TEXT_BYTES: Final = 4096


class _LockFile:
    """A lock file that is held open. A forked child closes its copy: a lock lives that long."""

    def __init__(self, path: str, data: bytes = b"") -> None:
        self.path = path
        with _GUARD:
            self.fd = durable.open_lock(path, data)
            _OPEN.add(self)

    def close(self) -> None:
        """Close it, if it is still open: that is what unlocks it."""
        with _GUARD:
            _OPEN.discard(self)
            fd, self.fd = self.fd, -1
            if fd >= 0:
                durable.close(fd)


_GUARD: Final = threading.RLock()  # a fork sees every open lock file in the set below
_OPEN: Final[set[_LockFile]] = set()


def _close_in_child() -> None:
    try:
        for file in list(_OPEN):
            file.close()
    finally:
        _GUARD.release()


os.register_at_fork(
    before=_GUARD.acquire, after_in_parent=_GUARD.release, after_in_child=_close_in_child
)


class StoreHold:
    """The lock of the store at ``root``, held while this context manager is entered.

    Waits ``timeout_ms`` for a broker or another writer to let go, and then raises
    StoreLockedError. Raises UnsupportedStoreError, FILE_SYSTEM or NO_LEASE, where nothing would
    keep a starting broker out, unless ``allow_no_lease``: then the caller must ensure that none
    starts, and only a broker that has the store open now is noticed. Raises StoreNotFoundError,
    UnsafePathError, OSError.
    """

    def __init__(
        self, root: str, *, timeout_ms: int, allow_no_lease: bool = False, job: str = ""
    ) -> None:
        self._root = root
        self._timeout_ms = timeout_ms
        self._allow_no_lease = allow_no_lease
        self._job = job
        self._ours: _LockFile | None = None
        self._lock: _LockFile | None = None
        self._made_folder = False
        self._has_lease = False
        self._whole_s = 0.0
        self._patience_s = 0.0

    def __enter__(self) -> "StoreHold":
        self._check_place()
        try:
            self._acquire(time.monotonic() + self._timeout_ms / 1000)
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._outstay()
        finally:
            self._let_go()

    def check(self) -> None:
        """Raise HoldLostError if somebody may have the store open now, or will have it shortly.

        Call it before every step that changes the store; it takes about a microsecond. A process
        blocked in open(2) by the lease is admitted when lease-break-time elapses. How long it has
        been blocked is not known, but it is less than the time since the lease was last whole.
        """
        if self._lock is None or self._lock.fd < 0:
            raise HoldLostError(self._root, "it is not held, or by the parent of this process")
        if not self._has_lease:
            return
        now = time.monotonic()
        if durable.has_lease(self._lock.fd):
            self._whole_s = now
        elif now - self._whole_s > self._patience_s:
            reason = f"a broker that started may have loaded it ({self._broker()})"
            raise HoldLostError(self._root, reason)

    def _acquire(self, deadline: float) -> None:
        if not _try_until(deadline, self._take_ours):
            raise self._locked(self._writer(), "Let it finish")
        # A program that another thread starts has all that was open here, until it is executed.
        if not _try_until(max(deadline, time.monotonic() + _MOMENT_S), self._take_lock):
            raise self._locked(self._broker(), "Stop the broker")

    def _check_place(self) -> None:
        self._check_root()
        kind = file_system(self._root)
        if not (is_for_writing(kind) or self._allow_no_lease):
            reason = (
                f"on a file system of type {kind or 'unknown'} nothing keeps brokers out while we "
                f"write. Write on a local disk, {_AT_YOUR_RISK}"
            )
            raise UnsupportedStoreError(self._root, "FILE_SYSTEM", reason)

    def _check_root(self) -> None:
        if not os.path.isdir(self._root):  # noqa: PTH112 - strings, as everywhere in a store
            raise StoreNotFoundError(self._root)

    def _take_ours(self) -> bool:
        """Take the lock that our own writers take first."""
        path = f"{self._root}/{names.OURS}/{names.LOCK}"
        while True:  # Its last holder removes the file, and then the new one is not locked.
            try:
                self._make_folder()
                file = _LockFile(path)
            except FileNotFoundError:  # It has removed the folder as well.
                self._check_root()
                continue
            try:
                if not durable.lock_byte(file.fd):
                    file.close()
                    return False
                if durable.same_file(path, os.fstat(file.fd).st_ino):
                    self._ours = file
                    durable.truncate(file.fd, 0)
                    durable.write_at(file.fd, self._text(), 0)
                    return True
            except BaseException:
                if self._ours is None:
                    file.close()
                raise
            file.close()

    def _make_folder(self) -> None:
        folder = f"{self._root}/{names.OURS}"
        if not durable.is_directory(folder):
            self._made_folder = True
            try:
                durable.make_directory(folder)
            except FileExistsError:
                self._made_folder = False
                if not durable.is_directory(folder):
                    raise UnsafePathError(folder, "not a directory") from None

    def _take_lock(self) -> bool:
        try:
            file = self._lock = _LockFile(f"{self._root}/{names.LOCK}", _LOCK_BYTES)
        except BlockingIOError:  # Another program than mqlog has a lease on it.
            return False
        self._patience_s = _break_time_s() - _MARGIN_S
        self._whole_s = time.monotonic()
        if self._take_lease(file) and durable.lock_byte(file.fd):
            return True
        self._lock = None
        file.close()
        return False

    def _take_lease(self, file: _LockFile) -> bool:
        """Take the lease; without leases, tell whether no other process has ``lock`` open."""
        try:
            self._has_lease = durable.take_lease(file.fd)
        except OSError as error:
            if self._allow_no_lease:
                return not openers(file.path)
            reason = (
                f"no lease on the file lock ({error.strerror}), without which a broker that "
                "starts loads the store while we write: a user other than the file's owner gets "
                f"none, nor does everyone in a container. Write as its owner, {_AT_YOUR_RISK}"
            )
            raise UnsupportedStoreError(self._root, "NO_LEASE", reason) from error
        return self._has_lease

    def _outstay(self) -> None:
        """Keep the lock until a process that got past the lease has failed to take it and ended."""
        if self._lock is None or self._lock.fd < 0:
            return
        try:
            self.check()
        except HoldLostError:
            _try_until(time.monotonic() + _OUTSTAY_S, self._take_lease_again)

    def _take_lease_again(self) -> bool:
        if self._lock is None:
            return True
        durable.drop_lease(self._lock.fd)
        return durable.take_lease(self._lock.fd)

    def _let_go(self) -> None:
        """Release all, the broker's lock first: a broker blocked by the lease finds it free."""
        lock, self._lock = self._lock, None
        if lock is not None and lock.fd >= 0:
            durable.unlock_byte(lock.fd)
            if self._has_lease:
                durable.drop_lease(lock.fd)
            lock.close()
        self._has_lease = False
        ours, self._ours = self._ours, None
        if ours is None or ours.fd >= 0:
            with suppress(OSError):  # The next writer can go on with what is left.
                self._remove(ours)
        if ours is not None:
            ours.close()

    def _remove(self, ours: _LockFile | None) -> None:
        """Remove what was made to take our own lock, while we have it."""
        if ours is not None:
            durable.unlink(ours.path)
        if self._made_folder:
            self._made_folder = False
            durable.remove_directory(f"{self._root}/{names.OURS}")

    def _text(self) -> bytes:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = {"pid": os.getpid(), "host": socket.gethostname(), "job": self._job, "since": since}
        return json.dumps(text).encode()

    def _writer(self) -> str:
        """Return a text that names the writer of ours that holds the store."""
        try:
            with Path(f"{self._root}/{names.OURS}/{names.LOCK}").open("rb") as file:
                text = json.loads(file.read(_MOST_TEXT_BYTES))
            job = f", job {shown(text['job'])}" if text["job"] else ""
            who = f"process {int(text['pid'])} on {shown(text['host'])}{job}"
            return f"a write by {who}, since {shown(text['since'])},"
        except (OSError, ValueError, LookupError, TypeError):
            return "another write"

    def _broker(self) -> str:
        found = holders(f"{self._root}/{names.LOCK}")
        return ", ".join(map(str, found)) or "a broker or another writer"

    def _locked(self, who: str, instead: str) -> StoreLockedError:
        return StoreLockedError(
            f"{shown(self._root)}: {who} holds the store (waited {self._timeout_ms} ms). "
            f"{instead}, or set lockTimeout (for example 30s) to wait for it"
        )


@contextmanager
def writers_only(root: str, *, timeout_ms: int = 0) -> Iterator[bool]:
    """Keep our own writers out, not brokers; the value is whether that worked.

    It did not if another writer has the store, if ``root`` is gone or cannot be written to.
    """
    held = StoreHold(root, timeout_ms=timeout_ms)
    try:
        taken = _try_until(time.monotonic() + timeout_ms / 1000, held._take_ours)
    except (OSError, StoreNotFoundError, UnsafePathError):
        taken = False
    try:
        yield taken
    finally:
        held._let_go()


_AT_YOUR_RISK: Final = (
    "or see to it yourself that no broker starts meanwhile and set allowNoLease=true"
)


def _try_until(deadline: float, attempt: Callable[[], bool]) -> bool:
    """Repeat ``attempt`` with pauses that grow and differ, until it works or time is up."""
    pause = _FIRST_PAUSE_S
    while not attempt():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, pause * random.uniform(0.5, 1)))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def _break_time_s() -> float:
    """Return how long the kernel lets an open wait for a lease's holder; it may be for ever."""
    try:
        return float(_BREAK_TIME.read_text(encoding="utf-8")) or float("inf")
    except (OSError, ValueError):
        return float(_USUAL_BREAK_TIME_S)

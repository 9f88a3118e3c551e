"""A disk on which one call fails, and the wrong answers a writer could give to that.

`Faulty` stands in for `os` in the seam and makes the k-th call that changes something fail. A
sync that fails loses what was not durable before it, whatever is synced later: so do Linux' file
systems, which mark the pages clean. A descriptor whose sync failed must not be synced again.

Reference: Rebello et al., Can Applications Recover from fsync Failures? (ATC 2020).
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash.disk import Lost, Recorder, path_of

CHANGES = (
    "open",
    "pwrite",
    "preadv",  # Into a mapping: see durable.WriteMapping.
    "ftruncate",
    "posix_fallocate",
    "fsync",
    "fdatasync",
    "link",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
    "fchmod",
)
SHORT = -1
"""No error: the call writes fewer bytes than it was asked to."""


class Faulty(Recorder):
    """Fails the call number ``at``, counted from 0, with ``error``; counts all if that is -1."""

    def __init__(self, base: Path, *, at: int = -1, error: int = errno.EIO) -> None:
        super().__init__(base)
        self.calls = 0
        self.failed = ""
        self.retried: list[str] = []
        """Files that were synced again through a descriptor whose sync had failed."""
        self._at = at
        self._error = error
        self._broken: set[int] = set()
        for name in CHANGES:
            setattr(self, name, self._counted(name, getattr(self, name)))

    def close(self, fd: int) -> None:
        self._broken.discard(fd)
        super().close(fd)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **kwargs)
            syncs = name in {"fsync", "fdatasync"}
            if syncs and args[0] in self._broken:
                self.retried.append(path_of(args[0]))
            number, self.calls = self.calls, self.calls + 1
            if number != self._at:
                return call(*args, **kwargs)
            self.failed = name
            if self._error == SHORT:
                return self._short(name, call, *args, **kwargs)
            if syncs:
                self._lose(args[0])
            raise OSError(self._error, os.strerror(self._error))

        return counted

    def _lose(self, fd: int) -> None:
        self._broken.add(fd)
        node = self._node(fd)
        if node is not None:
            self.ops.append(Lost(node))

    def _short(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if name == "preadv" and len(args[1][0]) > 1:
            fd, (view,), position = args
            return call(fd, [view[: len(view) // 2]], position)
        if name != "pwrite" or len(args[1]) < 2:
            return call(*args, **kwargs)
        fd, data, position = args
        return call(fd, memoryview(data)[: len(data) // 2], position)

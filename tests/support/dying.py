"""A process that dies at any call that changes the file system."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mqstore.files.base import durable

CHANGES = (
    "create",
    "write_at",
    "write_zeros",
    "reserve",
    "truncate",
    "fsync",
    "fsync_directory",
    "link",
    "replace",
    "unlink",
    "make_directory",
    "remove_directory",
)


class KilledError(BaseException):
    """The process is gone: nothing after this point runs."""


class Calls:
    """Counts the calls that change the file system; at the k-th, and after it, nothing works."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.count = 0
        self._at = at
        self._after = after

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number < self._at:
                return call(*args, **kwargs)
            if number == self._at and self._after:
                call(*args, **kwargs)
            raise KilledError

        return counted


@contextmanager
def killed(at: int, *, after: bool = False, syncs: bool = True) -> Iterator[Calls]:
    """Let the process die at change number ``at``, just before it or just after it.

    Syncs count as changes, unless they are not to.
    """
    calls = Calls(at, after=after)
    with pytest.MonkeyPatch.context() as patch:
        for name in (n for n in CHANGES if syncs or not n.startswith("fsync")):
            patch.setattr(durable, name, calls.counted(getattr(durable, name)))
        try:
            yield calls
        except KilledError:
            return


@contextmanager
def before_each_change(act: Callable[[int, str], None]) -> Iterator[None]:
    """Call ``act`` with the number, from 0, and the last path of each change before it is made."""
    numbers = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(durable, name, _with_a_call_before(getattr(durable, name), numbers, act))
        yield


def _with_a_call_before(
    call: Callable[..., Any], numbers: Iterator[int], act: Callable[[int, str], None]
) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        act(next(numbers), str(args[-1]))
        return call(*args, **kwargs)

    return called

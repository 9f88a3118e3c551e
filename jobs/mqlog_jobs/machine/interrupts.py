"""SIGINT while something is to be finished: the first one is noted, the second one interrupts."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_STANDARD_ERROR: Final = 2


@contextmanager
def held(note: str) -> Iterator[int]:
    """Give a descriptor that can be read once SIGINT came; ``note`` is written to standard error.

    A second SIGINT raises KeyboardInterrupt. Behind a block that ends without an error the work is
    done, and the process ignores SIGINT until it ends. For the main thread.
    """
    readable, writable = os.pipe()
    came = False

    def handle(number: int, frame: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        os.write(writable, b"!")
        with suppress(OSError):
            os.write(_STANDARD_ERROR, f"mqlog: {note}\n".encode())

    before = after = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # nohup, or a shell's job in the background
        signal.signal(signal.SIGINT, handle)
    try:
        yield readable
        after = signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, after)
        os.close(readable)
        os.close(writable)


def rounds(every_ms: int | None, count: int, note: str) -> "Iterator[Waits]":
    """Yield what waits until the next round is due, ``count`` times; 0: until SIGINT.

    Once where ``every_ms`` is None. ``note`` as in ``held``: a round is finished.
    """
    if every_ms is None:
        yield Waits(None, 0.0)
        return
    with held(note) as came:
        done, due = 0, time.monotonic()
        while not count or done < count:
            due = max(due + every_ms / 1000, time.monotonic())
            done += 1
            waits = Waits(came if done != count else None, due)
            yield waits
            if waits.interrupted or select.select([came], [], [], 0)[0]:
                return


class Waits:
    """Waits until a time, or until SIGINT came."""

    def __init__(self, came: int | None, due: float) -> None:
        self._came, self._due = came, due
        self.interrupted = False

    def __call__(self) -> None:
        """Wait; not behind the last round."""
        if self._came is not None:
            rest = max(self._due - time.monotonic(), 0)
            self.interrupted = bool(select.select([self._came], [], [], rest)[0])

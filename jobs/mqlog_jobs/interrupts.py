"""SIGINT while something is to be finished: the first one is noted, the second one interrupts."""

import os
import signal
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

"""Ports for servers that cannot be told to find one: each is given to one process only."""

import random
import socket
from contextlib import ExitStack
from typing import Final

FIRST: Final = 20_000
LAST: Final = 30_000
TRIES: Final = 500

_GIVEN: Final = ExitStack()
"""What keeps the ports of this process: released when it ends, however it ends."""


class NoPortError(Exception):
    """No port of the range is free."""


def free_ports(*distances: int) -> int:
    """Return a port p such that every p + distance is free, and is given to nobody else.

    A server binds its ports seconds after this look. Until then they belong to this process by the
    names of abstract sockets, which only one process can bind; so two processes that run these
    tests at once get different ports. The range lies below the
    system's own range for outgoing connections. Raises NoPortError.
    """
    for port in random.sample(range(FIRST, LAST), TRIES):
        with ExitStack() as taken:
            try:
                for distance in distances:
                    name = f"\0mqlog-tests-port-{port + distance}"
                    taken.enter_context(socket.socket(socket.AF_UNIX)).bind(name)
                    with socket.socket() as probe:
                        probe.bind(("", port + distance))
            except OSError:
                continue
            _GIVEN.enter_context(taken.pop_all())
            return port
    raise NoPortError(f"no free port between {FIRST} and {LAST}")

"""Waiting for sockets, whatever the numbers of their descriptors are."""

import selectors
import socket
from collections.abc import Iterable


def readable(sockets: Iterable[socket.socket], seconds: float | None = None) -> list[socket.socket]:
    """Return those that have bytes, a connection or an end to read; wait for one so long.

    ``select`` takes no descriptor above 1,023. Raises OSError, ValueError of a closed one.
    """
    with selectors.PollSelector() as selector:
        by_number = {each.fileno(): each for each in sockets}
        for number in by_number:
            selector.register(number, selectors.EVENT_READ)
        return [by_number[key.fd] for key, _ in selector.select(seconds)]

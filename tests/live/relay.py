"""A port on loopback that passes bytes on to another, and drops its connections on demand."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOOPBACK = "127.0.0.1"
PASS, CLOSE, HOLD = "pass", "close", "hold"
_AT_ONCE = 1 << 16


class Relay:
    """Connections of clients, each with one to the server; both end together."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._server = socket.create_server((LOOPBACK, 0))
        self._open: set[socket.socket] = set()
        self._links: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.address = f"{LOOPBACK}:{self._server.getsockname()[1]}"
        self.mode = PASS
        """What happens to new connections: PASS; CLOSE, at once; HOLD, accepted and no more."""
        self._held: list[socket.socket] = []
        self.dropped = 0
        """Connections that ``drop`` broke."""

    def drop(self) -> None:
        """Break all connections; new ones are accepted."""
        with self._lock:
            broken, self._open = self._open, set()
            held, self._held = self._held, []
        for peer in held:
            peer.close()
        self.dropped += len(broken) // 2
        for peer in broken:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Accept until the port is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self.mode == CLOSE:
                    client.close()
                    continue
                if self.mode == HOLD:
                    with self._lock:
                        self._held.append(client)
                    continue
                try:
                    server = socket.create_connection(self._target, 5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                link = threading.Thread(target=self._link, args=(client, server), daemon=True)
                self._links.append(link)
                link.start()

    def close(self) -> None:
        """Close the port and all connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.drop()
        for link in self._links:
            link.join(5)

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=_pass, args=(server, client), daemon=True)
            back.start()
            _pass(client, server)
            back.join()
            with self._lock:
                self._open -= {client, server}


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_AT_ONCE):
            sink.sendall(data)
    for peer in (source, sink):
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(target: str) -> Iterator[Relay]:
    """Run a relay to a host:port that may not listen all the time."""
    found = Relay(target)
    thread = threading.Thread(target=found.serve, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.close()
        thread.join(5)

"""What the ports of gRPC and of remoting answer, told apart."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqstore.live.remoting import speech
from mqstore.live.remoting.speech import Reaction

SETTINGS = bytes.fromhex("000012040000000000") + bytes(18)
"""What the gRPC port of a 5.5.0 proxy answers to any bytes: SETTINGS of HTTP/2."""


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server on loopback that answers these bytes to whatever comes first."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(1024):
                self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "reaction", "is_grpc"),
    [
        (SETTINGS, Reaction.CLOSED, True),
        (b"\0\0\0\x06\0\0\0\x02{}", Reaction.ANSWERED, False),
        (b"\0\0", Reaction.CLOSED, False),
        (b"", Reaction.CLOSED, False),
    ],
)
def test_settings_of_http_2_are_no_answer_of_remoting(
    answer: bytes, reaction: Reaction, is_grpc: bool
) -> None:
    with answering(answer) as address:
        assert speech.react_to_request(address, 60.0) is reaction
        assert speech.speaks_only_grpc(address, 60.0) is is_grpc
